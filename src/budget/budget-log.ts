import { constants } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { messageOf, MgwError } from '../errors.ts';
import { makeFolder } from '../files/make-folder.ts';
import { plainFile } from '../files/whole-file.ts';

/** An append-only text that every process reads in the same order. */
export interface BudgetLog {
  /**
   * Adds text at the end, in one step; with `sync` it and all before it are durable on return.
   * @throws MgwError('local_io') if the text cannot be written.
   */
  append(text: string, sync: boolean): Promise<void>;
  /** Returns the entries that any process appended since the last call, up to the present end. */
  read(): AsyncIterable<string>;
  close(): Promise<void>;
}

const { O_APPEND, O_CREAT, O_RDWR } = constants;
const blockBytes = 64 * 1024;

/**
 * Opens a log in a plain file, and creates it if it is missing.
 * @throws MgwError('local_io') if it cannot be opened.
 */
export async function openBudgetLog(path: string): Promise<BudgetLog> {
  return local(path, async () => {
    await makeFolder(dirname(path));
    const file = await open(path, O_RDWR | O_CREAT | O_APPEND | plainFile, 0o600);
    try {
      if (!(await file.stat()).isFile()) throw new Error('it is not a plain file');
      // The name must survive a crash like the content.
      const folder = await open(dirname(path));
      await folder.sync().finally(() => folder.close());
      return new FileLog(path, file);
    } catch (error) {
      await file.close();
      throw error;
    }
  });
}

class FileLog implements BudgetLog {
  readonly #path: string;
  readonly #file: FileHandle;
  readonly #decoder = new StringDecoder('utf8');
  readonly #block = Buffer.allocUnsafe(blockBytes);
  #offset = 0;

  constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  append(text: string, sync: boolean): Promise<void> {
    return local(this.#path, async () => {
      await this.#checkSame();
      const bytes = Buffer.from(text);
      const { bytesWritten } = await this.#file.write(bytes);
      if (bytesWritten < bytes.length) throw new Error('no space left on device');
      if (sync) await this.#file.sync();
    });
  }

  async *read(): AsyncIterable<string> {
    const block = this.#block;
    for (;;) {
      const { bytesRead } = await local(this.#path, () =>
        this.#file.read(block, 0, block.length, this.#offset),
      );
      if (bytesRead === 0) return;
      this.#offset += bytesRead;
      yield this.#decoder.write(block.subarray(0, bytesRead));
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  // If the file was replaced, the new one is a second budget that this process has not read.
  async #checkSame(): Promise<void> {
    // Read before the status, because a concurrent read may advance the offset past the size found.
    const known = this.#offset;
    const [own, there] = await Promise.all([this.#file.stat(), stat(this.#path)]);
    if (own.ino !== there.ino || own.dev !== there.dev || own.size < known)
      throw new Error('it was replaced or cut while it was in use');
  }
}

async function local<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof MgwError) throw error;
    const why = messageOf(error);
    throw new MgwError('local_io', `The budget's file ${path} cannot be used: ${why}.`, {
      retry: 'safe',
      cause: error,
    });
  }
}
