import { fstatSync } from 'node:fs';
import type { Delivered } from '../job.ts';
import { boxAt, HeaderReader, startsMp4 } from './mp4.ts';

// A clip has a few hundred boxes, and at most one entry a frame. More than this is no clip.
const maxSteps = 1_000_000;
const maxTracks = 64;

/**
 * Measures an MP4 (or QuickTime) file by its boxes: whole or fragmented, the index first or last (design 19). Reads only
 * the boxes that tell, a few KiB at a time.
 * @param file its descriptor, open for reading
 * @returns undefined if it is no MP4, has no track, or has more boxes and entries than any clip
 * @throws what the file system throws.
 */
export function measureMp4(file: number): Delivered | undefined {
  const reader = new HeaderReader(file);
  if (!startsMp4(reader.at(0))) return undefined;
  const movie = new Movie(reader);
  return movie.read(fstatSync(file).size) ? movie.measures() : undefined;
}

/** The content of a box, in bytes from the beginning of the file. */
interface Content {
  type: string;
  start: number;
  end: number;
}

class Track {
  kind = '';
  timescale = 0;
  /** By its media header, in ticks of the timescale. */
  headerTicks = 0;
  samples = 0;
  /** All samples together. */
  ticks = 0;
  /** The samples of fragments among them. */
  fragmentTicks = 0;
  /** By its edit list, without empty edits, in ticks of the movie; undefined if that says nothing. */
  editTicks: number | undefined;
  width = 0;
  height = 0;
  codedWidth = 0;
  codedHeight = 0;
  isTurned = false;
  /** Ticks of a fragment's sample that names none. */
  defaultTicks = 0;
}

class Movie {
  readonly #reader: HeaderReader;
  readonly #tracks: Track[] = [];
  readonly #byId = new Map<number, Track>();
  #steps = 0;
  #timescale = 0;
  #ticks = 0;
  #isTurned = false;

  constructor(reader: HeaderReader) {
    this.#reader = reader;
  }

