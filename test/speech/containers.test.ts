import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { mp3Frames, oggJoiner } from '../../src/speech/containers.ts';

const audio = Buffer.from(renderSpeech({ text: 'Hello there', format: 'mp3', sampleRate: 24_000 }));

/** Returns an ID3v2 tag with `size` bytes after its header. */
function id3(size: number, flags = 0): Buffer {
  const sizeBytes = [21, 14, 7, 0].map((shift) => (size >> shift) & 0x7f);
  return Buffer.concat([
    Buffer.from('ID3\x04\x00', 'latin1'),
    Buffer.from([flags, ...sizeBytes]),
    Buffer.alloc(size, 1),
  ]);
}

/** Returns an MPEG 1 or 2 layer III frame, mono or stereo, that contains only a tag. */
function headerFrame(version: 1 | 2, mono: boolean, tag: string): Buffer {
  const bytes = version === 1 ? Math.floor((144 * 128_000) / 44_100) : Math.floor((72 * 64_000) / 22_050);
  const frame = Buffer.alloc(bytes);
  frame.set([0xff, version === 1 ? 0xfb : 0xf3, version === 1 ? 0x90 : 0x80, mono ? 0xc0 : 0x00]);
  const sideInfo = version === 1 ? (mono ? 17 : 32) : mono ? 9 : 17;
  frame.write(tag, tag === 'VBRI' ? 36 : 4 + sideInfo, 'latin1');
  return frame;
}

describe('the MP3 frame reader', () => {
  test('does not change a file that contains only audio frames', () => {
    expect(mp3Frames(audio)).toEqual(audio);
  });

  test.each([
    ['an ID3v2 tag', Buffer.concat([id3(300), audio])],
    ['an ID3v2 tag with a footer', Buffer.concat([id3(5, 0x10), Buffer.alloc(10), audio])],
    ['two ID3v2 tags', Buffer.concat([id3(0), id3(129), audio])],
    ['an ID3v1 tag', Buffer.concat([audio, Buffer.from('TAG'), Buffer.alloc(125)])],
    ['a Xing header', Buffer.concat([headerFrame(1, false, 'Xing'), audio])],
    ['an Info header of MPEG 2', Buffer.concat([headerFrame(2, true, 'Info'), audio])],
    ['a stereo header of MPEG 2', Buffer.concat([headerFrame(2, false, 'Info'), audio])],
    ['a VBRI header', Buffer.concat([headerFrame(1, true, 'VBRI'), audio])],
    [
      'two tags and a header',
      Buffer.concat([id3(7), headerFrame(1, true, 'Info'), audio, Buffer.from('TAG'), Buffer.alloc(125)]),
    ],
  ])('removes %s', (_, file) => {
    expect(Buffer.from(mp3Frames(file))).toEqual(audio);
  });

  const longTag = id3(2_000_000).subarray(0, 10);
  test.each([
    ['a tag that ends after the file', Buffer.concat([longTag, audio])],
    ['a second tag that ends after the file', Buffer.concat([id3(4), longTag, audio])],
    ['nothing but tags', Buffer.concat([id3(4), id3(0)])],
    ['only a part of a header frame', headerFrame(1, false, 'Xing').subarray(0, 100)],
  ])('does not change a file that contains %s', (_, file) => {
    expect(Buffer.from(mp3Frames(file))).toEqual(file);
  });

  test('returns a result for any bytes without throwing', () => {
    const start = fc.constantFrom(
      '',
      'ID3',
      'ID3\x04\x00\x00\x7f\x7f\x7f\x7f',
      '\xff\xfb',
      '\xff\xfb\x90\x00',
      '\xff\xf3\xf0',
      'TAG',
    );
    fc.assert(
      fc.property(start, fc.uint8Array({ maxLength: 300 }), (head, tail) => {
        const file = Buffer.concat([Buffer.from(head, 'latin1'), tail]);
        const frames = mp3Frames(file);
        expect(file.includes(Buffer.from(frames))).toBe(true);
        expect(frames.length > 0).toBe(file.length > 0);
      }),
    );
  });
});

function spoken(text: string): Buffer {
  return Buffer.from(renderSpeech({ text, format: 'ogg_opus', sampleRate: 24_000 }));
}

interface Page {
  flags: number;
  granule: bigint;
  serial: number;
  sequence: number;
}

function pagesOf(file: Buffer): Page[] {
  const pages: Page[] = [];
  for (let at = 0; at < file.length;) {
    expect(file.toString('latin1', at, at + 4)).toBe('OggS');
    pages.push({
      flags: file.readUInt8(at + 5),
      granule: file.readBigUInt64LE(at + 6),
      serial: file.readUInt32LE(at + 14),
      sequence: file.readUInt32LE(at + 18),
    });
    const sizes = file.subarray(at + 27, at + 27 + file.readUInt8(at + 26));
    at += 27 + sizes.length + sizes.reduce((sum, size) => sum + size, 0);
  }
  return pages;
}

function joined(...files: Buffer[]): Buffer {
  const join = oggJoiner();
  return Buffer.concat(files.map((file, index) => join(file, index === files.length - 1)));
}

const [one, two] = [spoken('A paper boat at sea.'), spoken('It floats.')];

describe('the result of joining Ogg Opus files', () => {
  test('is identical to the file if there is only one', () => {
    expect(joined(one)).toEqual(one);
  });

  test('is one stream with one set of headers, consecutive page numbers and the full duration', () => {
    const other = Buffer.from(two);
    const whole = joined(one, other, one);
    expect(other).toEqual(two);
    const pages = pagesOf(whole);
    expect(pages.map(({ sequence }) => sequence)).toEqual(pages.map((_, index) => index));
    expect(pages.map(({ flags }) => flags)).toEqual([2, ...pages.slice(2).map(() => 0), 4]);
    expect(new Set(pages.map(({ serial }) => serial)).size).toBe(1);
    const lengths = [one, two, one].map((file) => pagesOf(file).at(-1)?.granule ?? 0n);
    expect(pages.at(-1)?.granule).toBe(lengths.reduce((sum, length) => sum + length));
    expect(whole.toString('latin1').split('OpusHead')).toHaveLength(2);
    // A second pass recomputes every checksum without changing any.
    expect(joined(whole)).toEqual(whole);
  });

  test.each([
    ['empty', Buffer.alloc(0)],
    ['not in an Ogg container', Buffer.from('no Ogg at all')],
    ['truncated inside a page', one.subarray(0, one.length - 1)],
    [
      'encoded with a different codec',
      Buffer.from(one.toString('latin1').replace('OpusHead', 'Something'.slice(1)), 'latin1'),
    ],
  ])('is identical to a single file that is %s', (_, file) => {
    expect(joined(file)).toEqual(file);
  });
});
