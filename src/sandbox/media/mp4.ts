/** One coded picture, without its length prefix. `key` is true if decoding can start at this picture. */
export interface VideoSample {
  data: Uint8Array;
  isKey: boolean;
}

/** A mono track of MP3 frames with `frameSamples` samples each, at `sampleRate` samples per second. */
export interface AudioTrack {
  sampleRate: number;
  frameSamples: number;
  frames: readonly Uint8Array[];
}

/** An H.264 video track with its parameter sets and samples, and an optional audio track. */
export interface Film {
  width: number;
  height: number;
  fps: number;
  sequenceParameterSet: Uint8Array;
  pictureParameterSet: Uint8Array;
  samples: readonly VideoSample[];
  audio?: AudioTrack;
}

/** A video or audio track, with the data for the boxes around its samples. */
interface Track {
  timescale: number;
  /** The duration of each sample, in units of the timescale. */
  ticks: number;
  samples: readonly Uint8Array[];
  /**
   * The numbers, counted from 1, of the samples at which decoding can start; absent if decoding can start
   * at every sample.
   */
  keys?: readonly number[];
  /** The width in pixels; 0 for a track without a picture. */
  width: number;
  height: number;
  handler: 'vide' | 'soun';
  header: Uint8Array;
  entry: Uint8Array;
}

/** One second of a track: consecutive samples. */
interface Chunk {
  track: Track;
  samples: readonly Uint8Array[];
  offset: number;
}

const lengthPrefixBytes = 4;
/** Ticks per picture, a number that many muxers use. */
const ticksPerPicture = 512;
const identityMatrix = [0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000];

/**
 * Returns an MP4 file that can be played while it is still being downloaded: `ftyp`, `moov`, then `mdat`, in which
 * picture and sound alternate every second.
 */
export function muxMp4(film: Film): Uint8Array {
  const tracks = film.audio ? [videoTrack(film), audioTrack(film.audio)] : [videoTrack(film)];
  const head = box('ftyp', 'isom', u32(512), 'isom', 'iso2', 'avc1', 'mp41');
  // The data's offset depends on the size of the boxes before it. Their size does not depend on the offsets that they
  // contain, so an offset of 0 is enough to measure the boxes.
  const dataStart = head.length + movie(tracks, chunksOf(tracks, 0)).length + 8;
  const chunks = chunksOf(tracks, dataStart);
  return Buffer.concat([
    head,
    movie(tracks, chunks),
    box('mdat', ...chunks.flatMap(({ samples }) => samples)),
  ]);
}

function videoTrack(film: Film): Track {
  return {
    timescale: film.fps * ticksPerPicture,
    ticks: ticksPerPicture,
    samples: film.samples.map(({ data }) => Buffer.concat([u32(data.length), data])),
    keys: film.samples.flatMap(({ isKey }, index) => (isKey ? [index + 1] : [])),
    width: film.width,
    height: film.height,
    handler: 'vide',
    header: fullBox('vmhd', 1, zeros(8)),
    entry: videoEntry(film),
  };
}

function audioTrack({ sampleRate, frameSamples, frames }: AudioTrack): Track {
  return {
    timescale: sampleRate,
    ticks: frameSamples,
    samples: frames,
    width: 0,
    height: 0,
    handler: 'soun',
    header: fullBox('smhd', 0, zeros(4)),
    entry: audioEntry(sampleRate),
  };
}

function chunksOf(tracks: readonly Track[], start: number): Chunk[] {
  const chunks: Chunk[] = [];
  let offset = start;
  const firstAt = ({ timescale, ticks }: Track, second: number): number =>
    Math.ceil((second * timescale) / ticks);
  const seconds = Math.max(...tracks.map((track) => Math.ceil(durationOf(track) / track.timescale)));
  for (let second = 0; second < seconds; second++) {
    for (const track of tracks) {
      const samples = track.samples.slice(firstAt(track, second), firstAt(track, second + 1));
      if (samples.length > 0) chunks.push({ track, samples, offset });
      offset += sizeOf(samples);
    }
  }
  return chunks;
}

function durationOf({ samples, ticks }: Track): number {
  return samples.length * ticks;
}

function movie(tracks: readonly Track[], chunks: readonly Chunk[]): Uint8Array {
  const [first] = tracks;
  const timescale = first?.timescale ?? 1;
  const seconds = Math.max(...tracks.map((track) => durationOf(track) / track.timescale));
  const duration = Math.round(seconds * timescale);
  const header = fullBox(
    'mvhd',
    0,
    u32(0, 0, timescale, duration, 0x10000),
    u16(0x100),
    zeros(10),
    u32(...identityMatrix),
    zeros(24),
    u32(tracks.length + 1),
  );
  const boxes = tracks.map((track, index) => {
    const trackChunks = chunks.filter((chunk) => chunk.track === track);
    const length = Math.round((durationOf(track) / track.timescale) * timescale);
    return box('trak', trackHeader(track, index + 1, length), media(track, trackChunks));
  });
  return box('moov', header, ...boxes);
}

