import { closeSync, lstatSync, openSync, readFileSync } from 'node:fs';
import { copyFile, rm } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { localError, MgwError } from '../errors.ts';
import { HashedFile } from '../files/hashed-file.ts';
import { identityHash, logOf, partPath, readClaimLog } from '../files/claim-log.ts';
import type { OutputLock } from '../files/output-lock.ts';
import { checkOutput, publish } from '../files/publish.ts';
import { intactVersion, isIntact, type FileVersion, removeFile } from '../files/whole-file.ts';
import type { JobFile } from '../job.ts';
import { speechIdentity } from '../jobs/lock-output.ts';
import { markedCopy, savedText } from '../jobs/mark.ts';
import { provenanceOf } from '../jobs/receipt.ts';
import { makeOwnFolder, syncFile, syncFolder } from '../files/make-folder.ts';
import type { AudioSink, RecoveredAudio, SavedAudio } from './sink.ts';
import { wavHeader, wavHeaderBytes } from './containers.ts';

/**
 * Files up to this size in bytes are hashed without a thread, because a thread would take longer to start than it
 * saves.
 */
const maxHashedInline = 64 * 1024 * 1024;

/** Options for writing a speech file. */
export interface FileSinkOptions {
  /** Absolute path of the output. */
  target: string;
  /** Whether to replace an existing file. */
  force: boolean;
  mime: string;
  /** If given, a WAV header with this sample rate, in hertz, is written before the PCM. */
  wavRate?: number;
  /**
   * The path of the temporary file if it is not next to the target. The name is unique to this order, and the folder is
   * created if it is missing.
   */
  part?: string;
  /**
   * If set, an MP3 is marked as AI-generated when it is published (see `markedCopy`). Called with the reason if the
   * file remains unchanged.
   */
  mark?: ((text: string) => void) | undefined;
}

/**
 * Writes speech to `NAME.part` next to the target as it arrives, and publishes it when it is complete. If that name
 * exists, uses `NAME.<random>.part`, because paid audio of an earlier run is never overwritten.
 */
export class FileSink implements AudioSink {
  lock?: OutputLock;
  readonly #options: FileSinkOptions;
  #file: HashedFile | undefined;
  #part = '';
  #version: FileVersion | undefined;
  #isBegun = false;
  #hasStarted = false;

  constructor(options: FileSinkOptions) {
    this.#options = options;
  }

  get target(): string {
    return this.#options.target;
  }

