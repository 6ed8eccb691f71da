import type { OutputLock } from '../files/output-lock.ts';
import type { JobFile } from '../job.ts';
import { createReadStream } from 'node:fs';
import type { Writable } from 'node:stream';
import { MgwError, messageOf, systemCode } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import { wavHeader } from './containers.ts';

/** The destination of speech while it arrives. The methods are called in the order in which they are declared. */
export interface AudioSink {
  /** The path of the output; absent for a stream. */
  readonly target?: string;
  /** The output's lock, set by the caller that holds it. */
  lock?: OutputLock;
  /**
   * Prepares the destination before anything is paid for.
   * @param isBegun whether an earlier run had started to publish this audio
   * @throws MgwError with exit 10 if the destination cannot be prepared.
   */
  open(isBegun?: boolean): Promise<void>;
  /**
   * Writes the next piece of audio, in order.
   * @throws MgwError('local_io') if the audio cannot be written, ClosedPipe if the reader has closed the stream.
   */
  write(audio: Uint8Array): Promise<void>;
  /** Ends the audio and makes it durable. Returns the unpublished file; undefined for a stream. */
  complete(): Promise<JobFile | undefined>;
  /**
   * Publishes completed audio. If the published file differs from the part (the temporary file), the part remains until
   * {@link discard}.
   * @param onSealed called with the file immediately before it gets its name
   * @throws MgwError with exit 10 if the audio cannot be published.
   */
  publish(savedFile: JobFile, onSealed?: (file: JobFile) => Promise<void>): Promise<JobFile>;
  /** Ends incomplete audio. Returns the path of the part; undefined if there is none. */
  abandon(): Promise<string | undefined>;
  /** Removes the part, if there is one. */
  discard(): Promise<void>;
  /** Returns the path of an earlier run's incomplete audio; undefined if there is none. */
  findLeftover(): Promise<string | undefined>;
  /**
   * Delivers an earlier run's audio from the first complete candidate. The candidates are sorted, best first. The part
   * may remain until {@link discard}.
   * @returns undefined if no candidate is complete
   */
  recover(candidates: readonly SavedAudio[]): Promise<RecoveredAudio | undefined>;
}

/** A file that may contain a job's audio. */
export interface SavedAudio extends JobFile {
  /**
   * Whether this is complete audio that was not published. Such a file does not belong to the user, regardless of its
   * name.
   */
  isPart?: boolean;
}

/** The result of {@link AudioSink.recover}: a file, or nothing if the audio went to a stream. */
export interface RecoveredAudio {
  file?: JobFile;
}

/** Thrown if the reader closed the audio stream on purpose. It is not reported as an error. */
export class ClosedPipe extends Error {
  override readonly name = 'ClosedPipe';

  constructor() {
    super('the reader has closed the output');
  }
}

/**
 * Writes speech to a stream such as standard output, each piece as soon as it arrives. Stores nothing.
 * @param wavRate the sample rate in hertz; if given, a WAV header without a length is written before the PCM
 */
export class StreamSink implements AudioSink {
  readonly #stream: Writable;
  readonly #wavRate: number | undefined;
  #hasStarted = false;

  constructor(stream: Writable, wavRate?: number) {
    this.#stream = stream;
    this.#wavRate = wavRate;
  }

  open(): Promise<void> {
    return Promise.resolve();
  }

  async write(audio: Uint8Array): Promise<void> {
    if (!this.#hasStarted && this.#wavRate !== undefined) await this.#writeBytes(wavHeader(this.#wavRate));
    this.#hasStarted = true;
    await this.#writeBytes(audio);
  }

  complete(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  publish(savedFile: JobFile): Promise<JobFile> {
    return Promise.resolve(savedFile);
  }

  abandon(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  discard(): Promise<void> {
    return Promise.resolve();
  }

  findLeftover(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  async recover(candidates: readonly JobFile[]): Promise<RecoveredAudio | undefined> {
    for (const savedFile of candidates) {
      if (!(await isIntact(savedFile))) continue;
      for await (const chunk of createReadStream(savedFile.path)) await this.#writeBytes(chunk as Buffer);
      return {};
    }
    return undefined;
  }

  // Resolves when the bytes are written, so that a slow reader slows the stream instead of filling memory.
  #writeBytes(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#stream.write(bytes, (error) => {
        if (!error) resolve();
        else reject(closedPipeCodes.has(systemCode(error) ?? '') ? new ClosedPipe() : writeError(error));
      });
    });
  }
}

const closedPipeCodes = new Set(['EPIPE', 'ECONNRESET', 'ERR_STREAM_DESTROYED']);

function writeError(error: Error): MgwError {
  const text = `The audio cannot be written to the output: ${messageOf(error)}.`;
  return new MgwError('local_io', text, { charged: 'yes', cause: error });
}
