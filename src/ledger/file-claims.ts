import { lstatSync, statSync } from 'node:fs';
import { sep } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { systemCode } from '../errors.ts';
import { appendFile, createExclusively, createFile, readBytes } from './durable-file.ts';
import { claimName } from './names.ts';

/**
 * Claims as files that are created exclusively, each with its content and a checksum. A further line confirms that the
 * claimed work has begun. No claim is ever removed.
 */
export class FileClaims {
  readonly #folder: string;
  readonly #rebuild: (raw: Pick<FileClaims, 'claim' | 'claimed'>) => Promise<void>;
  #completing: Promise<void> | undefined;

  /**
   * @param rebuild claims the names of all existing jobs, if the folder was lost or is missing
   */
  constructor(folder: string, rebuild: (raw: Pick<FileClaims, 'claim' | 'claimed'>) => Promise<void>) {
    this.#folder = folder;
    this.#rebuild = rebuild;
  }

  /**
   * Claims a name: undefined if this process now has the claim, else the content of the existing claim, '' if that is
   * damaged.
   */
  async claim(name: string, content: string): Promise<string | undefined> {
    await this.#complete();
    return this.#claim(name, content);
  }

  /** The content of a claim, '' if it is damaged; undefined if the name is free. */
  async claimed(name: string): Promise<string | undefined> {
    await this.#complete();
    return this.#claimed(name);
  }

  // A marker file shows that no claim is missing. Any number of processes may rebuild the claims at once.
  async #complete(): Promise<void> {
    const marker = `${this.#folder}${sep}.complete`;
    if (lstatSync(marker, { throwIfNoEntry: false }) !== undefined) return;
    this.#completing ??= (async () => {
      const raw = { claim: this.#reclaim.bind(this), claimed: this.#claimed.bind(this) };
      await this.#rebuild(raw);
      await createFile(marker, '').catch(ignoreExisting);
    })().finally(() => (this.#completing = undefined));
    await this.#completing;
  }

  async #claim(name: string, content: string): Promise<string | undefined> {
    const isCreated = await createExclusively(this.#pathOf(name), withChecksum(content));
    return isCreated ? undefined : ((await this.#claimed(name)) ?? '');
  }

  // Not durable, since 100,000 syncs would take minutes; creating the marker file makes the names durable. A power cut
  // may leave such a claim without its content, which is then derived from the jobs.
  async #reclaim(name: string, content: string): Promise<string | undefined> {
    try {
      await createFile(this.#pathOf(name), withChecksum(content), false);
      return undefined;
    } catch (error) {
      ignoreExisting(error);
      return (await this.#claimed(name)) ?? '';
    }
  }

  async #claimed(name: string): Promise<string | undefined> {
    const text = await this.#textOf(name);
    if (text === undefined) return undefined;
    const end = text.indexOf('\n') + 1;
    const content = text.slice(0, Math.max(0, end - 10));
    return withChecksum(content) === text.slice(0, end) ? content : '';
  }

  /** Records that the work under a claim has begun. A crash of the machine may lose this. */
  async confirm(name: string): Promise<void> {
    await appendFile(this.#pathOf(name), 'confirmed\n', { isDurable: false });
  }

  /** Whether a claim is confirmed, or is damaged and may have been confirmed. */
  async isConfirmed(name: string): Promise<boolean> {
    const text = await this.#textOf(name);
    return text !== undefined && text.indexOf('\n') !== text.length - 1;
  }

  #pathOf(name: string): string {
    return `${this.#folder}${sep}${claimName(name)}`;
  }

  // Without hard links a claim may be visible before its content, so an empty claim that is less than 2 s old is read
  // again.
  async #textOf(name: string): Promise<string | undefined> {
    const path = this.#pathOf(name);
    for (let looks = 0; ; looks += 1) {
      const text = readBytes(path)?.toString('utf8');
      if (text !== '' || looks === 10) return text;
      const found = statSync(path, { throwIfNoEntry: false });
      if (found === undefined || Math.abs(Date.now() - found.mtimeMs) > 2000) return '';
      await delay(50);
    }
  }
}

function ignoreExisting(error: unknown): void {
  if (systemCode(error) !== 'EEXIST') throw error;
}

function withChecksum(line: string): string {
  return `${line} ${crc32(line).toString(16).padStart(8, '0')}\n`;
}
