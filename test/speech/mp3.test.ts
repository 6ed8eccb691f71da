import fc from 'fast-check';
import { expect, test } from 'vitest';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { mp3Frames } from '../../src/speech/containers.ts';

const audio = Buffer.from(renderSpeech({ text: 'Hello there', format: 'mp3', sampleRate: 24_000 }));

/** An ID3v2 tag with `size` bytes after its header. */
function id3(size: number, flags = 0): Buffer {
  const sizeBytes = [21, 14, 7, 0].map((shift) => (size >> shift) & 0x7f);
  return Buffer.concat([
    Buffer.from('ID3\x04\x00', 'latin1'),
    Buffer.from([flags, ...sizeBytes]),
    Buffer.alloc(size, 1),
  ]);
}

/** A frame of MPEG 1 or 2 layer III, mono or stereo, that holds only a tag. */
function headerFrame(version: 1 | 2, mono: boolean, tag: string): Buffer {
  const bytes = version === 1 ? Math.floor((144 * 128_000) / 44_100) : Math.floor((72 * 64_000) / 22_050);
  const frame = Buffer.alloc(bytes);
  frame.set([0xff, version === 1 ? 0xfb : 0xf3, version === 1 ? 0x90 : 0x80, mono ? 0xc0 : 0x00]);
  const sideInfo = version === 1 ? (mono ? 17 : 32) : mono ? 9 : 17;
  frame.write(tag, tag === 'VBRI' ? 36 : 4 + sideInfo, 'latin1');
  return frame;
}

test('frames alone stay as they are', () => {
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
    'all of them',
    Buffer.concat([id3(7), headerFrame(1, true, 'Info'), audio, Buffer.from('TAG'), Buffer.alloc(125)]),
  ],
])('%s is left out', (_, file) => {
  expect(Buffer.from(mp3Frames(file))).toEqual(audio);
});

test('bytes of any kind give a part of themselves', () => {
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
      expect(file.includes(Buffer.from(mp3Frames(file)))).toBe(true);
    }),
  );
});
