import type { Ids } from './job-id.ts';
import { idLength } from './line-table.ts';

/**
 * The ids that stand at places of some bytes, each once. There may be hundreds of thousands, of which few are looked at: none is
 * made a string before it is asked for.
 */
export class IdTable {
  readonly #bytes: Buffer;
  /** By hash: 1 + the place of an id; 0 where there is none. */
  readonly #places: Int32Array;
  readonly #isRemoved: Uint8Array;
  readonly #slots: Int32Array;
  #count = 0;
  #isSorted = true;

  /** @param most so many ids are added at most */
  constructor(bytes: Buffer, most: number) {
    const size = 2 ** Math.ceil(Math.log2(2 * most + 2));
    this.#bytes = bytes;
    this.#places = new Int32Array(size);
    this.#isRemoved = new Uint8Array(size);
    this.#slots = new Int32Array(most);
  }

  /** Adds the id at a place, also where it was removed before. */
  add(place: number): void {
    const slot = this.#slotOf(this.#bytes, place);
    this.#isRemoved[slot] = 0;
    if (this.#places[slot] !== 0) return;
    this.#places[slot] = place + 1;
    const before = this.#count === 0 ? place : this.#placeIn(this.#slots[this.#count - 1]);
    this.#isSorted &&= this.#compare(before, this.#bytes, place) <= 0;
    this.#slots[this.#count] = slot;
    this.#count += 1;
  }

  /** Takes out the id at a place of any bytes. */
  remove(bytes: Buffer, place: number): void {
    this.#isRemoved[this.#slotOf(bytes, place)] = 1;
  }

  /** The highest first. */
  ids(): Ids {
    const places = new Int32Array(this.#count);
    let count = 0;
    for (let n = this.#count - 1; n >= 0; n -= 1) {
      const slot = this.#slots[n];
      if (slot === undefined || this.#isRemoved[slot] === 1) continue;
      places[count] = this.#placeIn(slot);
      count += 1;
    }
    const kept = places.subarray(0, count);
    // Processes that submit at once may add theirs in another order; an array is sorted in one go where little is amiss.
    if (!this.#isSorted) kept.set([...kept].sort((one, other) => this.#compare(other, this.#bytes, one)));
    const idAt = (place: number): string => this.#bytes.toString('latin1', place, place + idLength);
    return {
      at: (index) => {
        const place = kept.at(index);
        return place === undefined ? undefined : idAt(place);
      },
      length: count,
      slice: (start, end) => Array.from(kept.subarray(start, end), idAt),
    };
  }

  #placeIn(slot = 0): number {
    return (this.#places[slot] ?? 0) - 1;
  }

  // Where an id stands in the table, or would.
  #slotOf(bytes: Buffer, place: number): number {
    const mask = this.#places.length - 1;
    let hash = 0;
    for (let at = place + idLength - 8; at < place + idLength; at += 1)
      hash = (Math.imul(hash, 31) + (bytes[at] ?? 0)) | 0;
    let slot = (hash ^ (hash >>> 15)) & mask;
    while (this.#places[slot] !== 0 && this.#compare(this.#placeIn(slot), bytes, place) !== 0)
      slot = (slot + 1) & mask;
    return slot;
  }

  #compare(own: number, bytes: Buffer, place: number): number {
    for (let at = 0; at < idLength; at += 1) {
      const difference = (this.#bytes[own + at] ?? 0) - (bytes[place + at] ?? 0);
      if (difference !== 0) return difference;
    }
    return 0;
  }
}
