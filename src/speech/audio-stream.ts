import type { Deadline } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { StreamedReply } from '../http/client.ts';
import type { Job, JobError, JobEvent, JobFile } from '../job.ts';
import { chargeUsage } from '../jobs/charge-outcome.ts';
import type { JobDeps } from '../jobs/order.ts';
import { bestEffort } from '../jobs/lock-output.ts';
import { recordOf } from '../jobs/reconcile.ts';
import { failedSpeechError, incompleteError, unrecordedError, unwritableError } from './errors.ts';
import type { AudioSink } from './sink.ts';
import type { Failure } from '../exchange.ts';
import { withIdleTimeout, type TimeLimits } from '../http/deadline.ts';
import { filledBuffer, releaseBuffer, acquireBuffer } from '../media/buffers.ts';
import { TransportError } from '../http/transport-error.ts';
import type { JsonObject } from '../json.ts';
import { FrameSplitter } from './json-frames.ts';
import { readFrame, type Frame } from './wire.ts';

/** Dependencies of speech calls. */
export interface SpeechDeps extends JobDeps {
  /** Maximum idle time of a stream, in ms. Default: one minute. */
  idleTimeoutMs?: number;
  /** Called with the number of audio bytes received so far. */
  onAudio?: (bytes: number) => void;
}

/** Returns dependencies for several concurrent streams. Each note is printed once, not once per stream. */
export function withoutRepeats(deps: SpeechDeps): SpeechDeps {
  const shownNotes = new Set<string>();
  const note = (text: string): void => {
    if (!shownNotes.has(text)) deps.note(text);
    shownNotes.add(text);
  };
  return { ...deps, note, onAudio: undefined };
}

/** Default maximum idle time of a stream, in ms. */
export const defaultIdleMs = 60_000;

/** An open stream that was paid for, and the sink for its audio. */
export interface AudioStream {
  reply: StreamedReply;
  sink: AudioSink;
  /** The deadline for reading. */
  deadline: Deadline;
}

type StreamEnd = StreamOutcome | { kind: 'unwritable'; error: unknown; usage?: undefined };
type FailedEnd = Exclude<StreamEnd, { kind: 'whole' }>;

/**
 * Reads a stream to its end, records how it ended, and publishes the audio if it is complete.
 * @returns the file; undefined if the audio went to a stream
 * @throws MgwError: exit 5, 9 or 10. The message contains the path of the saved audio.
 */
export async function finishStream(
  audio: AudioStream,
  job: Job,
  deps: SpeechDeps,
): Promise<JobFile | undefined> {
  const { end, savedFile, bytes } = await readStream(audio, deps, job.id);
  if (end.kind !== 'whole') throw await abandonStream(end, bytes, audio, job, deps);
  // Record the audio's path first, so that the next run can publish the audio if this run dies before publishing.
  const event: JobEvent = {
    type: 'finished',
    state: 'succeeded',
    native_status: '20000000',
    usage: end.usage,
    details: savedFile && { kept: savedFile },
  };
  const ledgerError = await deps.ledger.append(job.id, event).catch((error: unknown) => ({ error }));
  await chargeUsage({ ...job, state: 'succeeded', usage: end.usage }, deps);
  const file = savedFile && (await audio.sink.publish(savedFile));
  if (file !== undefined && !ledgerError) await deps.ledger.append(job.id, { type: 'file', file });
  await bestEffort(deps, () => audio.sink.discard());
  if (ledgerError) throw unrecordedError(ledgerError.error, file, 'It was written to the output.');
  return file;
}

/**
 * Saves a stream whose start could not be recorded. Returns the error that reports the missing record and the saved
 * audio.
 */
