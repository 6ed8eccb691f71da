import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json.ts';
import { a } from '../../../src/protocols/a/protocol.ts';
import type { SubmitVerdict } from '../../../src/exchange.ts';

import { goodBody, name, reply } from './support.ts';

const read = (body: unknown, status = 200, complete = true): SubmitVerdict =>
  a.readSubmission(reply(body, status, { complete }), goodBody);

describe('a Protocol A submission', () => {
  test('moves the model from the body to the path, and leaves the other members unchanged', () => {
    const body: JsonObject = { labels: { x: 1 }, ...goodBody };
    const { instances, parameters } = goodBody;
    expect(a.submission(body)).toEqual({
      method: 'POST',
      path: '/v1beta/models/video-a:predictLongRunning',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ labels: { x: 1 }, instances, parameters }),
    });
    expect(a.modelOf(body)).toBe('video-a');
  });

  test.each([
    ['vendor/video a', undefined],
    ['vendor/video-a', '/v1beta/models/vendor%2Fvideo-a:predictLongRunning'],
    ['video%2e%2e', '/v1beta/models/video%252e%252e:predictLongRunning'],
    ['видео', '/v1beta/models/%D0%B2%D0%B8%D0%B4%D0%B5%D0%BE:predictLongRunning'],
    ['..', undefined],
    ['a/../b', undefined],
    ['a#b', undefined],
    ['a\ud800', undefined],
    ['', undefined],
  ])('encodes the model %j in the path, or refuses it', (model, path) => {
    if (path !== undefined) expect(a.submission({ ...goodBody, model }).path).toBe(path);
    else
      expect(() => a.submission({ ...goodBody, model })).toThrow(expect.objectContaining({ code: 'usage' }));
  });

  test('accepts a model with or without its "models/" prefix', () => {
    expect(a.normalize({ ...goodBody, model: 'models/video-a' })).toEqual(goodBody);
  });
});

describe('an accepted Protocol A submission', () => {
  test.each([
    ['done: true', { name, done: true, response: {} }],
    ['an empty error', { name, error: {} }],
  ])('provides a handle if its response has %s', (_, body) => {
    expect(read(body)).toEqual({ kind: 'accepted', handle: name, warning: undefined });
  });

  test('causes a warning if the response contains an error', () => {
    const verdict = read({ name, error: { code: 8, message: 'slow down' } });
    expect(verdict).toMatchObject({
      kind: 'accepted',
      handle: name,
      warning: expect.stringContaining('slow down') as string,
    });
  });

  test.each([
    ['models/other/operations/1', /a model other than/],
    ['https://evil.example/models/video-a/operations/1', /absolute address/],
    ['../v1/models', /does not have the form/],
    ['/models/video-a/operations/1', /does not have the form/],
    [' ', /does not have the form/],
  ])('is recorded as paid for, but never queried, if its name is %j', (odd, warning) => {
    const verdict = read({ name: odd, done: false });
    expect(verdict).toMatchObject({
      kind: 'accepted',
      handle: odd,
      warning: expect.stringMatching(warning) as string,
    });
  });
});

test('a Protocol A submission whose response has no handle has an unknown outcome', () => {
  const bodies = ['', {}, null, [1], { name: null }, { name: '' }, '{"name":"models/video-a/oper'];
  for (const body of bodies)
    for (const complete of [true, false])
      expect(read(body, 200, complete)).toMatchObject({ kind: 'unknown', failure: { code: 'bad_reply' } });
});
