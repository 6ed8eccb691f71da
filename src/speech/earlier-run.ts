import { dirname } from 'node:path';
import type { Deadline } from '../clock.ts';
import type { ErrorCode, MgwError } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { chargeUsage } from '../jobs/charge-outcome.ts';
import type { JobDeps } from '../jobs/order.ts';
import { interruptedError, pendingError, rejectedError, showCommand } from '../jobs/errors.ts';
import { lockOutput, speechIdentity, bestEffort } from '../jobs/lock-output.ts';
import { isPiece, isSameOutput, pathExists } from '../jobs/output.ts';
import { isRunning, shownState } from '../jobs/reconcile.ts';
import { at, idAt, isObject, type Json, textAt } from '../json.ts';
import {
  failedSpeechError,
  deletedAudioError,
  incompleteError,
  joinedPieceError,
  unknownSpeechError,
} from './errors.ts';
import { leftoverAt } from './file-sink.ts';
import type { AudioSink, SavedAudio } from './sink.ts';
import type { SpeechDeps } from './audio-stream.ts';

/**
 * Delivers the result of an earlier run of the same order. Sends nothing. Waits for a run that is alive in another
 * process.
 * @param options this process's run of the job, the deadline, and the function that locks the output
 * @throws MgwError: exit 5 if the earlier run failed, 8 if it is still running, 9 if it was cut off or its result is
 * gone.
 */
export async function deliverEarlier(
  job: Job,
  { run, deadline, lockSink }: { run: string; deadline: Deadline; lockSink: () => Promise<void> },
  deps: SpeechDeps,
  sink: AudioSink,
): Promise<JobFile | undefined> {
  const latest = await waitForOthers(job, run, deadline, deps);
  await lockSink();
  // The other run may have died before it settled the charge.
  await chargeUsage(latest, deps);
  const part = partOf(latest) ?? (await sink.findLeftover());
  if (latest.state === 'failed') throw earlierRunError(latest, part);
  if (latest.state !== 'succeeded') throw await recordCutOff(latest, part, deps);
  const recovered = await sink.recover(savedSpeech(latest));
  if (recovered === undefined) throw deletedAudioError(latest);
  const { file } = recovered;
  if (file !== undefined) await deps.ledger.append(job.id, { type: 'file', file });
  await bestEffort(deps, () => sink.discard());
  return file;
}

async function waitForOthers(job: Job, run: string, deadline: Deadline, deps: SpeechDeps): Promise<Job> {
  const { clock, ledger, signals } = deps;
  for (let latest = job; ; latest = (await ledger.read(job.id)) ?? latest) {
    if (!isReadElsewhere(latest, run) || hasEnded(latest)) return latest;
    if (deadline.remainingMs() <= 0) throw pendingError(latest, { next: showCommand(latest) });
    await clock.sleep(200, signals.soft).catch(() => {
      throw interruptedError(signals.soft, latest, 'yes');
    });
  }
}

// Whether the other run has finished the job. If the audio is complete, that run must also have published it.
function hasEnded(job: Job): boolean {
  if (job.state !== 'succeeded') return job.state === 'failed';
  return job.files.length > 0 || unpublishedFile(job).length === 0;
}

// Whether another live process is reading the stream. Only the process that sent the request can read it. Other
// processes wait for that process and must not wait for each other.
function isReadElsewhere({ record: { runs, sentBy, lifeOf } }: Job, run: string): boolean {
  return runs.some(
    ({ run: other, owner }) =>
      other !== run &&
      (['pid', 'start', 'host'] as const).every((part) => owner[part] === sentBy?.[part]) &&
      lifeOf(owner) === 'alive',
  );
}

/** Whether a stream began, was charged and did not succeed. Such a stream cannot be resumed (design 8). */
function isFailedStream(job: Job): boolean {
  // A run whose failure is recorded may still be waiting for its caller to receive the error.
  const isOver = job.state === 'failed' || !isRunning(job);
  return job.handle !== undefined && job.state !== 'succeeded' && isOver;
}

// Records that the process reading the stream died. The file that the process wrote is kept.
async function recordCutOff(job: Job, part: string | undefined, deps: SpeechDeps): Promise<MgwError> {
  const error = { code: 'speech_incomplete', message: 'the run ended before the stream was complete' };
  const details = part === undefined ? undefined : { part };
  await deps.ledger.append(job.id, { type: 'finished', state: 'failed', native_status: '', error, details });
  return incompleteError(job, interruptedReason, part, { hasAudio: part !== undefined });
}