export async function saveUnrecorded(
  audio: AudioStream,
  cause: unknown,
  job: Job,
  deps: SpeechDeps,
): Promise<unknown> {
  const { end, savedFile } = await readStream(audio, deps);
  await chargeUsage({ ...job, state: end.kind === 'whole' ? 'succeeded' : 'failed', usage: end.usage }, deps);
  if (end.kind === 'whole') {
    const file = savedFile && (await audio.sink.publish(savedFile));
    await bestEffort(deps, () => audio.sink.discard());
    return unrecordedError(cause, file, 'It was written to the output.');
  }
  const part = await audio.sink.abandon();
  return unrecordedError(
    cause,
    undefined,
    `The audio is incomplete${part === undefined ? '' : `: ${part}`}.`,
  );
}

/** How a stream ended, the audio file if the audio is complete, and the number of audio bytes received. */
interface Received {
  end: StreamEnd;
  savedFile?: JobFile;
  bytes: number;
}

async function readStream(audio: AudioStream, deps: SpeechDeps, name = 'not recorded'): Promise<Received> {
  const { idleTimeoutMs: idleMs = defaultIdleMs, signals } = deps;
  const explainWait = (): void =>
    deps.note(`The speech (${name}) is paid for, so mgw finishes it first. To abandon it, interrupt again.`);
  signals.soft.addEventListener('abort', explainWait);
  let bytes = 0;
  const write = async (chunk: Uint8Array): Promise<void> => {
    // Audio that arrived proves that the call was charged, even if it cannot be written.
    bytes += chunk.length;
    await audio.sink.write(chunk);
    deps.onAudio?.(bytes);
  };
  try {
    const { body, clean } = audio.reply;
    const end = await receive(body, write, { idleMs, deadline: audio.deadline, clean });
    return { end, bytes, savedFile: end.kind === 'whole' ? await audio.sink.complete() : undefined };
  } catch (error) {
    return { end: { kind: 'unwritable', error }, bytes };
  } finally {
    signals.soft.removeEventListener('abort', explainWait);
    audio.reply.close();
  }
}

async function abandonStream(
  end: FailedEnd,
  bytes: number,
  audio: AudioStream,
  job: Job,
  deps: SpeechDeps,
): Promise<unknown> {
  const partPath = await audio.sink.abandon();
  const { code, message, native_code } = recordFor(end);
  const error = {
    code,
    message: deps.redact(message).slice(0, 4000),
    native_code: native_code && deps.redact(native_code),
  };
  // Received audio was charged, even if the stream then failed.
  const details = bytes > 0 || partPath ? { part: partPath, audio_bytes: bytes } : undefined;
  const event: JobEvent = {
    type: 'finished',
    state: 'failed',
    native_status: error.native_code ?? '',
    error,
    usage: end.usage,
    details,
  };
  await deps.ledger.append(job.id, event).catch((reason: unknown) => {
    deps.note(`Could not record the outcome of the speech: ${messageOf(reason)}`);
  });
  await chargeUsage({ ...job, state: 'failed', usage: end.usage }, deps);
  return errorFor(end, job, { partPath, hasAudio: bytes > 0 }, deps);
}

function recordFor(end: FailedEnd): JobError {
  if (end.kind === 'failed') return recordOf(end.failure);
  return { code: 'speech_incomplete', message: end.kind === 'cut' ? end.why : messageOf(end.error) };
}

function errorFor(
  end: FailedEnd,
  job: Job,
  { partPath, hasAudio }: { partPath: string | undefined; hasAudio: boolean },
  { signals }: SpeechDeps,
): unknown {
  if (end.kind === 'failed') return failedSpeechError(end.failure, job, partPath);
  if (end.kind === 'unwritable') return unwritableError(end.error, job, partPath);
  return incompleteError(job, end.why, partPath, { hasAudio, signals });
}

/** How a speech stream ended (specification 3.4). */
type StreamOutcome = Ending & {
  /** The latest usage received, before or with the end frame (specification 2.6). */
  usage?: JsonObject;
};

type Ending =
  | { kind: 'whole' }
  /** An error frame, possibly after audio. */
  | { kind: 'failed'; failure: Failure }
  /** Any end that does not prove success. The audio may be incomplete. */
  | { kind: 'cut'; why: string };

