import {
  exitCodes,
  messageOf,
  MgwError,
  systemCode,
  usageError,
  type Charged,
  type ErrorCode,
  type ErrorDetails,
} from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { asSentence } from '../http/failures.ts';
import { lostProtocol, nativeWord, type Job, type JobKind } from '../job.ts';
import { interruptionError } from '../payment/errors.ts';
import type { Observation } from '../protocols/protocol.ts';
import { shownState } from './reconcile.ts';

/** Returns the command that waits for a job, as an argument vector without global flags. */
export function waitCommand(job: Job): string[] {
  return ['mgw', 'jobs', 'wait', job.id];
}

// Returns the command that continues a job. If the job has succeeded, a wait would not save its result.
function resumeCommand(job: Job): string[] {
  return job.state === 'succeeded' && job.protocol !== 'tts' ? fetchCommand(job) : waitCommand(job);
}

/** Returns the command that fetches a job's result, or that shows the job if its record has lost the protocol. */
export function fetchCommand(job: { id: string; protocol: JobKind }): string[] {
  if (job.protocol === lostProtocol) return showCommand(job);
  return ['mgw', 'video', job.protocol, 'fetch', job.id];
}

/**
 * Returns the command that fetches the result of a task by its handle. A handle that begins with `-` is put after `--`,
 * so that it is not read as a flag.
 */
export function fetchHandleCommand(protocol: JobKind, handle: string): string[] {
  return ['mgw', 'video', protocol, 'fetch', ...(handle.startsWith('-') ? ['--'] : []), handle];
}

/** Returns the command that shows a job. */
export function showCommand(job: { id: string }): string[] {
  return ['mgw', 'jobs', 'show', job.id];
}

/**
 * Returns the command that resolves a job in doubt. If the handle is unknown, the command asks the user or lists the
 * choices.
 */
export function resolveCommand(job: {
  id: string;
  record?: Pick<Job['record'], 'possibleHandle'>;
}): string[] {
  const handle = job.record?.possibleHandle;
  return ['mgw', 'jobs', 'resolve', job.id, ...(handle === undefined ? [] : ['--adopt', handle])];
}

/** Returns the flag that makes a job's command pay for another take. A key permanently names one submission. */
export function newTakeFlag({ key }: { key?: string | undefined }): string {
  return key === undefined ? '--new' : 'another --key';
}

/** Exit 7: it is unknown whether the task exists (design 5). */
export function unknownError(job: Job, reason: string, requestId?: string): MgwError {
  const text = `${asSentence(reason)} The gateway may have accepted and charged job ${job.id}; it is not sent again.`;
  const advice = 'Find out whether the task exists, then resolve the job.';
  return new MgwError('submit_unknown', `${text} ${advice}`, {
    charged: 'maybe',
    retry: 'never',
    next: resolveCommand(job),
    requestId,
    job,
  });
}

/** Exit 2: the same request was submitted under a different key, which the caller may not know. Nothing was sent. */
export function otherKeyError(job: Job, doubt: 'sending' | 'unreported'): MgwError {
  const name = job.key === undefined ? 'without a key' : `under the key ${job.key}`;
  const state =
    doubt === 'sending'
      ? 'is still being sent'
      : 'was accepted, although its caller may not have received the response';
  const [batch, id] = job.key?.split('/') ?? [];
  const again =
    id === undefined ? `Call again with the key ${batch ?? ''}` : `Run the batch ${batch ?? ''} again`;
  const advice = job.key === undefined ? '' : ` ${again}: this does not pay twice.`;
  const text = `The same request was submitted ${name} as job ${job.id}, which ${state}. Nothing was sent.${advice}`;
  return new MgwError('conflict', text, { charged: 'no', retry: 'never', next: showCommand(job), job });
}

/** Exit 3 or 4: the gateway rejected the submission; nothing was accepted. */
export function rejectedError(job: Job): MgwError {
  const { code = 'invalid_request', message = 'The gateway rejected the submission.' } = job.error ?? {};
  return new MgwError(code as ErrorCode, message, { exit: code === 'auth' ? 'auth' : 'rejected', job });
}

/** Exit 5: the gateway accepted the job, but the generation failed. */
export function failedError(job: Job): MgwError {
  const code = job.error?.code === 'content_policy' ? 'content_policy' : 'task_failed';
  const message = job.error?.message ?? 'The generation failed.';
  return new MgwError(code, message, { exit: 'failed', charged: 'maybe', next: showCommand(job), job });
}

/** Exit 8: the job had not finished when the wait ended. `trouble` is the last query's failure, if it failed. */
export function pendingError(job: Job, details: ErrorDetails = {}, trouble?: Failure): MgwError {
  const word = nativeWord(job);
  const status = word === undefined ? '' : ` (${word})`;
  const outcome =
    job.state === 'succeeded'
      ? `has succeeded, but its result could not be fetched before the wait ended${status}`
      : `is still ${job.state}${status}`;
  const lastFailure = trouble === undefined ? '' : ` The last status query failed: ${shortMessage(trouble)}`;
  const { isUnconfirmed = false } = job.record;
  const doubt = isUnconfirmed
    ? ' The gateway has never returned the adopted task, so its handle may be wrong.'
    : '';
  return new MgwError('pending', `Job ${job.id} ${outcome}.${lastFailure}${doubt}`, {
    charged: isUnconfirmed ? 'maybe' : 'yes',
    retry: 'resume',
    next: resumeCommand(job),
    job,
    ...details,
  });
}

