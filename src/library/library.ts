// mgw's public interface, imported from 'mgw'.
import { isAbsolute, join } from 'node:path';
import { requireNode } from '../installation.ts';
import type { Job } from '../job.ts';
import type { Model } from '../exchange.ts';
import { isObjectUrl, outputProblem } from '../store-url.ts';
import { refuseInfinite } from '../json.ts';
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
export type * from './options.ts';
export { exitCodes, MgwError, type Charged, type ErrorCode, type Retry } from '../errors.ts';
export type { Job, JobFile, JobState } from '../job.ts';
export type { Model } from '../exchange.ts';
export { version } from '../installation.ts';

/**
 * A client for one gateway and one ledger. It follows the same rules as the command line, and both can use the ledger
 * at the same time. Every error is an MgwError. Nothing is printed.
 */
export interface Client {
  /**
   * Submits a video. Repeating a call that did not succeed resumes its job for free. Repeating a call that succeeded
   * pays for a second take, unless it has a `key`.
   */
  submit(order: VideoOrder): Promise<Submitted>;
  /** Submits a video without checking its body. */
  // A single signature would accept every misspelt field, because the body of UncheckedVideo is any object.
  // eslint-disable-next-line @typescript-eslint/unified-signatures
  submit(order: UncheckedVideo): Promise<Submitted>;
  /** Waits until a job has succeeded. `ref` is a job id or a unique part of one, `@key`, `@last`, or a handle. */
  wait(ref: string, options?: WaitOptions): Promise<Job>;
  /**
   * Waits like `wait`, and yields the job at the start and whenever its state changes. Leaving the loop ends the wait.
   */
  watch(ref: string, options?: WaitOptions): AsyncGenerator<Job, void, void>;
  /** Waits for a job and saves its files. Each saved file is complete and verified. */
  fetch(ref: string, options?: FetchOptions): Promise<Fetched>;
  /** Speaks text into a file. */
  speak(order: SpeechOrder): Promise<Spoken>;
  /**
   * Speaks text, yields the audio as it arrives, and returns the job. Nothing is sent before the first piece is
   * requested. Leaving the loop early discards audio that was paid for.
   */
  speakStream(order: SpeechStreamOrder): AsyncGenerator<Uint8Array, Job, void>;
  /** Returns the models that the key can use, sorted by name. */
  models(options?: ModelsOptions): Promise<Model[]>;
  /** Returns a job from the ledger, without contacting the gateway. */
  job(ref: string): Promise<Job>;
  /** Ends the calls in progress, as their signals would, and closes the client. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates a client. Does not read, open or request anything before the client is first used.
 * @throws MgwError('usage') for an unknown or invalid option; MgwError('config') if the runtime is not Node.
 */
export function createClient(options: ClientOptions = {}): Client {
  requireNode();
  const calls = new Calls(options);
  return {
    submit: async (order: VideoOrder | UncheckedVideo) => {
      const copy = copyOptions(order);
      return (await import('./paid-calls.ts')).submitVideo(calls, copy);
    },
    wait: async (ref, callOptions) => {
      const copy = copyOptions(callOptions);
      return (await import('./reads.ts')).wait(calls, ref, copy);
    },
    watch: (ref, callOptions) => watch(calls, ref, copyOptions(callOptions)),
    fetch: async (ref, callOptions) => {
      const copy = copyOptions(callOptions);
      return (await import('./reads.ts')).fetch(calls, ref, copy);
    },
    speak: async (order) => {
      const copy = copyOptions(order);
      return (await import('./paid-calls.ts')).speakToFile(calls, copy);
    },
    speakStream: (order) => speakStream(calls, copyOptions(order)),
    models: async (callOptions) => {
      const copy = copyOptions(callOptions);
      return (await import('./reads.ts')).models(calls, copy);
    },
    job: async (ref) => (await import('./reads.ts')).job(calls, ref),
    close: () => calls.close(),
    [Symbol.asyncDispose]: () => calls.close(),
  };
}

async function* watch(calls: Calls, ref: string, callOptions?: WaitOptions): AsyncGenerator<Job, void, void> {
  yield* (await import('./reads.ts')).watch(calls, ref, callOptions);
}

async function* speakStream(calls: Calls, order: SpeechStreamOrder): AsyncGenerator<Uint8Array, Job, void> {
  return yield* (await import('./paid-calls.ts')).speakStream(calls, order);
}

// Copies the options of a call when the call is made: the program may change and reuse the options, or change the
// current folder, before the call reads them. Leaves invalid values for the call to refuse.
function copyOptions<Options extends object | undefined>(options: Options): Options {
  if (typeof options !== 'object' || (options as object | null) === null) return options;
  // Options may be inherited, so the copy has the same prototype.
  const copy = Object.assign(
    Object.create(Object.getPrototypeOf(options) as object | null) as object,
    options,
  );
  for (const name of ['body', 'params']) if (Object.hasOwn(copy, name)) change(copy, name, copyJson);
  if (Object.hasOwn(copy, 'output')) change(copy, 'output', absolutePath);
  return copy;
}

function change(copy: object, name: string, by: (value: unknown) => unknown): void {
  Reflect.set(copy, name, by(Reflect.get(copy, name)));
}

function copyJson(value: unknown): unknown {
  try {
    return JSON.parse(JSON.stringify(value, refuseInfinite)) as unknown;
  } catch {
    return value;
  }
}

// Keeps a slash at the end, which makes the path a folder.
function absolutePath(output: unknown): unknown {
  if (typeof output !== 'string' || output === '' || output === '-') return output;
  const isUnchanged = isObjectUrl(output) || isAbsolute(output) || outputProblem(output) !== undefined;
  return isUnchanged ? output : join(process.cwd(), output);
}
