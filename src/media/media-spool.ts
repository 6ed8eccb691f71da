import type { SpooledMedia } from '../exchange.ts';
import { ByteBuffer } from './buffers.ts';
import { SpoolBuffers, SpooledString, type MediaSink } from './spooled-string.ts';

export type { MediaSink };

/** How a {@link MediaSpool} splits a body. */
export interface MediaSpoolOptions {
  /** Names of the members whose strings are media, at any depth. */
  members: readonly string[];
  /** Opens the destination of the media with this index, counted from 0 in order of arrival. */
  openSink: (index: number) => Promise<MediaSink & { path?: string }>;
  /** The maximum length of the text, bytes. A longer body overflows. */
  maxTextBytes: number;
  /**
   * Strings of up to this many bytes, as encoded in the JSON, stay text. Default 0: every non-empty string of a watched
   * member is media, so that none can imitate a placeholder.
   */
  threshold?: number;
}

/** A body that was split. */
export interface SpooledBody {
  /** The JSON with `"mgw-spool:<index>"` in place of each string that was diverted; cut if the body was. */
  text: string;
  spooled: SpooledMedia[];
  /** True if text was lost because there was more text, or more media, than allowed. */
  overflow: boolean;
}

const maxMedia = 256;

/**
 * Splits a JSON body while it streams (design 6, "A"). Strings of the watched members are decoded as strict Base64
 * (specification 2.2, 4.1) into sinks, and everything else is kept as text. Memory is bounded whatever the body's size.
 * Invalid Base64 does not throw: `SpooledMedia.fault` describes the problem, and is `cut` for a string without an end.
 * An error of a sink is thrown, once the sink has been closed.
 */
export class MediaSpool {
  readonly #options: MediaSpoolOptions;
  readonly #watch: MemberWatch;
  readonly #text: ByteBuffer;
  readonly #spooled: SpooledMedia[] = [];
  #buffers: SpoolBuffers | undefined;
  #current: SpooledString | undefined;
  /** The offset in the text of an incomplete watched string that is not longer than the threshold so far. */
  #heldFrom: number | undefined;
  #escaped = false;
  #overflow = false;

  constructor(options: MediaSpoolOptions) {
    this.#options = options;
    this.#watch = new MemberWatch(options.members);
    this.#text = new ByteBuffer(options.maxTextBytes);
  }

  /** Whether the body has overflowed. Later text is dropped. */
  get overflow(): boolean {
    return this.#overflow;
  }

