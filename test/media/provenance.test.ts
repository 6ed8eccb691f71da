import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeEach, expect, it } from 'vitest';
import { originsIn } from '../../src/media/provenance.ts';
import { hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { box } from '../support/film.ts';
import { freshFolder } from '../support/servers.ts';

let path: string;
beforeEach(() => {
  path = join(freshFolder(), 'file');
});

function kindsIn(bytes?: Buffer): string[] {
  if (bytes !== undefined) writeFileSync(path, bytes);
  const file = openSync(path, 'r');
  try {
    return originsIn(file).kinds;
  } finally {
    closeSync(file);
  }
}

const ftyp = box('ftyp', Buffer.from('isom\0\0\0\0isom'));
const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const c2pa = box('uuid', Buffer.concat([hex('d8fec3d61b0e483c92975828877ec481'), Buffer.alloc(9)]));
const xmp = (text: string): Buffer =>
  box('uuid', Buffer.concat([hex('be7acfcb97a942e89c71999491e3afac'), Buffer.from(text)]));
const nest = (type: string, ...inner: Buffer[]): Buffer => box(type, Buffer.concat(inner));
const hdlr = box('hdlr', Buffer.alloc(24));
const item = box('\xa9cmt', Buffer.from('....{"AIGC":{"Label":"1"}}'));

function tag(version: number, ...frames: [id: string, content: string][]): Buffer {
  const made = frames.map(([id, content]) => {
    const head = Buffer.alloc(10);
    head.write(id);
    head.writeUInt32BE(content.length, 4);
    return Buffer.concat([head, Buffer.from(content, 'latin1')]);
  });
  const head = Buffer.from([0x49, 0x44, 0x33, version, 0, 0, 0, 0, 0, 0]);
  const content = Buffer.concat(made);
  head.writeUInt16BE(((content.length >> 7) << 8) | (content.length & 0x7f), 8);
  return Buffer.concat([head, content, Buffer.from([0xff, 0xfb, 0x90, 0])]);
}

it.each([
  ['C2PA in a box', Buffer.concat([ftyp, box('mdat', 9), c2pa]), ['c2pa']],
  ['XMP in a box', Buffer.concat([ftyp, xmp('<x/>')]), ['xmp']],
  ['XMP of QuickTime', Buffer.concat([ftyp, nest('moov', nest('udta', box('XMP_', 9)))]), ['xmp']],
  [
    'a label in XMP',
    Buffer.concat([ftyp, xmp('<TC260:AIGC>{}</TC260:AIGC>'), c2pa]),
    ['aigc', 'c2pa', 'xmp'],
  ],
  [
    'a label in a list of items',
    Buffer.concat([
      ftyp,
      nest('moov', nest('udta', nest('meta', Buffer.alloc(4), hdlr, nest('ilst', item)))),
    ]),
    ['aigc'],
  ],
  [
    'a label among the keys of QuickTime',
    Buffer.concat([ftyp, nest('moov', nest('meta', hdlr, box('keys', Buffer.from('........AIGC'))))]),
    ['aigc'],
  ],
  [
    'C2PA in ID3',
    tag(3, ['TIT2', '\0a'], ['GEOB', '\0application/x-c2pa-manifest-store\0\0\0...']),
    ['c2pa'],
  ],
  [
    'XMP and a label in ID3',
    tag(4, ['PRIV', 'XMP\0<x/>'], ['TXXX', '\0AIGC\0{"Label":"1"}']),
    ['aigc', 'xmp'],
  ],
  ['no label in a WAV file that contains the names of labels', Buffer.from('RIFF....WAVE AIGC c2pa'), []],
  ['no label in an MP4 file without labels', Buffer.concat([ftyp, box('mdat', 100)]), []],
])('mgw recognizes a provenance label or its absence: %s', (_, bytes, kinds) => {
  expect(kindsIn(bytes)).toEqual(kinds);
});

it.runIf(hasFfmpeg)('mgw recognizes a provenance label written by ffmpeg', () => {
  const input = ['-f', 'lavfi', '-i', 'testsrc=s=64x48:d=0.2'];
  const label = ['-movflags', 'use_metadata_tags', '-metadata', 'AIGC={"Label":"1"}'];
  execFileSync('ffmpeg', ['-v', 'error', '-y', ...input, ...label, '-f', 'mp4', path]);
  expect(kindsIn()).toEqual(['aigc']);
});

it.each(['moov', 'udta', 'meta'])(
  'the search for a provenance label skips %s boxes that are nested 10,000 levels deep',
  (type) => {
    const deep = Buffer.alloc(8 * 10_000, box(type));
    for (let at = 0; at < deep.length; at += 8) deep.writeUInt32BE(deep.length - at, at);
    expect(kindsIn(Buffer.concat([ftyp, deep, c2pa]))).toEqual(['c2pa']);
  },
);

it('the search for a provenance label reads fewer than ten of the XMP packets in a file', () => {
  writeFileSync(path, Buffer.concat([ftyp, Buffer.alloc(100_000 * 24, xmp(''))]));
  const file = openSync(path, 'r');
  expect(originsIn(file).packets.length).toBeLessThan(10);
  closeSync(file);
});

it('the search for a provenance label ends for any file', () => {
  const sources = [
    tag(4, ['TXXX', '\0AIGC'], ['GEOB', 'c2pa']),
    Buffer.concat([ftyp, nest('moov', nest('udta', nest('meta', hdlr, nest('ilst', item)))), c2pa]),
  ];
  const change = fc.tuple(fc.nat(200), fc.integer({ min: 0, max: 255 }));
  fc.assert(
    fc.property(fc.constantFrom(...sources), fc.array(change, { maxLength: 12 }), (source, changes) => {
      const bytes = Buffer.from(source);
      for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
      expect(kindsIn(bytes).length).toBeLessThanOrEqual(3);
    }),
    { numRuns: 40 },
  );
});
