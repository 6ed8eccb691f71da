import { expect, test } from 'vitest';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { oggJoiner } from '../../src/speech/containers.ts';

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

test('one file stays as it is', () => {
  expect(joined(one)).toEqual(one);
});

test('several make one stream: headers once, numbered through, as long as all together', () => {
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
  // Every checksum is made anew by a second pass, and none of them changes.
  expect(joined(whole)).toEqual(whole);
});

test.each([
  ['nothing', Buffer.alloc(0)],
  ['no Ogg', Buffer.from('no Ogg at all')],
  ['a page that is cut', one.subarray(0, one.length - 1)],
  [
    'Ogg of another kind',
    Buffer.from(one.toString('latin1').replace('OpusHead', 'Something'.slice(1)), 'latin1'),
  ],
])('%s is left as it is', (_, file) => {
  expect(joined(file)).toEqual(file);
});