  async open(isBegun = false): Promise<void> {
    if (this.#file !== undefined) return;
    const { target, force, part, wavRate } = this.#options;
    this.#isBegun = isBegun;
    checkOutput(target, { force, isBegun });
    try {
      const { file, path } = part === undefined ? await this.#lock().openPart() : await createFile(part);
      this.#part = path;
      // The header of a WAV file is overwritten at the end, so the whole file is hashed again anyway.
      this.#file = new HashedFile(path, file, 0, wavRate === undefined ? maxHashedInline : Infinity);
    } catch (error) {
      throw localError(error, part === undefined ? target : dirname(part), 'no');
    }
  }

  async write(audio: Uint8Array): Promise<void> {
    const { wavRate } = this.#options;
    // Write the header with the first audio: until then, the temporary file is empty, and any process may remove it.
    const header = this.#hasStarted || wavRate === undefined ? [] : [wavHeader(wavRate)];
    this.#hasStarted = true;
    await this.#openFile().write([...header, audio]);
  }

  // If an error occurs here, the file stays open, and `abandon` keeps what was written.
  async complete(): Promise<JobFile> {
    const file = this.#openFile();
    await this.#endWav(file);
    const sealed = await file.seal();
    // The record will state that the file is complete, so the file's name must also survive a power failure.
    await syncFolder(dirname(sealed.path)).catch((error: unknown) => {
      throw localError(error, sealed.path, 'yes');
    });
    this.#version = sealed.version;
    await this.#close();
    return {
      path: sealed.path,
      bytes: sealed.bytes,
      sha256: sealed.sha256,
      mime: this.#options.mime,
      ...provenanceOf(sealed.path),
    };
  }

  async publish(savedFile: JobFile, onSealed?: (file: JobFile) => Promise<void>): Promise<JobFile> {
    const version = savedFile.path === this.#part ? this.#version : undefined;
    return this.#publish({ ...savedFile, version }, this.#isBegun, onSealed);
  }

  async abandon(): Promise<string | undefined> {
    const file = this.#file;
    if (file === undefined) return undefined;
    await file.settle().catch(() => undefined);
    const hasAudio = file.length > this.#headerBytes;
    // Complete the header, so that the received audio is playable. If that fails, the header still means "to the end".
    if (hasAudio) await this.#endWav(file).catch(() => undefined);
    await this.#close();
    if (hasAudio) return this.#part;
    await rm(this.#part, { force: true });
    return undefined;
  }

  async discard(): Promise<void> {
    await this.#close();
    if (this.#part !== '') await rm(this.#part, { force: true });
    this.#part = '';
  }

  findLeftover(): Promise<string | undefined> {
    return Promise.resolve(leftoverAt(this.target, this.lock?.metadata.part));
  }

  async recover(candidates: readonly SavedAudio[]): Promise<RecoveredAudio | undefined> {
    const { target } = this;
    const { force } = this.#options;
    for (const saved of candidates) {
      const file: SavedAudio = { ...saved, path: target };
      delete file.isPart;
      if (!(await isIntact(file))) continue;
      // The run that published the output may have died before it removed the temporary file.
      const sources = [file.sha256, file.unmarked_sha256];
      const part = candidates.find((other) => other.isPart && sources.includes(other.sha256));
      if (part !== undefined && (await intactVersion(part))) this.#part = part.path;
      if (file.unmarked_sha256 === undefined) this.#options.mark?.(savedText);
      return { file };
    }
    for (const { isPart = false, ...savedFile } of candidates) {
      if (!(await isIntact(savedFile))) continue;
      // The run that made a part may have died while publishing it, so the target may exist.
      if (!isPart) checkOutput(target, { force });
      const source = isPart ? savedFile : await this.#copy(savedFile);
      return { file: await this.#publish({ ...source, ...provenanceOf(source.path) }, isPart) };
    }
    return undefined;
  }

  async #publish(
    part: JobFile & { version?: FileVersion | undefined },
    isBegun: boolean,
    onSealed?: (file: JobFile) => Promise<void>,
  ): Promise<JobFile> {
    const { target } = this;
    const { force } = this.#options;
    const { version, ...file } = (await this.#createMarkedCopy(part)) ?? part;
    const published = { ...file, path: target };
    await onSealed?.(published);
    await publish({ ...file, version }, target, { force, isBegun, assertLease: this.lock?.assertLease });
    // Keep the part until the marked copy is recorded. Before that, nothing proves that the copy contains its audio.
    this.#part = file.path === part.path ? '' : part.path;
    // An earlier take that was not known to be complete may have left the same audio.
    const leftover = `${target}.part`;
    if (await intactVersion({ ...file, path: leftover })) removeFile(leftover);
    return published;
  }

  async #createMarkedCopy(part: JobFile): Promise<(JobFile & { version: FileVersion }) | undefined> {
    const { mark, mime } = this.#options;
    if (mark === undefined) return undefined;
    if ((part.mime ?? mime) !== 'audio/mpeg') {
      mark(`${basename(this.target)} is not marked: it is not an MP3.`);
      return undefined;
    }
    const copy = await markedCopy(part, this.#lock(), mark);
    if (copy === undefined) return undefined;
    const { unmarked_sha256 = part.sha256 } = part;
    return { ...part, ...copy, ...provenanceOf(copy.path), unmarked_sha256 };
  }

  #lock(): OutputLock {
    if (this.lock === undefined) throw new MgwError('internal', `${this.target} is not locked`);
    return this.lock;
  }

  async #copy(savedFile: JobFile): Promise<JobFile> {
    try {
      const { path, file } = await this.#lock().createScratch();
      await copyFile(savedFile.path, path)
        .then(() => syncFile(file))
        .finally(() => closeSync(file));
      return { ...savedFile, path };
    } catch (error) {
      throw localError(error, this.target, 'no');
    }
  }

  get #headerBytes(): number {
    return this.#options.wavRate === undefined ? 0 : wavHeaderBytes;
  }

  #openFile(): HashedFile {
    if (this.#file === undefined)
      throw new MgwError('internal', 'speech was written to a file that is not open');
    return this.#file;
  }

  async #close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  // Completes a WAV file. RIFF requires padding after a chunk of odd length. With 16-bit samples, the length is odd
  // only if the stream was cut off.
  async #endWav(file: HashedFile): Promise<void> {
    const { wavRate } = this.#options;
    if (wavRate === undefined) return;
    await file.settle();
    if (file.length === 0) return;
    if (file.length % 2 === 1) await file.write([Buffer.alloc(1)]);
    await file.settle();
    await file.overwrite(wavHeader(wavRate, file.length - wavHeaderBytes), 0);
  }
}

/**
 * Returns the path of the incomplete audio that a run left at an output; undefined if there is none.
 * @param part the name of the audio file; read from the log of the output's lock if absent
 */
export function leftoverAt(target: string, part = partInLog(target)): string | undefined {
  const paths = [partPath(target, part ?? ''), `${target}.part`];
  return paths.find((path) => {
    const stats = path === undefined ? undefined : lstatSync(path, { throwIfNoEntry: false });
    return stats?.isFile() === true && stats.size > 0;
  });
}

function partInLog(target: string): string | undefined {
  try {
    const { identity, part } = readClaimLog(readFileSync(logOf(target), 'utf8')).metadata;
    return identity === identityHash(speechIdentity) ? part : undefined;
  } catch {
    return undefined;
  }
}

// Creates a file in place of an existing one. The name is unique to the order, so an existing file is from an earlier
// run of the order.
async function createFile(path: string): Promise<{ file: number; path: string }> {
  await makeOwnFolder(dirname(path));
  await rm(path, { force: true });
  return { file: openSync(path, 'wx+'), path };
}
