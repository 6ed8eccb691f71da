import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MediaSpool, type MediaSpoolOptions, type SpooledBody } from '../../src/media/media-spool.ts';
import type { Json } from '../../src/json.ts';
import { anyCharacter } from '../support/any-character.ts';

/** Passes a body, split at the given offsets, through a spool to memory. */
async function spool(
  body: string | Buffer,
  options: Partial<MediaSpoolOptions> & { cuts?: number[] } = {},
): Promise<SpooledBody & { media: Buffer[]; closed: number }> {
  const media: Buffer[][] = [];
  let closed = 0;
  const spool = new MediaSpool({
    members: ['encodedVideo'],
    maxTextBytes: 1_000_000,
    openSink: (index) => {
      const parts: Buffer[] = (media[index] = []);
      const write = (bytes: Uint8Array): void => void parts.push(Buffer.from(bytes));
      return Promise.resolve({
        path: `sink-${index}`,
        write,
        close: () => Promise.resolve(void (closed += 1)),
      });
    },
    ...options,
  });
  for (const chunk of chunks(Buffer.from(body), options.cuts ?? [])) await spool.push(chunk);
  const result = await spool.end();
  return { ...result, media: media.map((parts) => Buffer.concat(parts)), closed };
}

function chunks(body: Buffer, cuts: number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (body.length + 1)).sort((a, b) => a - b), body.length];
  return places.slice(1).map((end, index) => body.subarray(places[index], end));
}

const everyByte = (length: number): number[] => Array.from({ length }, (_, index) => index);
const inline = (text: string): string => `{"video":{"encodedVideo":"${text}","encoding":"video/mp4"}}`;

describe('the media spool', () => {
  test('writes a media string to the sink, and a placeholder to the text', async () => {
    const result = await spool(inline('SGVsbG8='));
    expect(JSON.parse(result.text)).toEqual({
      video: { encodedVideo: 'mgw-spool:0', encoding: 'video/mp4' },
    });
    expect(result.spooled).toEqual([{ path: 'sink-0', bytes: 5 }]);
    expect(result.media).toEqual([Buffer.from('Hello')]);
    expect(result).toMatchObject({ overflow: false, closed: 1 });
  });

  test('recognizes a name that contains escapes', async () => {
    const result = await spool('{"encoded\\u0056ideo":"QQ=="}');
    expect(result.media.map(String)).toEqual(['A']);
  });

  test.each([
    ['a different name', '{"encodedVideos":"QQ==","EncodedVideo":"QQ=="}'],
    ['the name as a value', '{"a":"encodedVideo","b":"QQ=="}'],
    ['an array after the name', '{"encodedVideo":["QQ=="],"b":["encodedVideo","QQ=="]}'],
    ['the name inside a string', '{"a":"\\"encodedVideo\\":\\"QQ==\\""}'],
    [
      'a number, null or an empty string after the name',
      '[{"encodedVideo":1},{"encodedVideo":null},{"encodedVideo":""}]',
    ],
    ['a name that is too long', `{"${'encodedVideo'.repeat(100)}":"QQ=="}`],
    ['a name with an escape that is invalid in JSON', '{"encodedVide\\o":"QQ=="}'],
    ['HTML instead of JSON', '<html>"encodedVideo" ":" "QQ=="</html>'],
  ])('diverts nothing from text with %s', async (_, body) => {
    const result = await spool(body, { cuts: everyByte(body.length) });
    expect(result).toMatchObject({ text: body, spooled: [], overflow: false });
  });

  test('reads the strings that follow a string that ends in an escape, and an invalid string', async () => {
    const body = ['QUJ\\u0044', '', '!!!!', 'QQ=='].map((text) => `{"encodedVideo" :\n"${text}"}`);
    const result = await spool(`[${body.join(',')}]`);
    expect(result.media.map(String)).toEqual(['ABC', '', 'A']);
    expect(result.spooled.map(({ bytes, fault }) => [bytes, fault === undefined])).toEqual([
      [3, true],
      [0, false],
      [1, true],
    ]);
    expect(result.text).toContain('"encodedVideo" :\n"mgw-spool:2"');
  });

  test('treats a placeholder sent by the gateway as invalid Base64', async () => {
    const result = await spool(inline('mgw-spool:0'));
    expect(result.spooled[0]?.fault).toMatch(/outside its alphabet at character 4/);
  });
});

