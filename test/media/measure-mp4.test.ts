import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { measureMp4 } from '../../src/media/measure-mp4.ts';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { box } from '../support/film.ts';

let folder: string;
let path: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mgw-measure-'));
  path = join(folder, 'file.mp4');
});
afterAll(() => rm(folder, { recursive: true }));

function measuredAt(file: string): ReturnType<typeof measureMp4> {
  const descriptor = openSync(file, 'r');
  try {
    return measureMp4(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function measured(...boxes: Uint8Array[]): ReturnType<typeof measureMp4> {
  writeFileSync(path, Buffer.concat(boxes));
  return measuredAt(path);
}

const clip = { prompt: 'a boat', seconds: 1.5, width: 96, height: 64 };
const silent = renderVideo(clip);

function words(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [index, value] of values.entries()) bytes.writeUInt32BE(value >>> 0, index * 4);
  return bytes;
}

function nest(type: string, ...boxes: Buffer[]): Buffer {
  return box(type, Buffer.concat(boxes));
}

const ftyp = box('ftyp', Buffer.from('isom\0\0\0\0isom'));
const upright = [0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000];
const quarter = [0, 0x10000, 0, -0x10000, 0, 0, 0, 0, 0x40000000];

interface Made {
  matrix?: number[];
  edits?: Buffer[];
  stts?: Buffer;
  more?: Buffer[];
  tables?: Buffer[];
}

// Returns a movie with 600 ticks per second, whose track has 1000 ticks per second.
function movie({
  matrix = upright,
  edits = [],
  stts = words(0, 1, 50, 40),
  more = [],
  tables = [],
}: Made): Buffer {
  const head = [...words(0, 0, 0, 600, 1200, 0x10000)];
  const mvhd = box('mvhd', Buffer.concat([Buffer.from(head), Buffer.alloc(12), words(...upright), words(0)]));
  const size = words(640 * 0x10000, 360 * 0x10000);
  const start = words(3, 0, 0, 7, 0, 1200, 0, 0, 0, 0);
  const tkhd = box('tkhd', Buffer.concat([start, words(...matrix), size]));
  const hdlr = box('hdlr', Buffer.concat([words(0, 0), Buffer.from('vide'), words(0, 0, 0)]));
  const stbl = nest('minf', nest('stbl', box('stts', stts), ...tables));
  const mdia = nest('mdia', box('mdhd', words(0, 0, 0, 1000, 2000, 0)), hdlr, stbl);
  return nest('moov', mvhd, nest('trak', tkhd, ...edits, mdia), ...more);
}

const edit = (...entries: number[][]): Buffer =>
  nest('edts', box('elst', words(0, entries.length, ...entries.flat())));

describe('measureMp4', () => {
  it('measures a clip, with and without sound', () => {
    const size = { duration: 1.5, width: 96, height: 64, fps: 24 };
    expect(measured(silent)).toEqual({ ...size, audio: false });
    expect(measured(renderVideo({ ...clip, audio: true }))).toEqual({ ...size, audio: true });
  });

  it.each<[string, Made, object]>([
    ['a constant frame rate', {}, { duration: 2, fps: 25, width: 640, height: 360 }],
    ['a rotation by a quarter turn', { matrix: quarter }, { width: 360, height: 640 }],
    [
      'an edit list with an empty edit',
      { edits: [edit([300, -1, 0x10000], [900, 0, 0x10000])] },
      { duration: 1.5, fps: 25 },
    ],
    ['an edit list without a duration', { edits: [edit([0, 40, 0x10000])] }, { duration: 2 }],
    ['a variable frame rate', { stts: words(0, 2, 10, 40, 20, 80) }, { duration: 2, fps: 15 }],
  ])('measures a movie with %s, whose index follows the media', (_, made, expected) => {
    expect(measured(ftyp, box('mdat', 9000), movie(made))).toMatchObject(expected);
  });

  it('adds up the durations of fragments, from the track, the fragment or the samples', () => {
    const mvex = nest('mvex', box('mehd', words(0, 9999)), box('trex', words(0, 7, 1, 40, 0, 0)));
    const fragment = (tfhd: Buffer, trun: Buffer): Buffer =>
      nest('moof', nest('traf', box('tfhd', tfhd), box('trun', trun)));
    const fragments = [
      fragment(words(0, 7), words(0, 10)),
      fragment(words(0x9, 7, 0, 0, 80), words(0x1, 5, 0)),
      fragment(words(0, 7), words(0x305, 2, 0, 0, 100, 1, 100, 1)),
    ];
    expect(measured(ftyp, ...fragments, movie({ stts: words(0, 0), more: [mvex] }))).toMatchObject({
      duration: 1,
      fps: 17,
    });
  });

  it('returns no measurement for text or for a file without a track', () => {
    expect(measured(Buffer.from('a text'))).toBeUndefined();
    expect(measured(ftyp, box('moov', Buffer.alloc(0)), box('mdat', 50))).toBeUndefined();
  });

  it('stops reading after more entries than any clip contains', () => {
    const table = Buffer.from(movie({ stts: words(0, 0xffffffff) }));
    const size = 16 * 1024 * 1024;
    // All boxes around the table extend to the end of a sparse file.
    for (const type of ['moov', 'trak', 'mdia', 'minf', 'stbl', 'stts']) {
      const at = table.indexOf(type) - 4;
      table.writeUInt32BE(size - ftyp.length - at, at);
    }
    const file = openSync(path, 'w+');
    try {
      writeSync(file, Buffer.concat([ftyp, table]));
      ftruncateSync(file, size);
      expect(measureMp4(file)).toBeUndefined();
    } finally {
      closeSync(file);
    }
  });

  it('returns numbers that JSON can represent, for any boxes', () => {
    const end = Buffer.from(silent).indexOf('mdat');
    const change = fc.tuple(fc.nat(end), fc.integer({ min: 0, max: 255 }));
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 20 }), fc.nat(end), (changes, cut) => {
        const bytes = Buffer.from(silent);
        for (const [at, value] of changes) bytes[at] = value;
        for (const part of [bytes, bytes.subarray(0, cut)])
          for (const value of Object.values(measured(part) ?? {}))
            expect(typeof value === 'boolean' || (Number.isFinite(value) && value > 0)).toBe(true);
      }),
      { numRuns: 40 },
    );
  });

  it('returns a result for any nested boxes and any claimed sizes', () => {
    const types =
      'moov mvhd trak tkhd edts elst mdia mdhd hdlr minf stbl stsd stts mvex trex moof traf tfhd tfdt trun';
    const type = fc.constantFrom(...types.split(' '), 'pasp', 'uuid', 'mdat');
    const value = fc.constantFrom(0, 1, 7, 8, 0x01000000, 0x7fffffff, 0xffffffff, 0x305);
    const content = fc.array(value, { maxLength: 30 }).map((values) => words(...values));
    const { tree } = fc.letrec<{ tree: Buffer }>((tie) => ({
      tree: fc
        .tuple(type, fc.oneof({ maxDepth: 6 }, content, fc.array(tie('tree'), { maxLength: 4 })), value)
        .map(([name, inner, claimed]) => {
          const made = box(name, Buffer.isBuffer(inner) ? inner : Buffer.concat(inner));
          if (claimed === 7 || claimed > 0x7ffffff0) made.writeUInt32BE(claimed);
          return made;
        }),
    }));
    fc.assert(
      fc.property(fc.array(tree, { maxLength: 6 }), (boxes) => {
        for (const found of Object.values(measured(ftyp, ...boxes, movie({})) ?? {}))
          expect(typeof found === 'boolean' || (Number.isFinite(found) && found > 0)).toBe(true);
      }),
      { numRuns: 40 },
    );
  });

  it.each([
    ['only next to the codec', 640, 1280],
    ["in the track's header as well", 1280, 640],
  ])('applies a pixel aspect ratio that the file contains %s', (_, coded, width) => {
    const entry = Buffer.alloc(86);
    entry.writeUInt32BE(86 + 16);
    entry.write('avc1', 4);
    entry.writeUInt16BE(coded, 32);
    entry.writeUInt16BE(360, 34);
    const stsd = box('stsd', Buffer.concat([words(0, 1), entry, box('pasp', words(2, 1))]));
    expect(measured(ftyp, movie({ tables: [stsd] }))).toMatchObject({ width, height: 360 });
  });

  it('measures the duration of fragments by their timestamps', () => {
    const fragment = (time: number): Buffer =>
      nest(
        'moof',
        nest('traf', box('tfhd', words(0x8, 7, 40)), box('tfdt', words(0, time)), box('trun', words(0, 10))),
      );
    expect(measured(ftyp, fragment(1000), fragment(1500), movie({ stts: words(0, 0) }))).toMatchObject({
      duration: 0.9,
    });
  });
});
