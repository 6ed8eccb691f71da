import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startsMp4, walkBoxes, type BoxWalk } from '../../src/http/mp4.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mgw-mp4-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function walked(bytes: Buffer): Promise<BoxWalk> {
  const path = join(folder, 'file.mp4');
  await writeFile(path, bytes);
  return walkBoxes(path);
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
  it('asks for ftyp at bytes 4 to 8', () => {
    expect(startsMp4(film)).toBe(true);
    expect(startsMp4(film.subarray(0, 8))).toBe(true);
    expect(startsMp4(film.subarray(0, 7))).toBe(false);
    expect(startsMp4(box('moov', 40))).toBe(false);
    expect(startsMp4(Buffer.concat([Buffer.alloc(9), film]).subarray(9))).toBe(true);
  });
});

describe('walkBoxes', () => {
  it('accepts boxes that end where the file ends', async () => {
    expect(await walked(film)).toEqual({ ok: true, playable: true });
  });

  it('accepts a 64-bit size and a last box of open size', async () => {
    const parts = [box('ftyp', 16), box('moov', 8), box('mdat', 5000, 'long')];
    expect(await walked(Buffer.concat(parts))).toMatchObject({ ok: true });
    expect(
      await walked(Buffer.concat([box('ftyp', 16), box('moov', 8), box('mdat', 5000, 'open')])),
    ).toMatchObject({
      ok: true,
    });
  });

  it('says where nothing can be played', async () => {
    expect(await walked(Buffer.concat([box('ftyp', 16), box('mdat', 50)]))).toEqual({
      ok: true,
      playable: false,
    });
  });

  it('accepts many small boxes across its windows', async () => {
    const many = Array.from({ length: 5000 }, (_, at) => box('free', at % 7));
    expect(await walked(Buffer.concat([box('ftyp', 16), ...many, box('moov')]))).toEqual({
      ok: true,
      playable: true,
    });
  });

  it.each([
    ['an empty file', Buffer.alloc(0), /empty/],
    ['zeros behind the last box', Buffer.concat([film, Buffer.alloc(64)]), /no box/],
    ['one byte too many', Buffer.concat([film, Buffer.alloc(1)]), /header is cut/],
    [
      'a 64-bit header that is cut',
      Buffer.concat([film, box('mdat', 0, 'long').subarray(0, 12)]),
      /header is cut/,
    ],
    ['a box smaller than its header', Buffer.concat([film, Buffer.from('\0\0\0\x05free')]), /smaller/],
    [
      'a 64-bit box smaller than its header',
      Buffer.concat([film, Buffer.from('\0\0\0\x01free\0\0\0\0\0\0\0\x0f')]),
      /smaller/,
    ],
    [
      'a 64-bit size beyond all files',
      Buffer.concat([film, Buffer.from('\0\0\0\x01free\xff\xff\xff\xff\xff\xff\xff\xff', 'latin1')]),
      /beyond/,
    ],
    ['text', Buffer.from('\0\0\0\x20ftypisom and then HTML: <html></html>'), /no box|beyond/],
  ])('refuses %s', async (_, bytes, reason) => {
    const { ok, reason: why } = await walked(bytes);
    expect(ok).toBe(false);
    expect(why).toMatch(reason);
  });

  it('refuses every cut but those between two boxes', async () => {
    const ends = [24, 24 + 308, 24 + 308 + 8, film.length];
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: film.length }), async (cut) => {
        expect((await walked(film.subarray(0, cut))).ok).toBe(ends.includes(cut));
      }),
      { examples: [[24], [332], [340], [film.length], [film.length - 1]] },
    );
  });

  it('ends on any bytes at all', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => {
        const { ok, reason } = await walked(Buffer.concat([box('ftyp', 4), bytes]));
        expect(ok).toBe(reason === undefined);
      }),
    );
  });
});