/** Returns a failure's message, truncated to 300 characters. */
export function shortMessage({ message }: Failure): string {
  return message.slice(0, 300);
}

/** Exit 130 or 143: a signal ended the wait. The job continues. */
export function interruptedError(signal: AbortSignal, job: Job | undefined, charged: Charged): MgwError {
  const text =
    job?.handle === undefined
      ? 'Interrupted before anything was sent.'
      : `Interrupted; job ${job.id} continues at the gateway.`;
  return interruptionError(signal, charged, text).with({ next: job && resumeCommand(job), job });
}

/**
 * Completes an error that occurred after a job was accepted: if the ledger is unavailable, the returned error reports
 * that the job was charged. Without a job, returns the error unchanged.
 */
export function acceptedJobError(error: unknown, job: Job | undefined): unknown {
  if (job === undefined || !(error instanceof MgwError)) return error;
  if (error.code !== 'unreachable' || error.charged !== 'no') return error;
  return error.with({
    charged: 'yes',
    retry: 'resume',
    job: error.job?.handle === undefined ? job : error.job,
  });
}

/** Exit 10: the job was charged, but its handle could not be recorded, so the user must see the handle (design 5). */
export function unrecordedHandleError(handle: string, job: Job, cause: unknown): MgwError {
  const text = `The gateway accepted the task as ${handle}, but the handle could not be recorded: ${messageOf(cause)}`;
  return new MgwError('local_io', text, {
    charged: 'yes',
    retry: 'never',
    next: resolveCommand({ id: job.id, record: { possibleHandle: handle } }),
    cause,
    job,
    handle,
  });
}

/**
 * Returns the error of a run whose job was removed in the meantime. Only the handle still identifies the task, so the
 * user must see the handle. Repeating the command would pay again.
 */
export function removedJobError(error: MgwError, job: Job): MgwError {
  const { id, protocol } = job;
  const handle = error.handle ?? job.handle;
  if (handle === undefined || protocol === 'tts') return error.with({ job });
  const reason = systemCode(error) === 'ENOENT' ? '' : `${asSentence(error.message)} `;
  const text = `${reason}Job ${id} was removed while this command ran. Its task is ${handle}.`;
  const next = fetchHandleCommand(protocol, handle);
  return error.with({ charged: 'yes', retry: 'never', next, job, handle }, text);
}

/**
 * Returns the error for a job that cannot be queried because it has no handle: exit 3 or 4 if the job was rejected, 6
 * if it was never sent, 7 if its response was lost, 8 if another process is sending it.
 */
export function noHandleError(job: Job): MgwError {
  if (job.state === 'rejected') return rejectedError(job);
  if (shownState(job) === 'sending') return pendingError(job, { charged: 'maybe' });
  if (shownState(job) !== 'prepared') return unknownError(job, job.error?.message ?? 'The response was lost');
  const { runs, lifeOf } = job.record;
  // If the command that created the job is still running, running it again would make a second take.
  const isRunning = runs.some(({ owner }) => lifeOf(owner) === 'alive');
  const text = isRunning
    ? `Job ${job.id} has not been sent yet. The command that created it is still running and will send it.`
    : `Job ${job.id} was never sent. To send it, repeat the command that created it.`;
  const charged = job.record.hasEarlierDoubt === true ? 'maybe' : 'no';
  return new MgwError('unreachable', text, { charged, retry: 'safe', next: showCommand(job), job });
}

/** Exit 9: the gateway reports that the job finished, but returned no result (design 6). */
export function noResultError(job: Job, { nativeStatus, warning, requestId }: Observation): MgwError {
  const statusSuffix = nativeStatus === '' ? '' : ` (${nativeStatus})`;
  const text = `Job ${job.id} finished${statusSuffix}, but the gateway returned no result${warning === undefined ? '.' : `: ${warning}`}`;
  return new MgwError('result_unavailable', text, {
    charged: 'yes',
    retry: 'resume',
    next: showCommand(job),
    requestId,
  });
}

/** Throws the error for a REF without a job. */
export function noSuchJob(ref: string): never {
  throw usageError(`No such job: ${ref}.`, ['mgw', 'jobs', 'ls']);
}

/**
 * Whether an error affects only one file or source, so others can still be fetched. A full disk affects all of them.
 */
export function isLoss(error: unknown): error is MgwError {
  const lossExitCodes: number[] = [exitCodes.auth, exitCodes.unavailable, exitCodes.incomplete];
  return error instanceof MgwError && lossExitCodes.includes(error.exitCode);
}

/** Returns the error (exit 9) for a result that is not, or no longer, available. */
export function goneError(failure: Failure, job: Job): MgwError {
  return new MgwError('result_unavailable', `The result of ${job.id} is not available: ${failure.message}`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
    requestId: failure.requestId,
  });
}
