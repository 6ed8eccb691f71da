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

/** The dependencies of speech. */
export interface SpeechDeps extends JobDeps {
  /** How long a stream may be silent, ms; a minute if absent. */
  idleTimeoutMs?: number;
  /** Called with the number of bytes of audio so far. */
  onAudio?: (bytes: number) => void;
}

/** Returns the dependencies of several concurrent streams. Each note is shown once, not once for each stream. */
export function withoutRepeats(deps: SpeechDeps): SpeechDeps {
  const said = new Set<string>();
  const note = (text: string): void => {
    if (!said.has(text)) deps.note(text);
    said.add(text);
  };
  return { ...deps, note, onAudio: undefined };
}

/** The default time in ms that a stream may be silent. */
export const defaultIdleMs = 60_000;

/** An open stream that was paid for, and the sink of its audio. */
export interface AudioStream {
  reply: StreamedReply;
  sink: AudioSink;
  /** When reading stops. */
  deadline: Deadline;
}

type StreamEnd = StreamOutcome | { kind: 'unwritable'; error: unknown; usage?: undefined };
type Broken = Exclude<StreamEnd, { kind: 'whole' }>;

/**
 * Reads a stream to its end, records how it ended, and publishes the audio if it is whole.
 * @returns the file, undefined if the audio went to a stream
 * @throws MgwError: exit 5, 9 or 10. The message names the file that keeps the audio.
 */
export async function finishStream(
  audio: AudioStream,
  job: Job,
  deps: SpeechDeps,
): Promise<JobFile | undefined> {
  const { end, kept, bytes } = await listen(audio, deps, job.id);
  if (end.kind !== 'whole') throw await giveUp(end, bytes, audio, job, deps);
  // The path of the audio is recorded first. If this run dies before publishing, the next one can publish it.
  const event: JobEvent = {
    type: 'finished',
    state: 'succeeded',
    native_status: '20000000',
    usage: end.usage,
    details: kept && { kept },
  };
  const trouble = await deps.ledger.append(job.id, event).catch((error: unknown) => ({ error }));
  await chargeUsage({ ...job, state: 'succeeded', usage: end.usage }, deps);
  const file = kept && (await audio.sink.publish(kept));
  if (file !== undefined && !trouble) await deps.ledger.append(job.id, { type: 'file', file });
  await bestEffort(deps, () => audio.sink.discard());
  if (trouble) throw unrecordedError(trouble.error, file, 'It was written to the output.');
  return file;
}

/** Saves a stream whose start could not be recorded. Returns the error that reports both. */
export async function saveUnrecorded(
  audio: AudioStream,
  why: unknown,
  job: Job,
  deps: SpeechDeps,
): Promise<unknown> {
  const { end, kept } = await listen(audio, deps);
  await chargeUsage({ ...job, state: end.kind === 'whole' ? 'succeeded' : 'failed', usage: end.usage }, deps);
  if (end.kind === 'whole') {
    const file = kept && (await audio.sink.publish(kept));
    await bestEffort(deps, () => audio.sink.discard());
    return unrecordedError(why, file, 'It was written to the output.');
  }
  const part = await audio.sink.abandon();
  return unrecordedError(why, undefined, `The audio is incomplete${part === undefined ? '' : `: ${part}`}.`);
}

/** How a stream ended, the file of the audio if it is whole, and the bytes of audio that arrived. */
interface Received {
  end: StreamEnd;
  kept?: JobFile;
  bytes: number;
}

async function listen(audio: AudioStream, deps: SpeechDeps, name = 'not recorded'): Promise<Received> {
  const { idleTimeoutMs: idleMs = defaultIdleMs, signals } = deps;
  const explainWait = (): void =>
    deps.note(`The speech (${name}) is paid for, so mgw finishes it first. Interrupt again to give it up.`);
  signals.soft.addEventListener('abort', explainWait);
  let bytes = 0;
  const write = async (chunk: Uint8Array): Promise<void> => {
    await audio.sink.write(chunk);
    deps.onAudio?.((bytes += chunk.length));
  };
  try {
    const { body, clean } = audio.reply;
    const end = await receive(body, write, { idleMs, deadline: audio.deadline, clean });
    return { end, bytes, kept: end.kind === 'whole' ? await audio.sink.complete() : undefined };
  } catch (error) {
    return { end: { kind: 'unwritable', error }, bytes };
  } finally {
    signals.soft.removeEventListener('abort', explainWait);
    audio.reply.close();
  }
}