describe('Base64 in the media spool', () => {
  test.each([
    ['\\/', 'A\\/8A', [0x03, 0xff, 0x00]],
    ['\\u002f and \\u002B', 'A\\u002f8\\u002B', [0x03, 0xff, 0x3e]],
    ['\\u003d', 'QQ\\u003d\\u003D', [0x41]],
  ])('is decoded if a character is escaped as %s', async (_, text, bytes) => {
    for (const cuts of [[], everyByte(inline(text).length)]) {
      const result = await spool(inline(text), { cuts });
      expect(result.spooled).toEqual([{ path: 'sink-0', bytes: bytes.length }]);
      expect([...(result.media[0] ?? [])]).toEqual(bytes);
    }
  });

  test.each([
    ['QUJD*UJD', /outside its alphabet at character 5$/],
    ['QUJDQ_JD', /outside its alphabet at character 6$/],
    ['QUJD\\nQUJD', /outside its alphabet at character 5$/],
    ['QUJD\\"QUJ', /outside its alphabet at character 5$/],
    ['QUJD\\xQUJ', /outside its alphabet at character 5$/],
    ['QUJD\\u00zzQUJ', /outside its alphabet at character 5$/],
    ['QQ=', /multiple of four/],
    ['====', /wrong padding at character 1$/],
    ['QQ==QUJD', /wrong padding at character 3$|after its padding at character 5$/],
    ['QUI==', /multiple of four|after its padding/],
  ])('is reported as invalid if it is %s', async (text, fault) => {
    for (const cuts of [[], everyByte(inline(text).length)]) {
      const result = await spool(inline(text), { cuts });
      expect(result.spooled[0]?.fault).toMatch(fault);
      expect(JSON.parse(result.text)).toEqual({
        video: { encodedVideo: 'mgw-spool:0', encoding: 'video/mp4' },
      });
    }
  });

  test('is written only up to the first error', async () => {
    const text = `${'QUJD'.repeat(5000)}*AAA${'QUJD'.repeat(5000)}`;
    const result = await spool(inline(text), { cuts: [9001, 30_000] });
    expect(result.spooled[0]).toMatchObject({
      bytes: 15_000,
      fault: expect.stringContaining('character 20001') as string,
    });
    expect(result.media[0]?.equals(Buffer.from('ABC'.repeat(5000)))).toBe(true);
  });
});

describe('a body in the media spool', () => {
  const body = inline('QUJDREVG');

  test('contains incomplete media, and is never treated as complete, if it is truncated at any byte', async () => {
    for (const length of everyByte(body.length)) {
      const result = await spool(body.slice(0, length));
      expect(() => JSON.parse(result.text) as Json).toThrow();
      expect(result.closed).toBe(result.spooled.length);
      const closing = body.indexOf('QUJDREVG') + 8;
      if (length <= closing) expect(result.spooled.every(({ fault }) => fault === 'cut')).toBe(true);
      else expect(result.spooled).toEqual([{ path: 'sink-0', bytes: 6 }]);
    }
  });

  test('is discarded with an overflow error if it contains more text than allowed', async () => {
    const result = await spool(`{"a":"${'x'.repeat(2000)}","encodedVideo":"QQ=="}`, { maxTextBytes: 1000 });
    expect(result).toMatchObject({ overflow: true, spooled: [] });
    expect(result.text).toHaveLength(1000);
  });

  test('has a length limit that does not include its media', async () => {
    const result = await spool(inline('QUJD'.repeat(100_000)), { maxTextBytes: 100 });
    expect(result.overflow).toBe(false);
    expect(result.spooled[0]?.bytes).toBe(300_000);
  });

  test('is discarded with an overflow error if it contains more media than any task can produce', async () => {
    const result = await spool(`[${Array(1000).fill('{"encodedVideo":"QQ=="}').join(',')}]`);
    expect(result).toMatchObject({ overflow: true, closed: 256 });
  });

  test("fails with the sink's error, and the sink is closed", async () => {
    let closed = 0;
    const write = (): Promise<void> => Promise.reject(new Error('ENOSPC'));
    const openSink = () => Promise.resolve({ write, close: () => Promise.resolve(void (closed += 1)) });
    await expect(spool(inline('QUJD'.repeat(400_000)), { openSink })).rejects.toThrow('ENOSPC');
    await expect(spool(inline('QUJD'), { openSink })).rejects.toThrow('ENOSPC');
    expect(closed).toBe(2);
  });

  test('is written to the sink in pieces of less than 1 MiB if its media is large', async () => {
    const sizes: number[] = [];
    const parts: Buffer[] = [];
    const write = (bytes: Uint8Array): void => {
      sizes.push(bytes.length);
      parts.push(Buffer.from(bytes));
    };
    const openSink = () => Promise.resolve({ write, close: () => Promise.resolve() });
    const content = Buffer.alloc(2_000_001, 'some content');
    const result = await spool(inline(content.toString('base64')), {
      openSink,
      cuts: [1_000_003],
    });
    expect(result.spooled).toEqual([{ path: undefined, bytes: content.length }]);
    expect(Buffer.concat(parts).equals(content)).toBe(true);
    expect(Math.max(...sizes)).toBeLessThan(1024 * 1024);
  });

  test('waits for a slow sink', async () => {
    let under = 0;
    let max = 0;
    const write = async (): Promise<void> => {
      max = Math.max(max, ++under);
      await new Promise(setImmediate);
      under -= 1;
    };
    const openSink = () => Promise.resolve({ write, close: () => Promise.resolve() });
    await spool(inline('QUJD'.repeat(250_000)), { openSink, cuts: everyByte(40).map((n) => n * 25_000) });
    expect(max).toBe(1);
  });
});