function trackHeader({ width, height, handler }: Track, id: number, duration: number): Uint8Array {
  const enabledInMovie = 3;
  const volume = u16(handler === 'soun' ? 0x100 : 0, 0);
  const size = u32(width * 0x10000, height * 0x10000);
  return fullBox(
    'tkhd',
    enabledInMovie,
    u32(0, 0, id, 0, duration),
    zeros(12),
    volume,
    u32(...identityMatrix),
    size,
  );
}

function media(track: Track, chunks: readonly Chunk[]): Uint8Array {
  const undetermined = 0x55c4;
  const dataInThisFile = 1;
  return box(
    'mdia',
    fullBox('mdhd', 0, u32(0, 0, track.timescale, durationOf(track)), u16(undetermined, 0)),
    fullBox('hdlr', 0, u32(0), track.handler, zeros(12), 'Handler\0'),
    box(
      'minf',
      track.header,
      box('dinf', fullBox('dref', 0, u32(1), fullBox('url ', dataInThisFile))),
      sampleTable(track, chunks),
    ),
  );
}

function sampleTable({ samples, keys, ticks, entry }: Track, chunks: readonly Chunk[]): Uint8Array {
  const sizes = samples.map(({ length }) => length);
  const counts = chunks.map((chunk) => chunk.samples.length);
  // One entry for each chunk whose number of samples differs from the previous chunk's.
  const runs = counts.flatMap((count, index) => (count === counts[index - 1] ? [] : [index + 1, count, 1]));
  return box(
    'stbl',
    fullBox('stsd', 0, u32(1), entry),
    fullBox('stts', 0, u32(1, samples.length, ticks)),
    ...(keys ? [fullBox('stss', 0, u32(keys.length, ...keys))] : []),
    fullBox('stsc', 0, u32(runs.length / 3, ...runs)),
    fullBox('stsz', 0, u32(0, sizes.length, ...sizes)),
    fullBox('stco', 0, u32(chunks.length, ...chunks.map(({ offset }) => offset))),
  );
}

function videoEntry({
  width,
  height,
  sequenceParameterSet: sps,
  pictureParameterSet: pps,
}: Film): Uint8Array {
  const dotsPerInch = 72 * 0x10000;
  const configuration = box(
    'avcC',
    new Uint8Array([1, ...sps.subarray(1, 4), 0xfc | (lengthPrefixBytes - 1), 0xe0 | 1]),
    u16(sps.length),
    sps,
    new Uint8Array([1]),
    u16(pps.length),
    pps,
  );
  const bt709 = box('colr', 'nclx', u16(1, 1, 1), zeros(1));
  return box(
    'avc1',
    ...[zeros(6), u16(1), zeros(16), u16(width, height), u32(dotsPerInch, dotsPerInch, 0), u16(1)],
    ...[zeros(32), u16(24, 0xffff), configuration, bt709, box('pasp', u32(1, 1))],
  );
}

/** Returns the `mp4a` entry for MP3 inside MP4: object type MPEG-1 audio, mono (ISO 14496-1 7.2.6). */
function audioEntry(sampleRate: number): Uint8Array {
  const mpeg1Audio = 0x6b;
  const audioStream = 0x15;
  const decoder = descriptor(4, new Uint8Array([mpeg1Audio, audioStream]), zeros(11));
  const stream = descriptor(3, u16(0), zeros(1), decoder, descriptor(6, new Uint8Array([2])));
  const format = [zeros(6), u16(1), zeros(8), u16(1, 16), zeros(4), u32(sampleRate * 0x10000)];
  return box('mp4a', ...format, fullBox('esds', 0, stream));
}

/** Returns a descriptor. Its body must be shorter than 128 bytes. */
function descriptor(tag: number, ...parts: Uint8Array[]): Uint8Array {
  const body = Buffer.concat(parts);
  return Buffer.concat([new Uint8Array([tag, body.length]), body]);
}

type Part = Uint8Array | string;

function box(type: string, ...parts: Part[]): Uint8Array {
  const body = parts.map((part) => (typeof part === 'string' ? new TextEncoder().encode(part) : part));
  return Buffer.concat([u32(8 + sizeOf(body)), new TextEncoder().encode(type), ...body]);
}

function fullBox(type: string, flags: number, ...parts: Part[]): Uint8Array {
  return box(type, u32(flags), ...parts);
}

function u16(...values: number[]): Uint8Array {
  const bytes = Buffer.alloc(values.length * 2);
  values.forEach((value, index) => bytes.writeUInt16BE(value, index * 2));
  return bytes;
}

function u32(...values: number[]): Uint8Array {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, index) => bytes.writeUInt32BE(value, index * 4));
  return bytes;
}

function sizeOf(parts: readonly Uint8Array[]): number {
  return parts.reduce((sum, part) => sum + part.length, 0);
}

function zeros(count: number): Uint8Array {
  return new Uint8Array(count);
}
