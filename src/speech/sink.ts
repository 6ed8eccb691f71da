import type { OutputLock } from '../files/output-lock.ts';
import type { JobFile } from '../job.ts';

/** The destination of speech while it arrives. The methods are called in this order. */
export interface AudioSink {
  /** The path of the output; absent for a stream. */
  readonly target?: string;
  /** The lock of the output, set by its holder. */
  held?: OutputLock;
  /**
   * Prepares the destination before anything is paid.
   * @param isBegun whether an earlier run had started to publish this audio
   * @throws MgwError with exit 10 if that is impossible.
   */
  open(isBegun?: boolean): Promise<void>;
  /**
   * Writes the next audio, in order.
   * @throws MgwError('local_io') if it cannot be written, ClosedPipe if the reader has closed the stream.
   */
  write(audio: Uint8Array): Promise<void>;
  /** Ends the audio and makes it durable. Returns the file until it is published; undefined for a stream. */
  complete(): Promise<JobFile | undefined>;
  /**
   * Publishes completed audio. A part that differs from the published file stays until {@link discard}.
   * @param onSealed called with the file immediately before it gets its name
   * @throws MgwError with exit 10.
   */
  publish(kept: JobFile, onSealed?: (file: JobFile) => Promise<void>): Promise<JobFile>;
  /** Ends audio that is incomplete. Returns the path of the part; undefined if there is none. */
  abandon(): Promise<string | undefined>;
  /** Removes the part, if there is one. */
  discard(): Promise<void>;
  /** The path of the incomplete audio of an earlier run; undefined if there is none. */
  leftOver(): Promise<string | undefined>;
  /**
   * Delivers the audio of an earlier run from the first candidate that is complete, best first. Its part may stay until
   * {@link discard}.
   * @returns undefined if there is none
   */
  recover(candidates: readonly JobFile[]): Promise<RecoveredAudio | undefined>;
}

/** What {@link AudioSink.recover} delivered: a file, or nothing if the audio went to a stream. */
export interface RecoveredAudio {
  file?: JobFile;
}

/** The reader closed the audio stream on purpose, so this is not an error to show. */
export class ClosedPipe extends Error {
  override readonly name = 'ClosedPipe';

  constructor() {
    super('the reader has closed the output');
  }
}
