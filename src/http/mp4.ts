import { open, type FileHandle } from 'node:fs/promises';

/** What the walk over an MP4's top-level boxes found. */
export interface BoxWalk {
  /** True where the boxes end exactly where the file ends. */
  ok: boolean;
  /** Why not. */
  reason?: string;
  /** True where there is a box that a player needs (`moov`, or `meta` of an image). */
  playable: boolean;
}

const windowBytes = 4096;
const longestHeader = 16;

/** True for bytes that begin an MP4 (or QuickTime) file: `ftyp` at bytes 4 to 8. */
export function startsMp4(bytes: Uint8Array): boolean {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1', 4, 8) === 'ftyp';
}

/** {@link startsMp4} of a file. @throws what the file system throws. */
export async function startsMp4File(path: string): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(8), 0, 8, 0);
    return startsMp4(buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}

/**
 * Walks the top-level boxes of an MP4 file, 64-bit sizes and a last box of open size included. Reads headers
 * only. @throws what the file system throws.
 */
export async function walkBoxes(path: string): Promise<BoxWalk> {
  const file = await open(path, 'r');
  try {
    return await walk(new HeaderReader(file), (await file.stat()).size);
  } finally {
    await file.close();
  }
}

async function walk(reader: HeaderReader, size: number): Promise<BoxWalk> {
  let playable = false;
  for (let at = 0; at < size;) {
    const box = boxAt(await reader.at(at), size - at);
    if (typeof box === 'string') return { ok: false, reason: `${box} at byte ${at} of ${size}`, playable };
    playable ||= box.type === 'moov' || box.type === 'meta';
    at += box.size;
  }
  return size === 0 ? { ok: false, reason: 'the file is empty', playable } : { ok: true, playable };
}

interface Box {
  type: string;
  size: number;
}

// The box whose header these bytes are, or what is wrong with it.
function boxAt(header: Buffer, left: number): Box | string {
  if (header.length < 8) return 'a box header is cut';
  const type = header.toString('latin1', 4, 8);
  // Four printable characters; the copyright sign is QuickTime's.
  if (!/^[\x20-\x7e\xa9]{4}$/.test(type)) return 'there is no box';
  const stated = header.readUInt32BE(0);
  if (stated === 0) return { type, size: left };
  if (stated === 1 && header.length < longestHeader) return 'a box header is cut';
  const size = stated === 1 ? Number(header.readBigUInt64BE(8)) : stated;
  if (size < (stated === 1 ? longestHeader : 8)) return `box ${type} is smaller than its header`;
  return size > left ? `box ${type} goes beyond the end` : { type, size };
}

// A file of many small boxes is not read header by header.
class HeaderReader {
  readonly #file: FileHandle;
  readonly #window = Buffer.allocUnsafe(windowBytes);
  #start = 0;
  #length = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async at(position: number): Promise<Buffer> {
    const isInside = position >= this.#start && position + longestHeader <= this.#start + this.#length;
    if (!isInside) await this.#fill(position);
    return this.#window.subarray(
      position - this.#start,
      Math.min(position - this.#start + longestHeader, this.#length),
    );
  }

  async #fill(position: number): Promise<void> {
    this.#start = position;
    this.#length = 0;
    for (;;) {
      const { bytesRead } = await this.#file.read(
        this.#window,
        this.#length,
        windowBytes - this.#length,
        position + this.#length,
      );
      this.#length += bytesRead;
      if (bytesRead === 0 || this.#length >= longestHeader) return;
    }
  }
}
