import type { Deadline } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { StreamedReply } from '../http/client.ts';
import type { Job, JobError, JobEvent, JobFile } from '../job.ts';
import type { JobDeps } from '../jobs/deps.ts';
import { recordOf } from '../jobs/reconcile.ts';
import { failedSpeechError, incompleteError, unrecordedError, unwritableError } from './errors.ts';
import { receive, type Ending } from './receive.ts';
import type { AudioSink } from './sink.ts';

/** What speaking works with, besides what every job does. */
export interface SpeechDeps extends JobDeps {
  /** How long a stream may be silent, ms; a minute if absent. */
  idleTimeoutMs?: number;
  /** Told of the audio so far, bytes. */
  onAudio?: (bytes: number) => void;
}

/** For several streams at once: they have the same thing to say when they are interrupted, and say it once. */
export function quietly(deps: SpeechDeps): SpeechDeps {
  const said = new Set<string>();
  const note = (text: string): void => {
    if (!said.has(text)) deps.note(text);
    said.add(text);
  };
  return { ...deps, note, onAudio: undefined };
}

/** The default time in ms that a stream may be silent. */
export const defaultIdleMs = 60_000;

/** An open stream that was paid for, and where its audio goes. */
export interface Take {
  stream: StreamedReply;
  sink: AudioSink;
  /** When it is given up. */
  deadline: Deadline;
}

type TakeEnd = Ending | { kind: 'unwritable'; error: unknown };
type Broken = Exclude<TakeEnd, { kind: 'whole' }>;

/**
 * Reads a stream to its end, records how it ended, and publishes the audio if it is whole.
 * @returns the file, undefined if the audio went to a stream
 * @throws MgwError: exit 5, 9 or 10; what came is kept where the error says.
 */
export async function finishTake(take: Take, job: Job, deps: SpeechDeps): Promise<JobFile | undefined> {
  const { end, kept, bytes } = await listen(take, deps, job.id);
  if (end.kind !== 'whole') throw await giveUp(end, bytes, take, job, deps);
  // Where the audio is goes on record first: a run that dies before it is published is finished by the next.
  const event: JobEvent = {
    type: 'finished',
    state: 'succeeded',
    native_status: '20000000',
    usage: end.usage,
    details: kept && { kept },
  };
  const trouble = await deps.ledger.append(job.id, event).catch((error: unknown) => ({ error }));
  const file = kept && (await take.sink.publish(kept));
  if (trouble) throw unrecordedError(trouble.error, file, 'It was written to the output.');
  if (file !== undefined) await deps.ledger.append(job.id, { type: 'file', file });
  return file;
}

/** Saves a stream whose beginning could not be recorded; gives the error that tells both. */
export async function saveUnrecorded(take: Take, why: unknown, deps: SpeechDeps): Promise<unknown> {
  const { end, kept } = await listen(take, deps);
  if (end.kind === 'whole') {
    const file = kept && (await take.sink.publish(kept));
    return unrecordedError(why, file, 'It was written to the output.');
  }
  const part = await take.sink.abandon();
  return unrecordedError(why, undefined, `What came is not whole${part === undefined ? '' : `: ${part}`}.`);
}

/** How a stream ended, the audio if it is whole, and how much of it came, bytes. */
interface Heard {
  end: TakeEnd;
  kept?: JobFile;
  bytes: number;
}

async function listen(take: Take, deps: SpeechDeps, name = 'not recorded'): Promise<Heard> {
  const { idleTimeoutMs: idleMs = defaultIdleMs, signals } = deps;
  const patience = (): void =>
    deps.note(`The speech (${name}) is paid for and is finished first; interrupt again to give it up.`);
  signals.soft.addEventListener('abort', patience);
  let bytes = 0;
  const write = async (audio: Uint8Array): Promise<void> => {
    await take.sink.write(audio);
    deps.onAudio?.((bytes += audio.length));
  };
  try {
    const { body, clean } = take.stream;
    const end = await receive(body, write, { idleMs, deadline: take.deadline, clean });
    return { end, bytes, kept: end.kind === 'whole' ? await take.sink.complete() : undefined };
  } catch (error) {
    return { end: { kind: 'unwritable', error }, bytes };
  } finally {
    signals.soft.removeEventListener('abort', patience);
    take.stream.close();
  }
}

async function giveUp(end: Broken, bytes: number, take: Take, job: Job, deps: SpeechDeps): Promise<unknown> {
  const kept = await take.sink.abandon();
  const { code, message, native_code } = recordFor(end);
  const error = {
    code,
    message: deps.redact(message).slice(0, 4000),
    native_code: native_code && deps.redact(native_code),
  };
  // Audio that came was charged, whatever came after it.
  const details = bytes > 0 || kept ? { part: kept, audio_bytes: bytes } : undefined;
  const event: JobEvent = {
    type: 'finished',
    state: 'failed',
    native_status: error.native_code ?? '',
    error,
    details,
  };
  await deps.ledger.append(job.id, event).catch((reason: unknown) => {
    deps.note(`How the speech ended could not be recorded: ${messageOf(reason)}`);
  });
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
