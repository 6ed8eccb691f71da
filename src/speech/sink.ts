import type { OutputLock } from '../files/output-lock.ts';
import type { JobFile } from '../job.ts';

/** Where speech goes while it arrives. The methods are called in this order. */
export interface AudioSink {
  /** Where it goes in the end; absent if that is a stream. */
  readonly target?: string;
  /** The lock of that output, set by its holder. */
  held?: OutputLock;
  /**
   * Makes the place ready, before anything is paid for.
   * @param isBegun true if an earlier run had begun to publish this very audio
   * @throws MgwError with exit 10 if that is impossible.
   */
  open(isBegun?: boolean): Promise<void>;
  /**
   * Takes the next audio, in order.
   * @throws MgwError('local_io') if it cannot be written, ReaderGone if the reader has closed the stream.
   */
  write(audio: Uint8Array): Promise<void>;
  /** Ends the audio and makes it durable: what is kept until it is published, undefined if nothing is. */
  complete(): Promise<JobFile | undefined>;
  /** Puts completed audio in its place. @throws MgwError with exit 10. */
  publish(kept: JobFile): Promise<JobFile>;
  /** Ends the audio if it will not be whole: the path at which it is kept, undefined if there is none. */
  abandon(): Promise<string | undefined>;
  /** Removes what is not published; nothing if it was. */
  discard(): Promise<void>;
  /** Where audio is that an earlier run could not make whole, undefined if there is none. */
  leftOver(): Promise<string | undefined>;
  /**
   * Delivers the audio of an earlier run from wherever it is still whole, best first.
   * @returns undefined if none of the candidates is
   */
  recover(candidates: readonly JobFile[]): Promise<Recovered | undefined>;
}

/** What {@link AudioSink.recover} delivered: a file, or nothing if the audio went to a stream. */
export interface Recovered {
  file?: JobFile;
}

/** The reader closed the audio stream: its choice, and not an error to show. */
export class ReaderGone extends Error {
  override readonly name = 'ReaderGone';

  constructor() {
    super('the reader has closed the output');
  }
}
