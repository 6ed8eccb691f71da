/** A box in an MP4 file. `start` and `end` are the offsets of its content. */
interface Box {
  type: string;
  start: number;
  end: number;
}

/** The properties of an audio track that contains MP3 frames. */
export interface ReadAudio {
  sampleRate: number;
  channels: number;
  seconds: number;
  frames: Buffer[];
}

/** The properties of a file with one video track and at most one audio track. */
export interface ReadMp4 {
  topLevel: string[];
  brands: string[];
  width: number;
  height: number;
  seconds: number;
  movieSeconds: number;
  sampleTicks: number;
  timescale: number;
  /** The width in the sample entry, in whole pixels. */
  codedWidth: number;
  codedHeight: number;
  sequenceParameterSet: Buffer;
  pictureParameterSet: Buffer;
  /** Each sample is one NAL unit. */
  samples: { data: Buffer; key: boolean }[];
  audio?: ReadAudio;
}

type Table = (type: string) => Buffer;

/** Reads a file from its boxes alone. Throws if a size, count or offset is inconsistent. */
export function readMp4(bytes: Uint8Array): ReadMp4 {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const top = boxesIn(file, 0, file.length);
  const inside = (...path: string[]): Buffer => content(file, top, path);
  const movieHeader = inside('moov', 'mvhd');
  const movie = top.find(({ type }) => type === 'moov');
  const tracks = boxesIn(file, movie?.start ?? 0, movie?.end ?? 0).filter(({ type }) => type === 'trak');
  const [video, audio] = tracks.map(({ start, end }) => {
    return (...path: string[]) => content(file, boxesIn(file, start, end), path);
  });
  if (video === undefined || tracks.length > 2) throw new Error(`${tracks.length} tracks`);
  const [trackHeader, mediaHeader] = [video('tkhd'), video('mdia', 'mdhd')];
  const table: Table = (type) => video('mdia', 'minf', 'stbl', type);
  const samples = spansOf(table);
  const frames = audio === undefined ? [] : spansOf((type) => audio('mdia', 'minf', 'stbl', type));
  fillsMedia([...samples, ...frames], top);
  return {
    topLevel: top.map(({ type }) => type),
    brands: (inside('ftyp').toString('latin1').match(/.{4}/gs) ?? []).filter((_, index) => index !== 1),
    width: trackHeader.readUInt32BE(76) / 0x10000,
    height: trackHeader.readUInt32BE(80) / 0x10000,
    movieSeconds: movieHeader.readUInt32BE(16) / movieHeader.readUInt32BE(12),
    seconds: mediaHeader.readUInt32BE(16) / mediaHeader.readUInt32BE(12),
    timescale: mediaHeader.readUInt32BE(12),
    sampleTicks: table('stts').readUInt32BE(12),
    ...sampleEntry(table('stsd')),
    samples: samplesOf(file, table, samples),
    ...(audio && { audio: audioOf(file, audio, frames) }),
  };
}

function audioOf(file: Buffer, audio: (...path: string[]) => Buffer, frames: readonly Span[]): ReadAudio {
  const [entry, header] = [audio('mdia', 'minf', 'stbl', 'stsd'), audio('mdia', 'mdhd')];
  if (entry.toString('latin1', 12, 16) !== 'mp4a') throw new Error('the sound is not mp4a');
  const decoder = entry.indexOf(Buffer.from([4, 13]));
  if (entry[decoder + 2] !== 0x6b) throw new Error('the sound is not MPEG-1 audio');
  return {
    channels: entry.readUInt16BE(32),
    sampleRate: entry.readUInt32BE(40) / 0x10000,
    seconds: header.readUInt32BE(16) / header.readUInt32BE(12),
    frames: frames.map(({ start, end }) => file.subarray(start, end)),
  };
}

interface Span {
  start: number;
  end: number;
}

/** Returns the location of each sample in a track, computed from the chunks. */
function spansOf(table: Table): Span[] {
  const [runs, offsets] = [numbers(table('stsc').subarray(8)), numbers(table('stco').subarray(8))];
  const sizes = numbers(table('stsz').subarray(12));
  if (sizes.length !== table('stsz').readUInt32BE(8)) throw new Error('stsz is cut');
  let count = 0;
  let next = 0;
  const spans = offsets.flatMap((offset, chunk) => {
    const run = runs.findIndex((first, index) => index % 3 === 0 && first === chunk + 1);
    if (run >= 0) count = runs[run + 1] ?? 0;
    let at = offset;
    return sizes.slice(next, (next += count)).map((size) => ({ start: at, end: (at += size) }));
  });
  if (spans.length !== sizes.length) throw new Error('the chunks do not hold every sample');
  return spans;
}

