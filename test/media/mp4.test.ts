import { closeSync, openSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mp4In, startsMp4, isText, mimeOf } from '../../src/media/mp4.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mgw-mp4-'));
});
afterAll(() => rm(folder, { recursive: true }));

function flawOf(bytes: Buffer): string | undefined {
  const path = join(folder, 'file.mp4');
  writeFileSync(path, bytes);
  const file = openSync(path, 'r');
  try {
    const mp4 = mp4In(file);
    return mp4 === undefined ? 'it is none' : mp4.flaw;
  } finally {
    closeSync(file);
  }
}

function box(type: string, content: Buffer | number = 0, form: 'short' | 'long' | 'open' = 'short'): Buffer {
  const body = typeof content === 'number' ? Buffer.alloc(content, 7) : content;
  const head = Buffer.alloc(form === 'long' ? 16 : 8);
  head.write(type, 4, 'latin1');
  head.writeUInt32BE(form === 'short' ? 8 + body.length : form === 'long' ? 1 : 0, 0);
  if (form === 'long') head.writeBigUInt64BE(BigInt(16 + body.length), 8);
  return Buffer.concat([head, body]);
}

const film = Buffer.concat([box('ftyp', 16), box('moov', 300), box('free'), box('mdat', 9000)]);

describe('startsMp4', () => {
  it('checks for ftyp at offset 4', () => {
    expect(startsMp4(film)).toBe(true);
    expect(startsMp4(film.subarray(0, 8))).toBe(true);
    expect(startsMp4(film.subarray(0, 7))).toBe(false);
    expect(startsMp4(box('moov', 40))).toBe(false);
    expect(startsMp4(Buffer.concat([Buffer.alloc(9), film]).subarray(9))).toBe(true);
  });
});

describe('mp4In', () => {
  it('accepts boxes that end at the end of the file', () => {
    expect(flawOf(film)).toBeUndefined();
  });

  it.each(['long', 'open'] as const)('accepts a last box whose size has the form "%s"', (form) => {
    const start = [box('ftyp', 16), box('moov', 8)];
    expect(flawOf(Buffer.concat([...start, box('mdat', 5000, form)]))).toBeUndefined();
    expect(flawOf(Buffer.concat([...start, box('mdat', 0, form)]))).toMatch(/nothing to play/);
  });

  it('accepts fragments as a video', () => {
    const fragments = [box('moof', 40), box('mdat', 50), box('moof', 40), box('mdat', 50)];
    expect(flawOf(Buffer.concat([box('ftyp', 16), ...fragments]))).toBeUndefined();
  });

  it.each([
    ['a brand', [box('ftyp', 16)]],
    ['media without an index', [box('ftyp', 16), box('mdat', 50)]],
    ['an index without media', [box('ftyp', 16), box('moov', 300)]],
    ['an index with empty media', [box('ftyp', 16), box('moov', 300), box('mdat')]],
  ])('finds nothing to play if the file contains only %s', (_, boxes) => {
    expect(flawOf(Buffer.concat(boxes))).toMatch(/nothing to play/);
  });

  it('reads a file of many small boxes', () => {
    const many = Array.from({ length: 1000 }, (_, at) => box('free', at % 7));
    expect(flawOf(Buffer.concat([box('ftyp', 16), ...many, box('moov'), box('mdat', 1)]))).toBeUndefined();
  });

  it.each([
    ['an empty file', Buffer.alloc(0), /none/],
    ['zeros after the last box', Buffer.concat([film, Buffer.alloc(64)]), /no box/],
    ['one byte too many', Buffer.concat([film, Buffer.alloc(1)]), /header is truncated/],
    [
      'a truncated 64-bit header',
      Buffer.concat([film, box('mdat', 0, 'long').subarray(0, 12)]),
      /header is truncated/,
    ],
    ['a box smaller than its header', Buffer.concat([film, Buffer.from('\0\0\0\x05free')]), /smaller/],
    [
      'a 64-bit box smaller than its header',
      Buffer.concat([film, Buffer.from('\0\0\0\x01free\0\0\0\0\0\0\0\x0f')]),
      /smaller/,
    ],
    [
      'a 64-bit size larger than any file',
      Buffer.concat([film, Buffer.from('\0\0\0\x01free\xff\xff\xff\xff\xff\xff\xff\xff', 'latin1')]),
      /beyond/,
    ],
    ['text', Buffer.from('\0\0\0\x20ftypisom and then HTML: <html></html>'), /no box|beyond/],
  ])('refuses %s', (_, bytes, reason) => {
    expect(flawOf(bytes)).toMatch(reason);
  });

  it('stops reading after more boxes than any video contains', () => {
    const many = Buffer.alloc(8 * 1_000_001, box('free'));
    expect(flawOf(Buffer.concat([film, many]))).toMatch(/more than 1000000 boxes/);
  });

  it('refuses a file that is truncated at any byte', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: film.length }), (cut) => {
        expect(flawOf(film.subarray(0, cut)) === undefined).toBe(cut === film.length);
      }),
      { numRuns: 40, examples: [[24], [332], [340], [film.length], [film.length - 1]] },
    );
  });

  it('returns a result for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        flawOf(Buffer.concat([box('ftyp', 4), bytes]));
      }),
      { numRuns: 40 },
    );
  });
});

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
  ])('returns true for %j declared as %s', (body, type) => {
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
  ])('returns false for %o declared as %s', (body, type) => {
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
  ])('reads a file (is MP4: %s) with the declared type %s as %s', (isMp4, type, mime) => {
    expect(mimeOf(isMp4, type)).toBe(mime);
  });
});
