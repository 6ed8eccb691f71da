import type { SpooledMedia } from '../exchange.ts';
import { ByteBuffer } from './buffers.ts';
import { SpoolBuffers, SpooledString, type MediaSink } from './spooled-string.ts';

export type { MediaSink };

/** How a {@link MediaSpool} splits a body. */
export interface MediaSpoolOptions {
  /** Names of the members whose strings are media, at any depth. */
  members: readonly string[];
  /** Opens the destination for the media with this index, counted from 0 in order of arrival. */
  openSink: (index: number) => Promise<MediaSink & { path?: string }>;
  /** The maximum text length, in bytes. A longer body overflows. */
  maxTextBytes: number;
  /**
   * Strings of up to this many bytes, as encoded in the JSON, remain text. With the default, 0, every non-empty string
   * of a watched member is media, and no string can imitate a placeholder.
   */
  threshold?: number;
}

/** A body that was split. */
export interface SpooledBody {
  /** The JSON with `"mgw-spool:<index>"` in place of each diverted string; incomplete if the body was incomplete. */
  text: string;
  spooled: SpooledMedia[];
  /** True if text was lost because there was more text, or more media, than allowed. */
  overflow: boolean;
}

const maxMedia = 256;

/**
 * Splits a JSON body as it arrives (design 6, "A"). Strings of the watched members are decoded as strict Base64
 * (specification 2.2, 4.1) into sinks, and the rest remains text. Memory is bounded regardless of the body's size.
 * Invalid Base64 does not throw: `SpooledMedia.fault` describes the problem, and is `cut` for an unterminated string. A
 * sink's error is thrown once the sink has been closed.
 */
export class MediaSpool {
  readonly #options: MediaSpoolOptions;
  readonly #memberWatch: MemberWatch;
  readonly #text: ByteBuffer;
  readonly #spooled: SpooledMedia[] = [];
  #buffers: SpoolBuffers | undefined;
  #current: SpooledString | undefined;
  /** The text offset of an incomplete watched string that has not exceeded the threshold so far. */
  #pendingStart: number | undefined;
  #escaped = false;
  #overflow = false;

  constructor(options: MediaSpoolOptions) {
    this.#options = options;
    this.#memberWatch = new MemberWatch(options.members);
    this.#text = new ByteBuffer(options.maxTextBytes);
  }

  /** Whether the body has overflowed. Later text is dropped. */
  get overflow(): boolean {
    return this.#overflow;
  }

  /** Processes the next chunk of the body. The previous call must have settled. Throws the sinks' errors. */
  async push(chunk: Uint8Array): Promise<void> {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let at = 0; at < bytes.length && !this.#overflow;) {
      if (this.#current !== undefined) at = await this.#spool(this.#current, bytes, at);
      else if (this.#pendingStart !== undefined) at = await this.#scanPending(this.#pendingStart, bytes, at);
      else at = this.#scanText(bytes, at);
    }
  }

  /** Ends the body, which may be incomplete. */
  async end(): Promise<SpooledBody> {
    if (this.#current !== undefined) await this.#close(this.#current, true);
    return { text: this.#text.toString(), spooled: this.#spooled, overflow: this.#overflow };
  }

  // Processes text up to the opening quote of a watched string. Returns the offset at which the scan ended.
  #scanText(bytes: Buffer, from: number): number {
    let at = from;
    let isOpened = false;
    while (at < bytes.length && !isOpened) isOpened = this.#memberWatch.step(bytes[at++] ?? 0);
    this.#append(bytes.subarray(from, at));
    if (isOpened) this.#pendingStart = this.#text.length;
    return at;
  }

  // Processes a watched string, which remains text until it is longer than the threshold.
  async #scanPending(pendingStart: number, bytes: Buffer, from: number): Promise<number> {
    const capacity = (this.#options.threshold ?? 0) + 1 - (this.#text.length - pendingStart);
    const pending = bytes.subarray(from, from + capacity);
    const end = this.#closingQuote(pending);
    if (end !== -1) {
      this.#append(pending.subarray(0, end + 1));
      this.#pendingStart = undefined;
      this.#memberWatch.noteClosed();
      return from + end + 1;
    }
    this.#append(pending);
    if (pending.length === capacity && !this.#overflow) await this.#divert(pendingStart);
    return from + pending.length;
  }

  #closingQuote(bytes: Buffer): number {
    for (const [index, byte] of bytes.entries()) {
      if (this.#escaped) this.#escaped = false;
      else if (byte === 0x5c) this.#escaped = true;
      else if (byte === 0x22) return index;
    }
    return -1;
  }

  async #divert(pendingStart: number): Promise<void> {
    const pending = this.#text.cut(pendingStart);
    const index = this.#spooled.length;
    this.#pendingStart = undefined;
    this.#escaped = false;
    this.#overflow ||= index >= maxMedia;
    this.#append(Buffer.from(`mgw-spool:${index}`));
    if (this.#overflow) return;
    this.#buffers ??= new SpoolBuffers();
    this.#current = new SpooledString(await this.#options.openSink(index), this.#buffers);
    await this.#spool(this.#current, pending, 0);
  }

  async #spool(string: SpooledString, bytes: Buffer, from: number): Promise<number> {
    const end = await this.#closeOnError(string, string.push(bytes, from));
    if (end === -1) return bytes.length;
    await this.#close(string, false);
    this.#append(bytes.subarray(end, end + 1));
    this.#memberWatch.noteClosed();
    return end + 1;
  }

  async #close(string: SpooledString, cut: boolean): Promise<void> {
    this.#current = undefined;
    this.#spooled.push(await this.#closeOnError(string, string.close(cut)));
  }

  async #closeOnError<T>(string: SpooledString, work: Promise<T>): Promise<T> {
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
 * Reads JSON byte by byte, only to find where a watched member's string value begins, at any depth. Does not check that
 * the text is valid JSON.
 */
export class MemberWatch {
  readonly #members: ReadonlySet<string>;
  readonly #string = Buffer.alloc(maxNameLength + 1);
  #length = 0;
  #inString = false;
  #escaped = false;
  /** The kind of the last token: a string (in `#string`), the colon after it, or anything else. */
  #lastToken: 'string' | 'colon' | 'other' = 'other';

  constructor(members: readonly string[]) {
    this.#members = new Set(members);
  }

  /**
   * Processes the next byte. Returns true for the quote that opens a watched member's string. The caller then reads the
   * string, and calls {@link noteClosed} after its closing quote.
   */
  step(byte: number): boolean {
    if (this.#inString) this.#stepInString(byte);
    else if (byte === quote) return this.#openString();
    else if (byte === colon) this.#lastToken = this.#lastToken === 'string' ? 'colon' : 'other';
    else if (byte > 0x20) this.#lastToken = 'other';
    return false;
  }

  /** Informs the watch that the watched string has been closed. */
  noteClosed(): void {
    this.#lastToken = 'other';
  }

  #openString(): boolean {
    if (this.#lastToken === 'colon' && this.#members.has(this.#name())) return true;
    this.#inString = true;
    this.#length = 0;
    return false;
  }

  #stepInString(byte: number): void {
    if (this.#escaped) this.#escaped = false;
    else if (byte === backslash) this.#escaped = true;
    else if (byte === quote) {
      this.#inString = false;
      this.#lastToken = 'string';
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

// Decodes a member's name. Returns '' for a name with an invalid escape, which the JSON parser will reject.
function unescapeName(raw: string): string {
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return '';
  }
}