function fillsMedia(spans: readonly Span[], top: readonly Box[]): void {
  const mdat = top.find(({ type }) => type === 'mdat');
  let at = mdat?.start;
  for (const { start, end } of spans.toSorted((left, right) => left.start - right.start)) {
    if (start !== at) throw new Error(`a sample starts at ${start}, not at ${at ?? 'a place in mdat'}`);
    at = end;
  }
  if (at !== mdat?.end) throw new Error('samples do not fill mdat');
}

function boxesIn(file: Buffer, start: number, end: number): Box[] {
  const boxes: Box[] = [];
  for (let at = start; at < end;) {
    const size = file.readUInt32BE(at);
    if (size < 8 || at + size > end) throw new Error(`box of ${size} bytes at ${at}, ${end - at} left`);
    boxes.push({ type: file.toString('latin1', at + 4, at + 8), start: at + 8, end: at + size });
    at += size;
  }
  return boxes;
}

function content(file: Buffer, boxes: readonly Box[], [type, ...rest]: readonly string[]): Buffer {
  const found = boxes.find((candidate) => candidate.type === type);
  if (found === undefined) throw new Error(`no ${String(type)} box`);
  if (rest.length === 0) return file.subarray(found.start, found.end);
  return content(file, boxesIn(file, found.start, found.end), rest);
}

/** Reads the `avc1` entry of an `stsd` box, and the entry's `avcC` box. */
function sampleEntry(
  stsd: Buffer,
): Pick<ReadMp4, 'codedWidth' | 'codedHeight' | 'sequenceParameterSet' | 'pictureParameterSet'> {
  const entryHeader = 78;
  const [entry] = boxesIn(stsd, 8, stsd.length);
  if (entry?.type !== 'avc1') throw new Error('the sample entry is not avc1');
  const children = boxesIn(stsd, entry.start + entryHeader, entry.end);
  return {
    codedWidth: stsd.readUInt16BE(entry.start + 24),
    codedHeight: stsd.readUInt16BE(entry.start + 26),
    ...decoderConfiguration(content(stsd, children, ['avcC'])),
  };
}

function decoderConfiguration(avcC: Buffer): Pick<ReadMp4, 'sequenceParameterSet' | 'pictureParameterSet'> {
  const spsEnd = 8 + avcC.readUInt16BE(6);
  const ppsEnd = spsEnd + 3 + avcC.readUInt16BE(spsEnd + 1);
  if (avcC[0] !== 1 || avcC[4] !== 0xff || avcC[5] !== 0xe1 || avcC[spsEnd] !== 1 || ppsEnd !== avcC.length) {
    throw new Error('avcC is not one SPS and one PPS with lengths of four bytes');
  }
  if (!avcC.subarray(1, 4).equals(avcC.subarray(9, 12)))
    throw new Error('avcC and SPS differ in profile or level');
  return {
    sequenceParameterSet: avcC.subarray(8, spsEnd),
    pictureParameterSet: avcC.subarray(spsEnd + 3, ppsEnd),
  };
}

function samplesOf(file: Buffer, table: Table, spans: readonly Span[]): ReadMp4['samples'] {
  const [keys, times] = [table('stss'), table('stts')];
  const keyNumbers = new Set(numbers(keys.subarray(8)));
  if (times.readUInt32BE(8) !== spans.length) throw new Error('the tables disagree on the number of samples');
  if (keys.readUInt32BE(4) !== keyNumbers.size) throw new Error('stss is cut');
  return spans.map(({ start, end }, index) => {
    if (file.readUInt32BE(start) !== end - start - 4) throw new Error(`sample ${index} is not one NAL unit`);
    return { data: file.subarray(start + 4, end), key: keyNumbers.has(index + 1) };
  });
}

function numbers(table: Buffer): number[] {
  return Array.from({ length: table.length / 4 }, (_, index) => table.readUInt32BE(index * 4));
}
