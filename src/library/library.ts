// The public interface, imported from 'mgw'.
import { requireNode } from '../installation.ts';
import type { Job } from '../job.ts';
import type { Model } from '../exchange.ts';
import { Calls } from './calls.ts';
import type {
  ClientOptions,
  Fetched,
  FetchOptions,
  ModelsOptions,
  SpeechOrder,
  SpeechStreamOrder,
  Spoken,
  Submitted,
  UncheckedVideo,
  VideoOrder,
  WaitOptions,
} from './options.ts';

export type { BodyA, BodyB, BodyC } from './bodies.ts';
export type {
  CallOptions,
  ClientOptions,
  Duration,
  Fetched,
  FetchOptions,
  ModelsOptions,
  ProtocolName,
  SpeechOrder,
  SpeechStreamOrder,
  Spoken,
  Submitted,
  UncheckedVideo,
  VideoOrder,
  WaitOptions,
} from './options.ts';
export { exitCodes, MgwError, type Charged, type ErrorCode, type Retry } from '../errors.ts';
export type { Job, JobFile, JobState } from '../job.ts';
export type { Model } from '../exchange.ts';
export { version } from '../installation.ts';

/**
 * Works with one gateway and one ledger, by the same rules as the command line. Both may use the ledger at the same
 * time. Every error is an MgwError. Nothing is printed.
 */
export interface Client {
  /**
   * Submits a video. If a call did not end well, repeating it resumes its job and pays nothing. If it did, repeating it
   * pays for a second take, unless it has a `key`.
   */
  submit(order: VideoOrder): Promise<Submitted>;
  /** Submits a video without checking its body. */
  // One signature for both would accept every misspelt field: UncheckedVideo takes any object as its body.
  // eslint-disable-next-line @typescript-eslint/unified-signatures
  submit(order: UncheckedVideo): Promise<Submitted>;
  /** Waits until a job has succeeded. `ref` is a job id or a unique part of one, `@key`, `@last`, or a handle. */
  wait(ref: string, options?: WaitOptions): Promise<Job>;
  /** Waits like `wait`, and yields the job at first and at each change of its state. Leaving the loop ends the wait. */
  watch(ref: string, options?: WaitOptions): AsyncGenerator<Job, void, void>;
  /** Waits for a job, and saves its files, each complete and verified. */
  fetch(ref: string, options?: FetchOptions): Promise<Fetched>;
  /** Speaks text into a file. */
  speak(order: SpeechOrder): Promise<Spoken>;
  /**
   * Speaks text, yields the audio as it arrives, and returns the job. Nothing is sent before the first piece is
   * requested. Leaving the loop early gives up audio that was paid for.
   */
  speakStream(order: SpeechStreamOrder): AsyncGenerator<Uint8Array, Job, void>;
  /** Returns the models that the key may use, sorted by name. */
  models(options?: ModelsOptions): Promise<Model[]>;
  /** Returns a job as it is recorded, without a request. */
  job(ref: string): Promise<Job>;
  /** Ends the calls in progress, as their signals would, and closes the client. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates a client. Nothing is read, opened or requested before its first use.
 * @throws MgwError('usage') for an unknown option, MgwError('config') if the runtime is not Node.
 */
export function createClient(options: ClientOptions = {}): Client {
  requireNode();
  const calls = new Calls(options);
  return {
    submit: async (order: VideoOrder | UncheckedVideo) =>
      (await import('./paid-calls.ts')).submitVideo(calls, order),
    wait: async (ref, given) => (await import('./reads.ts')).wait(calls, ref, given),
    watch: (ref, given) => watch(calls, ref, given),
    fetch: async (ref, given) => (await import('./reads.ts')).fetch(calls, ref, given),
    speak: async (order) => (await import('./paid-calls.ts')).speakToFile(calls, order),
    speakStream: (order) => speakStream(calls, order),
    models: async (given) => (await import('./reads.ts')).models(calls, given),
    job: async (ref) => (await import('./reads.ts')).job(calls, ref),
    close: () => calls.close(),
    [Symbol.asyncDispose]: () => calls.close(),
  };
}

async function* watch(calls: Calls, ref: string, given?: WaitOptions): AsyncGenerator<Job, void, void> {
  yield* (await import('./reads.ts')).watch(calls, ref, given);
}

async function* speakStream(calls: Calls, order: SpeechStreamOrder): AsyncGenerator<Uint8Array, Job, void> {
  return yield* (await import('./paid-calls.ts')).speakStream(calls, order);
}
