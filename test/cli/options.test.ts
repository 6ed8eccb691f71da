import { describe, expect, it } from 'vitest';
import { Command } from 'commander';
import { outputOption, sinceTime } from '../../src/cli/options.ts';

const now = Date.parse('2026-11-29T12:00:00Z');

it.each([
  ['2026-11-22', '2026-11-22T00:00:00.000Z'],
  ['2028-02-29', '2028-02-29T00:00:00.000Z'],
  ['2026-11-22T01:00:00+02:00', '2026-11-21T23:00:00.000Z'],
  ['7d', '2026-11-22T12:00:00.000Z'],
])('--since %s selects jobs from %s', (text, time) => {
  expect(sinceTime(text, now)).toBe(time);
});

it.each([
  '2026-02-30',
  '2026-04-31',
  '2026-02-29',
  '2026-13-01',
  '2026-02-30T08:00:00Z',
  '2026-11-22T25:00Z',
  'x',
])('--since %s is refused as an invalid time', (text) => {
  expect(() => sinceTime(text, now)).toThrow('--since must be a day');
});

describe('--output', () => {
  const parse = (path: string): unknown =>
    new Command()
      .addOption(outputOption('-o, --output <file>', ''))
      .parse(['-o', path], { from: 'user' })
      .opts()['output'];

  it.each(['~', '~/x.mp4', '~ann/{id}.mp4'])(
    '%s is refused, because the shell has not expanded it',
    (path) => {
      expect(() => parse(path)).toThrow(`--output ${path}: must be a path without ~`);
    },
  );

  it.each([
    'gs://bucket/x.mp4',
    'S3://bucket/x.mp4',
    'https://host/x.mp4',
    'file:///tmp/x.mp4',
    'gs://bucket/',
  ])('%s is refused, because it would be a path of new folders', (url) => {
    expect(() => parse(url)).toThrow(`--output ${url}: must be a path or s3://BUCKET/KEY.`);
  });

  it.each([
    ['s3://bu/x.mp4', 'bu'],
    ['s3://My_Bucket/{id}.mp4', 'My_Bucket'],
    ['s3:///x.mp4', ''],
  ])('%s is refused, and the message names the bucket', (url, bucket) => {
    expect(() => parse(url)).toThrow(`must be a path or s3://BUCKET/KEY; "${bucket}" is not a bucket name`);
  });

  it.each(['./~/x.mp4', './gs://x.mp4', 'c:/x.mp4', 'a~/x.mp4', '~x.mp4', 's3://bucket/~/x.mp4'])(
    'may be %s',
    (path) => {
      expect(parse(path)).toBe(path);
    },
  );
});
