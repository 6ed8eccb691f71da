import { boxAt, HeaderReader, maxBoxes } from './mp4.ts';

// A clip has a few hundred boxes, and at most one entry a frame.
const maxSteps = maxBoxes;

/** The content of a box, in bytes from the beginning of the file. */
export interface Content {
  type: string;
  start: number;
  end: number;
}

/**
 * Reads the boxes of a file and the entries of their tables, a few KiB at a time. Stops at invalid boxes, and after
 * more boxes and entries than any clip has.
 */
export class BoxWalk {
  readonly #reader: HeaderReader;
  #steps = 0;

  /** @param file its descriptor, open for reading */
  constructor(file: number) {
    this.#reader = new HeaderReader(file);
  }

  /** Whether the file had too many boxes and entries to be a clip. */
  get isExhausted(): boolean {
    return this.#steps > maxSteps;
  }

  /** Ends the walk. */
  exhaust(): void {
    this.#steps = Infinity;
  }

  /** Visits each box of a content. */
  each({ start, end }: Pick<Content, 'start' | 'end'>, visit: (box: Content) => void): void {
    for (let at = start; at < end && this.#step();) {
      const box = boxAt(this.#reader.at(at), end - at);
      if (typeof box === 'string') return;
      visit({ type: box.type, start: at + box.headerSize, end: at + box.size });
      at += box.size;
    }
  }

  /** Returns the first `length` bytes of a box (at most 4096), valid until the next call; undefined if it is shorter. */
  bytes({ start, end }: Pick<Content, 'start' | 'end'>, length: number): Buffer | undefined {
    if (end - start < length) return undefined;
    const bytes = this.#reader.at(start, length);
    return bytes.length === length ? bytes : undefined;
  }

  /** Whether a box has version 1: its times have 64 bits. */
  isLong(box: Content): boolean {
    return this.bytes(box, 1)?.[0] === 1;
  }

  /** Visits the entries of a table: a count, then `skipped` bytes, then the entries. Ends at the end of the box. */
  entries(table: Content, size: number, visit: (entry: Buffer) => void, skipped = 0): void {
    const count = this.bytes(table, 4)?.readUInt32BE(0) ?? 0;
    const first = table.start + 4 + skipped;
    for (let index = 0; index < count && this.#step(); index++) {
      const entry = this.bytes({ start: first + index * size, end: table.end }, size);
      if (entry === undefined) return;
      visit(entry);
    }
  }

  /** Counts a step; false if there were too many. */
  #step(): boolean {
    this.#steps += 1;
    return !this.isExhausted;
  }
}