const interruptedReason = 'an earlier run of this command ended before the stream was complete';

// A run that died has not recorded the path of its partial audio.
function partOf({ state, details, record: { goals } }: Job): string | undefined {
  if (state === 'failed') return textAt(details as Json, 'part');
  const parts = goals.map(({ output = '-' }) => (output === '-' ? undefined : leftoverAt(output)));
  return parts.find((part) => part !== undefined);
}

/**
 * Returns the error for an earlier run that did not complete the speech: exit 5 after an error frame, else 9.
 * @param part the path of the partial audio; undefined if there is none
 */
function earlierRunError(job: Job, part: string | undefined = partOf(job)): MgwError {
  const hasAudio = part !== undefined || at(job.details as Json, 'audio_bytes') !== undefined;
  if (job.state !== 'failed') return incompleteError(job, interruptedReason, part, { hasAudio });

  const { code = 'task_failed', message = 'the synthesis failed', native_code: nativeCode } = job.error ?? {};
  if (code === 'speech_incomplete')
    return incompleteError(job, `an earlier run ended with: ${message}`, part, { hasAudio });
  return failedSpeechError({ code: code as ErrorCode, message, nativeCode }, job, part);
}

/** Finds the intact file that one of the jobs saved at an output. */
export async function intactFileAt(
  output: string,
  jobs: readonly Job[],
): Promise<{ job: Job; file: JobFile } | undefined> {
  for (const job of jobs) {
    const file = job.files.find(({ path }) => isSameOutput(path, output));
    if (file !== undefined && (await isIntact(file))) return { job, file };
  }
  return undefined;
}

/** Returns the files that may contain the audio of a succeeded job. */
export function savedSpeech(job: Job): SavedAudio[] {
  return [...job.files, ...unpublishedFile(job)];
}

// Returns the unpublished file with the complete audio, as recorded when the stream ended.
function unpublishedFile(job: Job): SavedAudio[] {
  const recorded = at(job.details as Json, 'kept');
  const [path, sha256, bytes] = [textAt(recorded, 'path'), textAt(recorded, 'sha256'), at(recorded, 'bytes')];
  if (!isObject(recorded) || path === undefined || sha256 === undefined || typeof bytes !== 'number')
    return [];
  return [{ path, sha256, bytes, mime: idAt(recorded, 'mime'), isPart: true }];
}

/**
 * Copies the audio of a succeeded job to a new output, from any complete copy on this machine. The gateway stores no
 * speech, so it is not queried.
 * @returns the file; undefined if the audio went to a stream
 * @throws MgwError: exit 9 if no copy exists or it was a piece that was joined, 8 if another process still holds the
 * lock of the output at the deadline, 10 if the audio cannot be saved.
 */
export async function deliverSaved(
  job: Job,
  sink: AudioSink,
  deadline: Deadline,
  deps: JobDeps,
): Promise<JobFile | undefined> {
  const [piece] = job.files;
  if (piece !== undefined && job.files.every((file) => isPiece(job, file) && !pathExists(file.path))) {
    const [, joined] = /^(.+)\.pieces$/.exec(dirname(piece.path)) ?? [];
    if (joined === undefined || pathExists(joined)) throw joinedPieceError(job, piece, joined);
  }
  const lock =
    sink.target && (await lockOutput(sink.target, deps, { identity: speechIdentity, deadline, job }));
  if (lock) sink.lock = lock;
  try {
    const recovered = await sink.recover(savedSpeech(job));
    if (recovered === undefined) throw deletedAudioError(job);
    const { file } = recovered;
    const isNew = file !== undefined && !job.files.some(({ path }) => path === file.path);
    if (isNew) await deps.ledger.append(job.id, { type: 'file', file });
    await bestEffort(deps, () => sink.discard());
    return file;
  } finally {
    if (lock) await bestEffort(deps, () => lock.release());
  }
}

/**
 * Returns the error for a speech job that did not succeed; undefined if it succeeded. The gateway generates speech only
 * while the command runs, so there is nothing to wait for.
 */
export function speechProblem(job: Job): MgwError | undefined {
  if (isFailedStream(job)) return earlierRunError(job);
  if (job.state === 'rejected') return rejectedError(job);
  if (shownState(job) === 'unknown')
    return unknownSpeechError(job, job.error?.message ?? 'The response was lost');
  if (job.state === 'succeeded') return undefined;
  // The job is in progress in another process, or was never sent.
  return pendingError(job, { next: showCommand(job), ...(job.handle === undefined && { charged: 'no' }) });
}
