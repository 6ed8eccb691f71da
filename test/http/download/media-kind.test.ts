import { describe, expect, it } from 'vitest';
import { isText, mimeOf } from '../../../src/media/media-kind.ts';

describe('isText', () => {
  it.each([
    ['{"a":1}', undefined],
    ['{ }', 'video/mp4'],
    ['  [ {"a":1}]', 'application/octet-stream'],
    ['<!DOCTYPE html>', 'video/mp4'],
    ['<Error><Code>', 'binary/octet-stream'],
    ['\ufeff{"a":1}', undefined],
    ['', 'application/json'],
    ['anything', 'application/vnd.api+json; charset=utf-8'],
    ['anything', 'Text/HTML'],
    ['sorry', 'text/plain'],
  ])('is true for %j as %s', (body, type) => {
    expect(isText(Buffer.from(body), type)).toBe(true);
  });

  it.each([
    [Buffer.from('\0\0\0\x18ftypisom'), 'text/html'],
    [Buffer.from('ID3\x04'), 'audio/mpeg'],
    [Buffer.from('OggS\0'), undefined],
    [Buffer.from('RIFF\x24\0\0\0WAVE'), 'text/plain'],
    [Buffer.from('{\x00\x01\x02'), undefined],
    [Buffer.from('<\x80'), 'video/mp4'],
    [Buffer.from('GIF89a'), 'image/gif'],
  ])('is false for %o as %s', (body, type) => {
    expect(isText(body, type)).toBe(false);
  });
});

describe('mimeOf', () => {
  it.each([
    [true, undefined, 'video/mp4'],
    [true, 'application/octet-stream', 'video/mp4'],
    [true, 'video/quicktime', 'video/quicktime'],
    [false, 'Video/WebM; codecs="vp9"', 'video/webm'],
    [false, 'binary/octet-stream', undefined],
    [false, 'video/<script>', undefined],
  ])('of an MP4 (%s) that is said to be %s is %s', (isMp4, type, mime) => {
    expect(mimeOf(isMp4, type)).toBe(mime);
  });
});