async function giveUp(
  end: Broken,
  bytes: number,
  audio: AudioStream,
  job: Job,
  deps: SpeechDeps,
): Promise<unknown> {
  const kept = await audio.sink.abandon();
  const { code, message, native_code } = recordFor(end);
  const error = {
    code,
    message: deps.redact(message).slice(0, 4000),
    native_code: native_code && deps.redact(native_code),
  };
  // Audio that arrived was charged, even if the stream then failed.
  const details = bytes > 0 || kept ? { part: kept, audio_bytes: bytes } : undefined;
  const event: JobEvent = {
    type: 'finished',
    state: 'failed',
    native_status: error.native_code ?? '',
    error,
    usage: end.usage,
    details,
  };
  await deps.ledger.append(job.id, event).catch((reason: unknown) => {
    deps.note(`How the speech ended could not be recorded: ${messageOf(reason)}`);
  });
  await chargeUsage({ ...job, state: 'failed', usage: end.usage }, deps);
  return errorFor(end, job, kept, deps);
}

function recordFor(end: Broken): JobError {
  if (end.kind === 'failed') return recordOf(end.failure);
  return { code: 'speech_incomplete', message: end.kind === 'cut' ? end.why : messageOf(end.error) };
}

function errorFor(end: Broken, job: Job, kept: string | undefined, deps: SpeechDeps): unknown {
  if (end.kind === 'failed') return failedSpeechError(end.failure, job, kept);
  if (end.kind === 'unwritable') return unwritableError(end.error, job, kept);
  return incompleteError(job, end.why, kept, { signals: deps.signals });
}

/** How a stream of speech ended (specification 3.4). */
type StreamOutcome = Ending & {
  /** The latest usage that arrived, before the end frame or with it (specification 2.6). */
  usage?: JsonObject;
};

type Ending =
  | { kind: 'whole' }
  /** An error frame, possibly after audio. */
  | { kind: 'failed'; failure: Failure }
  /** Any end that does not prove success. The audio may be incomplete. */
  | { kind: 'cut'; why: string };

/** The limits of a stream: its time, and the size of its frames. */
interface StreamLimits extends TimeLimits {
  /** The maximum size of a frame, bytes; the default of {@link FrameSplitter} if absent. */
  maxFrameBytes?: number;
  /** Removes secrets from text of the stream that is shown. */
  clean?: ((text: string) => string) | undefined;
}

/**
 * Reads a stream of speech up to its end frame, its first fault or its end, and passes each piece of audio to `write`
 * as it arrives, in order. The time of `write` does not count as idle time. Nothing after the end frame is read.
 * @throws the errors of `write`
 */
export async function receive(
  body: AsyncIterable<Uint8Array>,
  write: (audio: Uint8Array) => Promise<void>,
  limits: StreamLimits,
): Promise<StreamOutcome> {
  const splitter = new FrameSplitter(limits.maxFrameBytes, limits.clean);
  const seen: Pick<StreamOutcome, 'usage'> = {};
  let why: string | undefined;
  try {
    const ending = await readAudio(withIdleTimeout(body, limits), write, splitter, seen);
    if (ending !== undefined) return { ...ending, ...seen };
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    why = messageOf(error);
  }
  splitter.end();
  return { kind: 'cut', why: why ?? splitter.fault ?? 'the stream ended without its end frame', ...seen };
}

async function readAudio(
  body: AsyncIterable<Uint8Array>,
  write: (audio: Uint8Array) => Promise<void>,
  splitter: FrameSplitter,
  seen: Pick<StreamOutcome, 'usage'>,
): Promise<Ending | undefined> {
  let hasAudio = false;
  for await (const chunk of body) {
    const { audio, ending, usage } = readFrames(splitter, chunk);
    releaseBuffer(chunk);
    if (usage !== undefined) seen.usage = usage;
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
  const audio = new Audio();
  let usage: JsonObject | undefined;
  let ending: Ending | undefined;
  for (const frame of splitter.push(chunk)) {
    const read = readFrame(frame, audio.room);
    if ('bytes' in read && read.bytes !== undefined) audio.add(read.bytes);
    if ('usage' in read) usage = read.usage ?? usage;
    ending = endingOf(read);
    if (ending !== undefined) break;
  }
  if (splitter.fault !== undefined) ending ??= { kind: 'cut', why: splitter.fault };
  return { audio: audio.bytes(), usage, ending };
}

/** The decoded audio of the frames of one chunk. */
class Audio {
  readonly #buffer = acquireBuffer();
  readonly #pieces: Buffer[] = [];
  #used = 0;
  #size = 0;

  /** Free space for the next piece. */
  get room(): Buffer {
    return this.#buffer.subarray(this.#used);
  }

  /** Adds a decoded piece, which may be at the beginning of {@link room}. */
  add(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#size += piece.length;
    if (piece.buffer === this.#buffer.buffer) this.#used += piece.length;
  }

  /** Returns the whole audio. */
  bytes(): Buffer {
    return this.#size === this.#used ? filledBuffer(this.#buffer, this.#used) : Buffer.concat(this.#pieces);
  }
}

function endingOf(frame: Frame): Ending | undefined {
  if (frame.kind === 'end') return { kind: 'whole' };
  if (frame.kind === 'error') return { kind: 'failed', failure: frame.failure };
  return frame.kind === 'fault' ? { kind: 'cut', why: frame.why } : undefined;
}
