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
  /** The maximum text length, in bytes. Text beyond this limit is dropped. */
  maxTextBytes: number;
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
 * (specification 2.2, 4.1) into sinks, and the rest remains text. Every non-empty string of a watched member is media,
 * so no string can imitate a placeholder. Memory is bounded regardless of the body's size. Invalid Base64 does not
 * throw: `SpooledMedia.fault` describes the problem, and is `cut` for an unterminated string. A sink's error is thrown
 * once the sink has been closed.
 */
export class MediaSpool {
  /** Whether the body has overflowed. Later text is dropped. */
  overflow = false;
  readonly #options: MediaSpoolOptions;
  readonly #memberWatch: MemberWatch;
  readonly #text: ByteBuffer;
  readonly #spooled: SpooledMedia[] = [];
  #buffers: SpoolBuffers | undefined;
  #current: SpooledString | undefined;
  /** Whether the opening quote of a watched string was the last byte. */
  #isOpened = false;

  constructor(options: MediaSpoolOptions) {
    this.#options = options;
    this.#memberWatch = new MemberWatch(options.members);
    this.#text = new ByteBuffer(options.maxTextBytes);
  }

  /** Processes the next chunk of the body. The previous call must have settled. Throws the sinks' errors. */
  async push(chunk: Uint8Array): Promise<void> {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let at = 0; at < bytes.length && !this.overflow;) {
      if (this.#current !== undefined) at = await this.#spool(this.#current, bytes, at);
      else if (this.#isOpened) at = await this.#enterString(bytes, at);
      else at = this.#scanText(bytes, at);
    }
  }

  /** Ends the body, which may be incomplete. */
  async end(): Promise<SpooledBody> {
    if (this.#current !== undefined) await this.#close(this.#current, true);
    return { text: this.#text.toString(), spooled: this.#spooled, overflow: this.overflow };
  }

  // Processes text up to the opening quote of a watched string. Returns the offset at which the scan ended.
  #scanText(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length && !this.#isOpened) this.#isOpened = this.#memberWatch.step(bytes[at++] ?? 0);
    this.#append(bytes.subarray(from, at));
    return at;
  }

  // Processes the first byte of a watched string. An empty string remains text. Returns the offset of the next byte.
  async #enterString(bytes: Buffer, at: number): Promise<number> {
    this.#isOpened = false;
    if (bytes[at] !== quote) {
      await this.#divert();
      return at;
    }
    this.#append(bytes.subarray(at, at + 1));
    this.#memberWatch.noteClosed();
    return at + 1;
  }

  async #divert(): Promise<void> {
    const index = this.#spooled.length;
    this.overflow ||= index >= maxMedia;
    this.#append(Buffer.from(`mgw-spool:${index}`));
    if (this.overflow) return;
    this.#buffers ??= new SpoolBuffers();
    this.#current = new SpooledString(await this.#options.openSink(index), this.#buffers);
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
    if (!this.#text.append(bytes)) this.overflow = true;
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
