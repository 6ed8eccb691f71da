const [quote, backslash, colon] = [0x22, 0x5c, 0x3a];
const longestName = 256;

/**
 * Follows JSON byte by byte, as far as is needed to know where the string value of a watched member begins, at
 * any depth. Looks at nothing else: whether the text is JSON at all is for its parser to say.
 */
export class MemberWatch {
  readonly #members: ReadonlySet<string>;
  readonly #string = Buffer.alloc(longestName + 1);
  #length = 0;
  #inString = false;
  #escaped = false;
  /** What the last token was: a string (kept in `#string`), the colon after it, or anything else. */
  #last: 'string' | 'colon' | 'other' = 'other';

  constructor(members: readonly string[]) {
    this.#members = new Set(members);
  }

  /**
   * Takes the next byte; true for the quote that opens a watched member's string. The bytes of that string
   * are then the caller's, who says {@link closed} after its closing quote.
   */
  step(byte: number): boolean {
    if (this.#inString) this.#stepInString(byte);
    else if (byte === quote) return this.#open();
    else if (byte === colon) this.#last = this.#last === 'string' ? 'colon' : 'other';
    else if (byte > 0x20) this.#last = 'other';
    return false;
  }

  /** The watched string that {@link step} announced has been closed. */
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
    if (this.#length <= longestName) this.#string[this.#length++] = byte;
  }

  #name(): string {
    if (this.#length > longestName) return '';
    const raw = this.#string.toString('utf8', 0, this.#length);
    return raw.includes('\\') ? unescapeName(raw) : raw;
  }
}

// An escape that JSON does not know makes a name that is not watched; the text's own parser will refuse it.
function unescapeName(raw: string): string {
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return '';
  }
}