  /** Processes the next chunk of the body. The previous call must have settled. Throws the errors of sinks. */
  async push(chunk: Uint8Array): Promise<void> {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let at = 0; at < bytes.length && !this.#overflow;) {
      if (this.#current !== undefined) at = await this.#spool(this.#current, bytes, at);
      else if (this.#heldFrom !== undefined) at = await this.#hold(this.#heldFrom, bytes, at);
      else at = this.#keep(bytes, at);
    }
  }

  /** Ends the body, complete or cut. */
  async end(): Promise<SpooledBody> {
    if (this.#current !== undefined) await this.#close(this.#current, true);
    return { text: this.#text.toString(), spooled: this.#spooled, overflow: this.#overflow };
  }

  // Processes text up to the opening quote of a watched string; returns where the scan ended.
  #keep(bytes: Buffer, from: number): number {
    let at = from;
    let opened = false;
    while (at < bytes.length && !opened) opened = this.#watch.step(bytes[at++] ?? 0);
    this.#append(bytes.subarray(from, at));
    if (opened) this.#heldFrom = this.#text.length;
    return at;
  }

  // A watched string stays text until it is longer than the threshold.
  async #hold(heldFrom: number, bytes: Buffer, from: number): Promise<number> {
    const room = (this.#options.threshold ?? 0) + 1 - (this.#text.length - heldFrom);
    const held = bytes.subarray(from, from + room);
    const end = this.#closingQuote(held);
    if (end !== -1) {
      this.#append(held.subarray(0, end + 1));
      this.#heldFrom = undefined;
      this.#watch.closed();
      return from + end + 1;
    }
    this.#append(held);
    if (held.length === room && !this.#overflow) await this.#divert(heldFrom);
    return from + held.length;
  }

  #closingQuote(bytes: Buffer): number {
    for (const [index, byte] of bytes.entries()) {
      if (this.#escaped) this.#escaped = false;
      else if (byte === 0x5c) this.#escaped = true;
      else if (byte === 0x22) return index;
    }
    return -1;
  }

  async #divert(heldFrom: number): Promise<void> {
    const held = this.#text.cut(heldFrom);
    const index = this.#spooled.length;
    this.#heldFrom = undefined;
    this.#escaped = false;
    this.#overflow ||= index >= maxMedia;
    this.#append(Buffer.from(`mgw-spool:${index}`));
    if (this.#overflow) return;
    this.#buffers ??= new SpoolBuffers();
    this.#current = new SpooledString(await this.#options.openSink(index), this.#buffers);
    await this.#spool(this.#current, held, 0);
  }

  async #spool(string: SpooledString, bytes: Buffer, from: number): Promise<number> {
    const end = await this.#guard(string, string.push(bytes, from));
    if (end === -1) return bytes.length;
    await this.#close(string, false);
    this.#append(bytes.subarray(end, end + 1));
    this.#watch.closed();
    return end + 1;
  }

  async #close(string: SpooledString, cut: boolean): Promise<void> {
    this.#current = undefined;
    this.#spooled.push(await this.#guard(string, string.close(cut)));
  }

  async #guard<T>(string: SpooledString, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      this.#current = undefined;
      await string.abandon();
      throw error;
    }
  }

  #append(bytes: Uint8Array): void {
    if (!this.#text.append(bytes)) this.#overflow = true;
  }
}

const [quote, backslash, colon] = [0x22, 0x5c, 0x3a];
const maxNameLength = 256;

/**
 * Follows JSON byte by byte, only to find where the string value of a watched member begins, at any depth. It does not
 * check that the text is valid JSON.
 */
export class MemberWatch {
  readonly #members: ReadonlySet<string>;
  readonly #string = Buffer.alloc(maxNameLength + 1);
  #length = 0;
  #inString = false;
  #escaped = false;
  /** The kind of the last token: a string (in `#string`), the colon after it, or anything else. */
  #last: 'string' | 'colon' | 'other' = 'other';

  constructor(members: readonly string[]) {
    this.#members = new Set(members);
  }

  /**
   * Processes the next byte. Returns true for the quote that opens a watched member's string. The caller then reads the
   * string, and calls {@link closed} after its closing quote.
   */
  step(byte: number): boolean {
    if (this.#inString) this.#stepInString(byte);
    else if (byte === quote) return this.#open();
    else if (byte === colon) this.#last = this.#last === 'string' ? 'colon' : 'other';
    else if (byte > 0x20) this.#last = 'other';
    return false;
  }

  /** Reports that the watched string has been closed. */
  closed(): void {
    this.#last = 'other';
  }

  #open(): boolean {
    if (this.#last === 'colon' && this.#members.has(this.#name())) return true;
    this.#inString = true;
    this.#length = 0;
    return false;
  }

  #stepInString(byte: number): void {
    if (this.#escaped) this.#escaped = false;
    else if (byte === backslash) this.#escaped = true;
    else if (byte === quote) {
      this.#inString = false;
      this.#last = 'string';
      return;
    }
    if (this.#length <= maxNameLength) this.#string[this.#length++] = byte;
  }

  #name(): string {
    if (this.#length > maxNameLength) return '';
    const raw = this.#string.toString('utf8', 0, this.#length);
    return raw.includes('\\') ? unescapeName(raw) : raw;
  }
}

// A name with an invalid escape is not watched. The JSON parser will refuse it.
function unescapeName(raw: string): string {
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return '';
  }
}