/** A stream's limits: its time and the size of its frames. */
interface StreamLimits extends TimeLimits {
  /** Maximum size of a frame, in bytes. Default: that of {@link FrameSplitter}. */
  maxFrameBytes?: number;
  /** Removes secrets from stream text before it is displayed. */
  clean?: ((text: string) => string) | undefined;
}

/**
 * Reads a speech stream up to its end frame, its first fault or its end. Passes each piece of audio to `write` as it
 * arrives, in order. Time spent in `write` is not idle time. Nothing after the end frame is read.
 * @throws errors from `write`.
 */
export async function receive(
  body: AsyncIterable<Uint8Array>,
  write: (audio: Uint8Array) => Promise<void>,
  limits: StreamLimits,
): Promise<StreamOutcome> {
  const splitter = new FrameSplitter(limits.maxFrameBytes, limits.clean);
  const latest: Pick<StreamOutcome, 'usage'> = {};
  let why: string | undefined;
  try {
    const ending = await readAudio(withIdleTimeout(body, limits), write, splitter, latest);
    if (ending !== undefined) return { ...ending, ...latest };
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    why = messageOf(error);
  }
  splitter.end();
  return { kind: 'cut', why: why ?? splitter.fault ?? 'the stream ended without its end frame', ...latest };
}

async function readAudio(
  body: AsyncIterable<Uint8Array>,
  write: (audio: Uint8Array) => Promise<void>,
  splitter: FrameSplitter,
  latest: Pick<StreamOutcome, 'usage'>,
): Promise<Ending | undefined> {
  let hasAudio = false;
  for await (const chunk of body) {
    const { audio, ending, usage } = readFrames(splitter, chunk);
    releaseBuffer(chunk);
    if (usage !== undefined) latest.usage = usage;
    if (audio.length > 0) await write(audio);
    hasAudio ||= audio.length > 0;
    if (ending?.kind === 'whole' && !hasAudio)
      return { kind: 'cut', why: 'the stream ended without any audio' };
    if (ending !== undefined) return ending;
  }
  return undefined;
}

interface ChunkContent {
  audio: Buffer;
  /** The latest usage in the chunk. */
  usage?: JsonObject;
  ending?: Ending;
}

function readFrames(splitter: FrameSplitter, chunk: Uint8Array): ChunkContent {
  const audio = new AudioBuffer();
  let usage: JsonObject | undefined;
  let ending: Ending | undefined;
  for (const frame of splitter.push(chunk)) {
    const content = readFrame(frame, audio.freeSpace);
    if ('bytes' in content && content.bytes !== undefined) audio.add(content.bytes);
    if ('usage' in content) usage = content.usage ?? usage;
    ending = endingOf(content);
    if (ending !== undefined) break;
  }
  if (splitter.fault !== undefined) ending ??= { kind: 'cut', why: splitter.fault };
  return { audio: audio.bytes(), usage, ending };
}

/** The decoded audio from one chunk's frames. */
class AudioBuffer {
  readonly #buffer = acquireBuffer();
  readonly #pieces: Buffer[] = [];
  #used = 0;
  #size = 0;

  /** Free space for the next piece. */
  get freeSpace(): Buffer {
    return this.#buffer.subarray(this.#used);
  }

  /** Adds a decoded piece, which may be at the beginning of {@link freeSpace}. */
  add(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#size += piece.length;
    if (piece.buffer === this.#buffer.buffer) this.#used += piece.length;
  }

  /** Returns all decoded audio. */
  bytes(): Buffer {
    return this.#size === this.#used ? filledBuffer(this.#buffer, this.#used) : Buffer.concat(this.#pieces);
  }
}

function endingOf(frame: Frame): Ending | undefined {
  if (frame.kind === 'end') return { kind: 'whole' };
  if (frame.kind === 'error') return { kind: 'failed', failure: frame.failure };
  return frame.kind === 'fault' ? { kind: 'cut', why: frame.why } : undefined;
}
