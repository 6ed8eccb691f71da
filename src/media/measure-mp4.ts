import { fstatSync } from 'node:fs';
import type { Delivered } from '../job.ts';
import { BoxWalk, type Content, HeaderReader, startsMp4 } from './mp4.ts';

const maxTracks = 64;

/**
 * Measures an MP4 (or QuickTime) file from its boxes. The file may be whole or fragmented, with the index first or last
 * (design 19). Reads only the relevant boxes, a few KiB at a time.
 * @param file the file's descriptor, open for reading
 * @returns undefined if the file is not an MP4, has no track, or has too many boxes and table entries to be a clip
 * @throws file system errors.
 */
export function measureMp4(file: number): Delivered | undefined {
  if (!startsMp4(new HeaderReader(file).at(0))) return undefined;
  const movie = new Movie(new BoxWalk(file));
  return movie.read(fstatSync(file).size) ? movie.measurements() : undefined;
}

class Track {
  kind = '';
  timescale = 0;
  /** The duration in the media header, in ticks of the timescale. */
  headerTicks = 0;
  samples = 0;
  /** The total duration of all samples, in ticks. */
  ticks = 0;
  /** The duration of the samples in fragments, in ticks. */
  fragmentTicks = 0;
  /**
   * The duration of the edit list without its empty edits, in ticks of the movie's timescale; undefined if the list
   * does not specify a duration.
   */
  editTicks: number | undefined;
  width = 0;
  height = 0;
  codedWidth = 0;
  codedHeight = 0;
  /** The width of a pixel divided by its height. */
  pixelRatio = 1;
  /**
   * The start and end of the fragments on the track's timeline, in ticks. The total duration of their samples may be
   * shorter.
   */
  fragmentStart = Infinity;
  fragmentEnd = 0;
  isRotated = false;
  /** The default duration of a sample in a fragment, in ticks. */
  defaultTicks = 0;
}

class Movie {
  readonly #walk: BoxWalk;
  readonly #tracks: Track[] = [];
  readonly #byId = new Map<number, Track>();
  #timescale = 0;
  #ticks = 0;
  #isRotated = false;

  constructor(walk: BoxWalk) {
    this.#walk = walk;
  }

