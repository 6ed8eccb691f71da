import { messageOf, MgwError, type Charged, type ErrorDetails } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { asSentence } from '../http/advice.ts';
import type { Job, JobError, JobKind } from '../job.ts';

/** The command that resumes a job, as an argument vector without the global flags. */
export function resumeCommand(job: Job): string[] {
  return job.protocol === 'tts' ? ['mgw', 'jobs', 'show', job.id] : ['mgw', 'jobs', 'wait', job.id];
}

/** The command that fetches a job's result. */
export function fetchCommand(job: { id: string; protocol: JobKind }): string[] {
  return ['mgw', 'video', job.protocol, 'fetch', job.id];
}

/** Exit 7: nothing tells whether the task exists (design 5). */
export function unknownError(job: Job, why: string, requestId?: string): MgwError {
  const speech = job.protocol === 'tts';
  const way = speech
    ? `Speech cannot be fetched afterwards: --new pays for another take. Where the bill shows no charge, "mgw jobs resolve ${job.id} --not-created" lets the same command send it again.`
    : 'Look whether the task exists, then tell mgw: --adopt HANDLE, --not-created or --resubmit.';
  const next = speech ? ['show', job.id] : ['resolve', job.id, '--adopt', 'HANDLE'];
  return new MgwError(
    'submit_unknown',
    `${asSentence(why)} The gateway may have accepted and charged job ${job.id}; it is not sent again. ${way}`,
    { charged: 'maybe', retry: 'never', next: ['mgw', 'jobs', ...next], requestId },
  );
}

/** Exit 3 or 4: the gateway refused the submission; nothing was accepted. */
export function rejectedError(failure: Failure): MgwError {
  const exit = failure.code === 'auth' ? 'auth' : 'rejected';
  return new MgwError(failure.code, failure.message, { exit, charged: 'no', requestId: failure.requestId });
}

/** Exit 5: accepted, and the generation failed. */
export function failedError(job: Job): MgwError {
  const policy = job.error?.code === 'content_policy';
  return new MgwError(
    policy ? 'content_policy' : 'task_failed',
    job.error?.message ?? 'The generation failed.',
    {
      exit: 'failed',
      charged: 'maybe',
      next: ['mgw', 'jobs', 'show', job.id],
    },
  );
}

/** Exit 8: accepted, not finished when the wait ended. `trouble` is why the last query told nothing, if it did not. */
export function pendingError(job: Job, details: ErrorDetails = {}, trouble?: Failure): MgwError {
  const status = job.native_status ? ` (${job.native_status})` : '';
  const where =
    job.state === 'succeeded'
      ? `has succeeded, but its result was not to be had before the wait ended${status}`
      : `is still ${job.state}${status}`;
  const last = trouble === undefined ? '' : ` The last query told nothing new: ${wordsOf(trouble)}`;
  return new MgwError('pending', `Job ${job.id} ${where}.${last}`, {
    charged: 'yes',
    retry: 'resume',
    next: resumeCommand(job),
    ...details,
  });
}

/** What went wrong, short enough for a line. */
export function wordsOf({ message }: Failure): string {
  return message.slice(0, 300);
}

/** A failure's record in the ledger. */
export function recordOf(failure: Failure): JobError {
  return { code: failure.code, message: failure.message, native_code: failure.nativeCode };
}

/** Exit 130 or 143: detached by a signal; the job goes on. */
export function interruptedError(signal: AbortSignal, job: Job | undefined, charged: Charged): MgwError {
  const terminated = signal.reason === 'SIGTERM';
  const text =
    job?.handle === undefined
      ? 'Interrupted before anything was sent.'
      : `Interrupted; job ${job.id} goes on.`;
  return new MgwError('pending', text, {
    exit: terminated ? 'terminated' : 'interrupted',
    charged,
    retry: charged === 'no' ? 'safe' : 'resume',
    next: job && resumeCommand(job),
  });
}

/** Accepted and charged, but the record could not be written: the handle must reach the person (design 5). */
export class UnrecordedHandle extends MgwError {
  readonly handle: string;

  constructor(handle: string, protocol: string, cause: unknown) {
    const text = `The gateway accepted the task as ${handle}, but that could not be recorded: ${messageOf(cause)}`;
    super('local_io', text, {
      charged: 'yes',
      retry: 'never',
      next: ['mgw', 'video', protocol, 'fetch', handle],
      cause,
    });
    this.handle = handle;
  }
}