  /** Reads all boxes; false if there are too many. */
  read(size: number): boolean {
    const file = { type: '', start: 0, end: size };
    const fragments: Content[] = [];
    this.#each(file, (box) => {
      if (box.type === 'moov') this.#readMovie(box);
      else if (box.type === 'moof') fragments.push(box);
    });
    // The index may follow the fragments.
    for (const fragment of fragments) this.#each(fragment, (box) => this.#readFragment(box));
    return this.#steps <= maxSteps;
  }

  measures(): Delivered | undefined {
    if (this.#tracks.length === 0) return undefined;
    const audio = this.#tracks.some(({ kind, samples }) => kind === 'soun' && samples > 0);
    const videos = this.#tracks.filter(({ kind }) => kind === 'vide');
    const video = videos.find(({ samples }) => samples > 0) ?? videos[0];
    const duration = rounded(video === undefined ? this.#ticks / this.#timescale : this.#secondsOf(video));
    if (video === undefined) return { ...(duration !== undefined && { duration }), audio };
    const isTurned = video.isTurned !== this.#isTurned;
    const size = [
      Math.round(video.width || video.codedWidth),
      Math.round(video.height || video.codedHeight),
    ] as const;
    const [width, height] = isTurned ? [size[1], size[0]] : size;
    const fps = rounded((video.samples * video.timescale) / video.ticks);
    return {
      ...(duration !== undefined && { duration }),
      ...(width > 0 && height > 0 && { width, height }),
      ...(fps !== undefined && { fps }),
      audio,
    };
  }

  #secondsOf({ timescale, ticks, fragmentTicks, editTicks, headerTicks }: Track): number {
    if (editTicks !== undefined && fragmentTicks === 0) return editTicks / this.#timescale;
    if (ticks > 0) return ticks / timescale;
    return headerTicks > 0 ? headerTicks / timescale : this.#ticks / this.#timescale;
  }

  /** Counts a step; false if there were too many, and whatever loops must end. */
  #step(): boolean {
    this.#steps += 1;
    return this.#steps <= maxSteps;
  }

  #each({ start, end }: Content, visit: (box: Content) => void): void {
    for (let at = start; at < end && this.#step();) {
      const box = boxAt(this.#reader.at(at), end - at);
      if (typeof box === 'string') return;
      visit({ type: box.type, start: at + box.headerSize, end: at + box.size });
      at += box.size;
    }
  }

  /** The first bytes of a box; undefined if it is too short for them. */
  #bytes({ start, end }: Content, length: number): Buffer | undefined {
    if (end - start < length) return undefined;
    const bytes = this.#reader.at(start, length);
    return bytes.length === length ? bytes : undefined;
  }

  // Version 1 of a header has dates, and a duration, of 64 bits.
  #isLong(box: Content): boolean {
    return this.#bytes(box, 1)?.[0] === 1;
  }

  #readMovie(moov: Content): void {
    this.#each(moov, (box) => {
      if (box.type === 'mvhd') this.#readMovieHeader(box);
      else if (box.type === 'trak') this.#readTrack(box);
      else if (box.type === 'mvex') this.#each(box, (each) => this.#readDefaults(each));
    });
  }

  #readMovieHeader(box: Content): void {
    const isLong = this.#isLong(box);
    const bytes = this.#bytes(box, isLong ? 84 : 72);
    if (bytes === undefined) return;
    this.#timescale = bytes.readUInt32BE(isLong ? 20 : 12);
    this.#ticks = isLong ? Number(bytes.readBigUInt64BE(24)) : bytes.readUInt32BE(16);
    this.#isTurned = isTurnedBy(bytes, isLong ? 48 : 36);
  }

  #readDefaults(box: Content): void {
    const bytes = this.#bytes(box, box.type === 'mehd' && this.#isLong(box) ? 12 : 8);
    if (bytes === undefined) return;
    if (box.type === 'mehd') {
      this.#ticks = bytes.length === 12 ? Number(bytes.readBigUInt64BE(4)) : bytes.readUInt32BE(4);
    } else if (box.type === 'trex') {
      const track = this.#byId.get(bytes.readUInt32BE(4));
      if (track !== undefined) track.defaultTicks = this.#bytes(box, 16)?.readUInt32BE(12) ?? 0;
    }
  }

  #readTrack(trak: Content): void {
    const track = new Track();
    if (this.#tracks.push(track) > maxTracks) this.#steps = Infinity;
    this.#each(trak, (box) => {
      if (box.type === 'tkhd') this.#readTrackHeader(box, track);
      else if (box.type === 'edts') this.#each(box, (each) => this.#readEdits(each, track));
      else if (box.type === 'mdia') this.#readMedia(box, track);
    });
  }

  #readTrackHeader(box: Content, track: Track): void {
    const isLong = this.#isLong(box);
    const bytes = this.#bytes(box, isLong ? 96 : 84);
    if (bytes === undefined) return;
    this.#byId.set(bytes.readUInt32BE(isLong ? 20 : 12), track);
    track.isTurned = isTurnedBy(bytes, isLong ? 52 : 40);
    track.width = bytes.readUInt32BE(bytes.length - 8) / 0x10000;
    track.height = bytes.readUInt32BE(bytes.length - 4) / 0x10000;
  }

  #readEdits(box: Content, track: Track): void {
    if (box.type !== 'elst') return;
    const isLong = this.#isLong(box);
    const size = isLong ? 20 : 12;
    let [sum, isOpen] = [0, false];
    this.#entries({ ...box, start: box.start + 4 }, size, (entry) => {
      const mediaTime = isLong ? Number(entry.readBigInt64BE(8)) : entry.readInt32BE(4);
      const ticks = isLong ? Number(entry.readBigUInt64BE(0)) : entry.readUInt32BE(0);
      if (mediaTime === -1) return;
      sum += ticks;
      // An edit of duration 0 lasts until the media ends.
      isOpen ||= ticks === 0;
    });
    if (sum > 0 && !isOpen) track.editTicks = sum;
  }

  #readMedia(mdia: Content, track: Track): void {
    this.#each(mdia, (box) => {
      if (box.type === 'mdhd') {
        const isLong = this.#isLong(box);
        const bytes = this.#bytes(box, isLong ? 32 : 20);
        track.timescale = bytes?.readUInt32BE(isLong ? 20 : 12) ?? 0;
        if (bytes !== undefined)
          track.headerTicks = isLong ? Number(bytes.readBigUInt64BE(24)) : bytes.readUInt32BE(16);
      } else if (box.type === 'hdlr') {
        track.kind = this.#bytes(box, 12)?.toString('latin1', 8) ?? '';
      } else if (box.type === 'minf') {
        this.#each(box, (minf) => {
          if (minf.type === 'stbl') this.#each(minf, (table) => this.#readTable(table, track));
        });
      }
    });
  }

  #readTable(box: Content, track: Track): void {
    if (box.type === 'stts') {
      this.#entries({ ...box, start: box.start + 4 }, 8, (entry) => {
        const count = entry.readUInt32BE(0);
        track.samples += count;
        track.ticks += count * entry.readUInt32BE(4);
      });
    } else if (box.type === 'stsd') {
      const bytes = this.#bytes(box, 44);
      track.codedWidth = bytes?.readUInt16BE(40) ?? 0;
      track.codedHeight = bytes?.readUInt16BE(42) ?? 0;
    }
  }

  #readFragment(traf: Content): void {
    if (traf.type !== 'traf') return;
    let track: Track | undefined;
    let defaultTicks = 0;
    this.#each(traf, (box) => {
      if (box.type === 'tfhd') {
        const head = this.#bytes(box, 8);
        const flags = head?.readUInt32BE(0) ?? 0;
        track = head && this.#byId.get(head.readUInt32BE(4));
        const at = 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0);
        const own = flags & 8 ? this.#bytes(box, at + 4)?.readUInt32BE(at) : undefined;
        defaultTicks = own ?? track?.defaultTicks ?? 0;
      } else if (box.type === 'trun' && track !== undefined) {
        this.#readRun(box, track, defaultTicks);
      }
    });
  }

  #readRun(box: Content, track: Track, defaultTicks: number): void {
    const head = this.#bytes(box, 8);
    if (head === undefined) return;
    const flags = head.readUInt32BE(0);
    const count = head.readUInt32BE(4);
    const fields = [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length;
    let [samples, ticks] = [count, count * defaultTicks];
    if (flags & 0x100) {
      const skipped = 4 * ((flags & 1 ? 1 : 0) + (flags & 4 ? 1 : 0));
      [samples, ticks] = [0, 0];
      this.#entries(
        { ...box, start: box.start + 4 },
        fields * 4,
        (entry) => {
          samples += 1;
          ticks += entry.readUInt32BE(0);
        },
        skipped,
      );
    }
    track.samples += samples;
    track.ticks += ticks;
    track.fragmentTicks += ticks;
  }

  /** Visits the entries of a table: a count, then `skipped` bytes, then the entries. Ends where the box does. */
  #entries(table: Content, size: number, visit: (entry: Buffer) => void, skipped = 0): void {
    const count = this.#bytes(table, 4)?.readUInt32BE(0) ?? 0;
    const first = table.start + 4 + skipped;
    for (let index = 0; index < count && this.#step(); index++) {
      const entry = this.#bytes({ ...table, start: first + index * size }, size);
      if (entry === undefined) return;
      visit(entry);
    }
  }
}

// The matrix of a header turns by a quarter if its first row points along the other axis.
function isTurnedBy(bytes: Buffer, at: number): boolean {
  return Math.abs(bytes.readInt32BE(at + 4)) > Math.abs(bytes.readInt32BE(at));
}

// To the millisecond, and to a thousandth of a frame. Undefined for what no file can mean.
function rounded(value: number): number | undefined {
  const result = Math.round(value * 1000) / 1000;
  return Number.isFinite(result) && result > 0 ? result : undefined;
}