/** Returns a value's JSON text. `escape` chooses how to write each `+`, `/` and `=` in a string. */
function serialize(value: Json, escape: (character: string) => string): string {
  if (typeof value === 'string') return JSON.stringify(value).replace(/[+/=]/g, escape);
  if (Array.isArray(value)) return `[${value.map((item) => serialize(item, escape)).join(' , ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value);
  return `{${members.map(([key, item]) => `${serialize(key, escape)} :\t${serialize(item ?? null, escape)}`).join(',')}}`;
}

function escaper(every: number): (character: string) => string {
  let count = 0;
  return (character) => {
    if (++count % every !== 0) return character;
    return character === '/' && count % 2 === 0 ? '\\/' : `\\u00${character.charCodeAt(0).toString(16)}`;
  };
}

const media = fc.uint8Array({ minLength: 1, maxLength: 300 }).map((bytes) => ({ media: Buffer.from(bytes) }));
type Leaf = { media: Buffer } | Json;
const tree: fc.Arbitrary<Leaf> = fc.letrec<{ node: Leaf }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 4 },
    fc.jsonValue({ maxDepth: 1, stringUnit: anyCharacter }) as fc.Arbitrary<Json>,
    fc.record({ encodedVideo: media, other: fc.string() }) as unknown as fc.Arbitrary<Json>,
    fc.array(tie('node'), { maxLength: 3 }) as unknown as fc.Arbitrary<Json>,
    fc.dictionary(fc.string({ unit: anyCharacter }), tie('node'), {
      maxKeys: 3,
    }) as unknown as fc.Arbitrary<Json>,
  ),
})).node;

/**
 * Returns the tree as the gateway sends it and as the spool should return it. Appends the media to `taken`, in order.
 */
function sides(node: Leaf, taken: Buffer[]): { sent: Json; kept: Json } {
  if (Array.isArray(node)) {
    const items = node.map((item) => sides(item, taken));
    return { sent: items.map(({ sent }) => sent), kept: items.map(({ kept }) => kept) };
  }
  if (typeof node !== 'object' || node === null) return { sent: node, kept: node };
  if ('media' in node && Buffer.isBuffer(node.media)) {
    taken.push(node.media);
    return { sent: node.media.toString('base64'), kept: `mgw-spool:${taken.length - 1}` };
  }
  const members = Object.entries(node).map(([key, item]) => [key, sides(item as Leaf, taken)] as const);
  return {
    sent: Object.fromEntries(members.map(([key, { sent }]) => [key, sent])),
    kept: Object.fromEntries(members.map(([key, { kept }]) => [key, kept])),
  };
}

test('the media spool returns the same value and media for any JSON, however it is escaped and split', async () => {
  const cuts = fc.array(fc.nat(), { maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(tree, cuts, fc.integer({ min: 1, max: 9 }), async (node, places, every) => {
      const buffers: Buffer[] = [];
      const { sent, kept } = sides(node, buffers);
      const result = await spool(serialize(sent, escaper(every)), { cuts: places });
      expect(JSON.parse(result.text)).toEqual(JSON.parse(JSON.stringify(kept)));
      expect(result.media.map((bytes) => bytes.toString('hex'))).toEqual(
        buffers.map((bytes) => bytes.toString('hex')),
      );
      expect(result.spooled.every(({ fault }) => fault === undefined)).toBe(true);
    }),
    { numRuns: 60 },
  );
});

test('the media spool finds the same errors as strict Base64 decoding in any string', async () => {
  const near = fc.array(fc.constantFrom('Q', 'U', 'J', 'D', '+', '/', '=', '-', ' '), {
    minLength: 1,
    maxLength: 12,
  });
  const correct = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=))?$/;
  const cuts = fc.array(fc.nat(), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(near, cuts, async (characters, places) => {
      const text = characters.join('');
      const result = await spool(inline(text), { cuts: places });
      expect(result.spooled[0]?.fault === undefined).toBe(correct.test(text));
      if (correct.test(text)) expect(result.media[0]?.equals(Buffer.from(text, 'base64'))).toBe(true);
    }),
    { numRuns: 100 },
  );
});
