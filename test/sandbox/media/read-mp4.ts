/** A box of an MP4 file: `start` and `end` delimit its content. */
interface Box {
  type: string;
  start: number;
  end: number;
}

/** What a player would learn from a file with one video track. */
export interface ReadMp4 {
  topLevel: string[];
  brands: string[];
  width: number;
  height: number;
  seconds: number;
  movieSeconds: number;
  sampleTicks: number;
  timescale: number;
  /** Of the sample entry, whole pixels. */
  codedWidth: number;
  codedHeight: number;
  sequenceParameterSet: Buffer;
  pictureParameterSet: Buffer;
  /** One NAL unit each. */
  samples: { data: Buffer; key: boolean }[];
}

/** Reads a file from its boxes alone, and throws where a size, a count or an offset does not add up. */
export function readMp4(bytes: Uint8Array): ReadMp4 {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const top = boxesIn(file, 0, file.length);
  const inside = (...path: string[]): Buffer => content(file, top, path);
  const [movieHeader, trackHeader] = [inside('moov', 'mvhd'), inside('moov', 'trak', 'tkhd')];
  const mediaHeader = inside('moov', 'trak', 'mdia', 'mdhd');
  const table = (type: string): Buffer => inside('moov', 'trak', 'mdia', 'minf', 'stbl', type);
  const entry = sampleEntry(table('stsd'));
  return {
    topLevel: top.map(({ type }) => type),
    brands: (inside('ftyp').toString('latin1').match(/.{4}/gs) ?? []).filter((_, index) => index !== 1),
    width: trackHeader.readUInt32BE(76) / 0x10000,
    height: trackHeader.readUInt32BE(80) / 0x10000,
    movieSeconds: movieHeader.readUInt32BE(16) / movieHeader.readUInt32BE(12),
    seconds: mediaHeader.readUInt32BE(16) / mediaHeader.readUInt32BE(12),
    timescale: mediaHeader.readUInt32BE(12),
    sampleTicks: table('stts').readUInt32BE(12),
    ...entry,
    samples: samplesOf(file, table, top),
  };
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

/** Reads the `avc1` entry of an `stsd` box, and the `avcC` box in it. */
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

function samplesOf(file: Buffer, table: (type: string) => Buffer, top: readonly Box[]): ReadMp4['samples'] {
  const [sizes, keys, times] = [table('stsz'), table('stss'), table('stts')];
  const keyNumbers = new Set(numbers(keys.subarray(8)));
  const mdat = top.find(({ type }) => type === 'mdat');
  let at = table('stco').readUInt32BE(8);
  if (at !== mdat?.start) throw new Error('the first chunk is not at the start of mdat');
  const samples = numbers(sizes.subarray(12)).map((size, index) => {
    if (file.readUInt32BE(at) !== size - 4) throw new Error(`sample ${index} is not one NAL unit`);
    const data = file.subarray(at + 4, at + size);
    at += size;
    return { data, key: keyNumbers.has(index + 1) };
  });
  if (at !== mdat.end) throw new Error('samples do not fill mdat');
  if (sizes.readUInt32BE(8) !== samples.length || times.readUInt32BE(8) !== samples.length) {
    throw new Error('the tables disagree on the number of samples');
  }
  if (keys.readUInt32BE(4) !== keyNumbers.size) throw new Error('stss is cut');
  return samples;
}

function numbers(table: Buffer): number[] {
  return Array.from({ length: table.length / 4 }, (_, index) => table.readUInt32BE(index * 4));
}