  /** Reads all boxes. Returns false if there are too many. */
  read(size: number): boolean {
    const file = { start: 0, end: size };
    this.#walk.each(file, (box) => {
      if (box.type === 'moov') this.#readMovie(box);
    });
    // Read the fragments in a second pass, because the index may follow them.
    this.#walk.each(file, (box) => {
      if (box.type === 'moof') this.#walk.each(box, (each) => this.#readFragment(each));
    });
    return !this.#walk.isExhausted;
  }

  measurements(): Delivered | undefined {
    if (this.#tracks.length === 0) return undefined;
    const audio = this.#tracks.some(({ kind, samples }) => kind === 'soun' && samples > 0);
    const videos = this.#tracks.filter(({ kind }) => kind === 'vide');
    const video = videos.find(({ samples }) => samples > 0) ?? videos[0];
    const duration = roundToThousandth(
      video === undefined ? this.#ticks / this.#timescale : this.#secondsOf(video),
    );
    if (video === undefined) return { ...(duration !== undefined && { duration }), audio };
    const isRotated = video.isRotated !== this.#isRotated;
    const size = displaySize(video);
    const [width, height] = isRotated ? [size[1], size[0]] : size;
    const fps = roundToThousandth((video.samples * video.timescale) / video.ticks);
    return {
      ...(duration !== undefined && { duration }),
      ...(width > 0 && height > 0 && { width, height }),
      ...(fps !== undefined && { fps }),
      audio,
    };
  }

  #secondsOf(track: Track): number {
    const { timescale, ticks, fragmentTicks, fragmentStart, fragmentEnd, editTicks, headerTicks } = track;
    if (editTicks !== undefined && fragmentTicks === 0) return editTicks / this.#timescale;
    if (fragmentTicks > 0) {
      const start = ticks > fragmentTicks ? 0 : fragmentStart;
      return Math.max(ticks, fragmentEnd - start) / timescale;
    }
    if (ticks > 0) return ticks / timescale;
    return headerTicks > 0 ? headerTicks / timescale : this.#ticks / this.#timescale;
  }

  #readMovie(moov: Content): void {
    this.#walk.each(moov, (box) => {
      if (box.type === 'mvhd') this.#readMovieHeader(box);
      else if (box.type === 'trak') this.#readTrack(box);
      else if (box.type === 'mvex') this.#walk.each(box, (each) => this.#readDefaults(each));
    });
  }

  #readMovieHeader(box: Content): void {
    const isLong = this.#walk.isLong(box);
    const bytes = this.#walk.bytes(box, isLong ? 84 : 72);
    if (bytes === undefined) return;
    this.#timescale = bytes.readUInt32BE(isLong ? 20 : 12);
    this.#ticks = isLong ? Number(bytes.readBigUInt64BE(24)) : bytes.readUInt32BE(16);
    this.#isRotated = isRotatedBy(bytes, isLong ? 48 : 36);
  }

  #readDefaults(box: Content): void {
    if (box.type === 'mehd') this.#ticks = this.#timeOf(box) ?? this.#ticks;
    if (box.type !== 'trex') return;
    const bytes = this.#walk.bytes(box, 8);
    const track = bytes && this.#byId.get(bytes.readUInt32BE(4));
    if (track !== undefined) track.defaultTicks = this.#walk.bytes(box, 16)?.readUInt32BE(12) ?? 0;
  }

  #readTrack(trak: Content): void {
    const track = new Track();
    if (this.#tracks.push(track) > maxTracks) this.#walk.exhaust();
    this.#walk.each(trak, (box) => {
      if (box.type === 'tkhd') this.#readTrackHeader(box, track);
      else if (box.type === 'edts') this.#walk.each(box, (each) => this.#readEdits(each, track));
      else if (box.type === 'mdia') this.#readMedia(box, track);
    });
  }

  #readTrackHeader(box: Content, track: Track): void {
    const isLong = this.#walk.isLong(box);
    const bytes = this.#walk.bytes(box, isLong ? 96 : 84);
    if (bytes === undefined) return;
    this.#byId.set(bytes.readUInt32BE(isLong ? 20 : 12), track);
    track.isRotated = isRotatedBy(bytes, isLong ? 52 : 40);
    track.width = bytes.readUInt32BE(bytes.length - 8) / 0x10000;
    track.height = bytes.readUInt32BE(bytes.length - 4) / 0x10000;
  }

  #readEdits(box: Content, track: Track): void {
    if (box.type !== 'elst') return;
    const isLong = this.#walk.isLong(box);
    const size = isLong ? 20 : 12;
    let [sum, isOpenEnded] = [0, false];
    this.#walk.entries({ ...box, start: box.start + 4 }, size, (entry) => {
      const mediaTime = isLong ? Number(entry.readBigInt64BE(8)) : entry.readInt32BE(4);
      const ticks = isLong ? Number(entry.readBigUInt64BE(0)) : entry.readUInt32BE(0);
      if (mediaTime === -1) return;
      sum += ticks;
      // An edit of duration 0 lasts until the media ends.
      isOpenEnded ||= ticks === 0;
    });
    if (sum > 0 && !isOpenEnded) track.editTicks = sum;
  }

  #readMedia(mdia: Content, track: Track): void {
    this.#walk.each(mdia, (box) => {
      if (box.type === 'mdhd') {
        const isLong = this.#walk.isLong(box);
        const bytes = this.#walk.bytes(box, isLong ? 32 : 20);
        track.timescale = bytes?.readUInt32BE(isLong ? 20 : 12) ?? 0;
        if (bytes !== undefined)
          track.headerTicks = isLong ? Number(bytes.readBigUInt64BE(24)) : bytes.readUInt32BE(16);
      } else if (box.type === 'hdlr') {
        track.kind = this.#walk.bytes(box, 12)?.toString('latin1', 8) ?? '';
      } else if (box.type === 'minf') {
        this.#walk.each(box, (minf) => {
          if (minf.type === 'stbl') this.#walk.each(minf, (table) => this.#readTable(table, track));
        });
      }
    });
  }

  #readTable(box: Content, track: Track): void {
    if (box.type === 'stts') {
      this.#walk.entries({ ...box, start: box.start + 4 }, 8, (entry) => {
        const count = entry.readUInt32BE(0);
        track.samples += count;
        track.ticks += count * entry.readUInt32BE(4);
      });
    } else if (box.type === 'stsd') {
      this.#readCoding(box, track);
    }
  }

  #readCoding(stsd: Content, track: Track): void {
    const bytes = this.#walk.bytes(stsd, 44);
    if (bytes === undefined) return;
    track.codedWidth = bytes.readUInt16BE(40);
    track.codedHeight = bytes.readUInt16BE(42);
    const end = Math.min(stsd.end, stsd.start + 8 + bytes.readUInt32BE(8));
    this.#walk.each({ start: stsd.start + 94, end }, (box) => {
      const pixelShape = box.type === 'pasp' ? this.#walk.bytes(box, 8) : undefined;
      const ratio = pixelShape && pixelShape.readUInt32BE(0) / pixelShape.readUInt32BE(4);
      if (ratio !== undefined && ratio > 0 && Number.isFinite(ratio)) track.pixelRatio = ratio;
    });
  }

  #readFragment(traf: Content): void {
    if (traf.type !== 'traf') return;
    let track: Track | undefined;
    let defaultTicks = 0;
    let time: number | undefined;
    this.#walk.each(traf, (box) => {
      if (box.type === 'tfhd') {
        const head = this.#walk.bytes(box, 8);
        const flags = head?.readUInt32BE(0) ?? 0;
        track = head && this.#byId.get(head.readUInt32BE(4));
        const at = 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0);
        const ownTicks = flags & 8 ? this.#walk.bytes(box, at + 4)?.readUInt32BE(at) : undefined;
        defaultTicks = ownTicks ?? track?.defaultTicks ?? 0;
      } else if (box.type === 'tfdt') {
        time = this.#timeOf(box);
      } else if (box.type === 'trun' && track !== undefined) {
        const start = time;
        const ticks = this.#readRun(box, track, defaultTicks);
        if (start === undefined) return;
        time = start + ticks;
        track.fragmentStart = Math.min(track.fragmentStart, start);
        track.fragmentEnd = Math.max(track.fragmentEnd, time);
      }
    });
  }

  /** Returns the time or duration that a `tfdt` or `mehd` begins with, in ticks; undefined if the box is truncated. */
  #timeOf(box: Content): number | undefined {
    const bytes = this.#walk.bytes(box, this.#walk.isLong(box) ? 12 : 8);
    if (bytes === undefined) return undefined;
    return bytes.length === 12 ? Number(bytes.readBigUInt64BE(4)) : bytes.readUInt32BE(4);
  }

  /** Reads a run of samples. Returns its duration, in ticks. */
  #readRun(box: Content, track: Track, defaultTicks: number): number {
    const head = this.#walk.bytes(box, 8);
    if (head === undefined) return 0;
    const flags = head.readUInt32BE(0);
    const count = head.readUInt32BE(4);
    const fields = [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length;
    let [samples, ticks] = [count, count * defaultTicks];
    if (flags & 0x100) {
      const skippedBytes = 4 * ((flags & 1 ? 1 : 0) + (flags & 4 ? 1 : 0));
      [samples, ticks] = [0, 0];
      this.#walk.entries(
        { ...box, start: box.start + 4 },
        fields * 4,
        (entry) => {
          samples += 1;
          ticks += entry.readUInt32BE(0);
        },
        skippedBytes,
      );
    }
    track.samples += samples;
    track.ticks += ticks;
    track.fragmentTicks += ticks;
    return ticks;
  }
}

// Returns the displayed width and height. Some encoders apply the pixel aspect ratio to the size in the track header.
// Others specify the ratio only next to the codec.
function displaySize({ width, height, codedWidth, codedHeight, pixelRatio }: Track): [number, number] {
  const [displayWidth, displayHeight] = [width || codedWidth, height || codedHeight];
  const isCodedSize = displayWidth === codedWidth && displayHeight === codedHeight;
  return [Math.round(isCodedSize ? displayWidth * pixelRatio : displayWidth), Math.round(displayHeight)];
}

// Whether a matrix rotates by 90 degrees. If so, its first row points along the other axis.
function isRotatedBy(bytes: Buffer, at: number): boolean {
  return Math.abs(bytes.readInt32BE(at + 4)) > Math.abs(bytes.readInt32BE(at));
}

// Rounds a duration to a millisecond, or a frame rate to a thousandth of a frame. Returns undefined for an impossible
// value.
function roundToThousandth(value: number): number | undefined {
  const result = Math.round(value * 1000) / 1000;
  return Number.isFinite(result) && result > 0 ? result : undefined;
}
