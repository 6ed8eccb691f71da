/** One coded picture, without its length prefix; `key` when decoding can start at it. */
export interface VideoSample {
  data: Uint8Array;
  key: boolean;
}

/** What a player must know of an H.264 track before its samples. */
export interface VideoTrack {
  width: number;
  height: number;
  fps: number;
  sequenceParameterSet: Uint8Array;
  pictureParameterSet: Uint8Array;
  samples: readonly VideoSample[];
}

const LENGTH_PREFIX = 4;
/** Ticks per picture: a habit of muxers, so that other rates could share the scale. */
const TICKS = 512;
const MATRIX = [0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000];

/** An MP4 file that can start playing before it has arrived in full: `ftyp`, `moov`, then `mdat` to the end. */
export function muxMp4(track: VideoTrack): Uint8Array {
  const head = box('ftyp', 'isom', u32(512), 'isom', 'iso2', 'avc1', 'mp41');
  // The place of the data depends on the size of what precedes it, which does not depend on that place.
  const dataStart = head.length + movie(track, 0).length + 8;
  const prefixed = track.samples.flatMap(({ data }) => [u32(data.length), data]);
  return concat([head, movie(track, dataStart), box('mdat', ...prefixed)]);
}

function movie(track: VideoTrack, dataStart: number): Uint8Array {
  const duration = track.samples.length * TICKS;
  return box(
    'moov',
    fullBox(
      'mvhd',
      0,
      u32(0, 0, track.fps * TICKS, duration, 0x10000),
      u16(0x100),
      zeros(10),
      u32(...MATRIX),
      zeros(24),
      u32(2),
    ),
    box('trak', trackHeader(track, duration), media(track, duration, dataStart)),
  );
}

function trackHeader({ width, height }: VideoTrack, duration: number): Uint8Array {
  const enabledInMovie = 3;
  const size = u32(width * 0x10000, height * 0x10000);
  return fullBox('tkhd', enabledInMovie, u32(0, 0, 1, 0, duration), zeros(16), u32(...MATRIX), size);
}

function media(track: VideoTrack, duration: number, dataStart: number): Uint8Array {
  const undetermined = 0x55c4;
  const dataInThisFile = 1;
  return box(
    'mdia',
    fullBox('mdhd', 0, u32(0, 0, track.fps * TICKS, duration), u16(undetermined, 0)),
    fullBox('hdlr', 0, u32(0), 'vide', zeros(12), 'VideoHandler\0'),
    box(
      'minf',
      fullBox('vmhd', 1, zeros(8)),
      box('dinf', fullBox('dref', 0, u32(1), fullBox('url ', dataInThisFile))),
      sampleTable(track, dataStart),
    ),
  );
}

function sampleTable(track: VideoTrack, dataStart: number): Uint8Array {
  const { samples } = track;
  const sizes = samples.map(({ data }) => data.length + LENGTH_PREFIX);
  const keys = samples.flatMap(({ key }, index) => (key ? [index + 1] : []));
  return box(
    'stbl',
    fullBox('stsd', 0, u32(1), sampleEntry(track)),
    fullBox('stts', 0, u32(1, samples.length, TICKS)),
    fullBox('stss', 0, u32(keys.length, ...keys)),
    fullBox('stsc', 0, u32(1, 1, samples.length, 1)),
    fullBox('stsz', 0, u32(0, sizes.length, ...sizes)),
    fullBox('stco', 0, u32(1, dataStart)),
  );
}

function sampleEntry({
  width,
  height,
  sequenceParameterSet: sps,
  pictureParameterSet: pps,
}: VideoTrack): Uint8Array {
  const dotsPerInch = 72 * 0x10000;
  const configuration = box(
    'avcC',
    new Uint8Array([1, ...sps.subarray(1, 4), 0xfc | (LENGTH_PREFIX - 1), 0xe0 | 1]),
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

type Part = Uint8Array | string;

function box(type: string, ...parts: Part[]): Uint8Array {
  const body = parts.map((part) => (typeof part === 'string' ? new TextEncoder().encode(part) : part));
  const size = body.reduce((sum, part) => sum + part.length, 8);
  return concat([u32(size), new TextEncoder().encode(type), ...body]);
}

function fullBox(type: string, flags: number, ...parts: Part[]): Uint8Array {
  return box(type, u32(flags), ...parts);
}

function u16(...values: number[]): Uint8Array {
  return new Uint8Array(values.flatMap((value) => [value >>> 8, value]));
}

function u32(...values: number[]): Uint8Array {
  return new Uint8Array(values.flatMap((value) => [value >>> 24, value >>> 16, value >>> 8, value]));
}

function zeros(count: number): Uint8Array {
  return new Uint8Array(count);
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
