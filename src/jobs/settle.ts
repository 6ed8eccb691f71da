import type { Job, JobEvent } from '../job.ts';
import type { Reply, SubmitVerdict } from '../exchange.ts';
import { recordOf } from './errors.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { isAlive } from '../ledger/owner.ts';
import { keptWords } from './words.ts';

/** A verdict as it may be kept and shown (see {@link keptWords}). A handle stays exact. */
export function withoutKey(verdict: SubmitVerdict, redact: (text: string) => string): SubmitVerdict {
  const kept = keptWords(verdict, redact);
  return 'handle' in verdict ? ({ ...kept, handle: verdict.handle } as SubmitVerdict) : kept;
}

/** The event that records a verdict about an attempt. */
export function eventOf(verdict: SubmitVerdict, attempt: number): JobEvent {
  switch (verdict.kind) {
    case 'accepted':
      return {
        type: 'accepted',
        handle: verdict.handle,
        native_status: verdict.nativeStatus,
        warning: verdict.warning,
      };
    case 'rejected':
      return { type: 'rejected', attempt, error: recordOf(verdict.failure) };
    case 'unavailable':
      return { type: 'refused', attempt, error: recordOf(verdict.failure) };
    case 'unknown':
      return { type: 'lost', attempt, error: recordOf(verdict.failure) };
  }
}

/** True where a job is between its first byte and its answer, and the process that sends it is gone. */
export function isAbandoned(job: Job): boolean {
  return job.state === 'sending' && (job.record.sender === undefined || !isAlive(job.record.sender));
}

/**
 * Brings a job whose run died to where its record proves it to be: an answer that was recorded and never read
 * is read now; a submission without a recorded answer is `unknown` (design 4). Other jobs stay as they are.
 * @throws MgwError('local_io') where that cannot be recorded.
 */
export async function settle(
  ledger: Ledger,
  job: Job,
  read: (reply: Reply, body: unknown) => SubmitVerdict,
): Promise<Job> {
  if (!isOpen(job)) return job;
  // Read again behind the sign of death: what the process wrote last must not be overlooked.
  const last = (await ledger.read(job.id)) ?? job;
  const event = isOpen(last) ? proven(last, read) : undefined;
  if (event === undefined) return last;
  if (event.type === 'accepted') await ledger.index('handle', event.handle, job.id);
  await ledger.append(job.id, event);
  return (await ledger.read(job.id)) ?? last;
}

// A damaged record may have kept the answer all the same.
function isOpen(job: Job): boolean {
  const isUnread = job.state === 'unknown' && job.record.pendingReply !== undefined;
  return isAbandoned(job) || (isUnread && job.handle === undefined);
}

function proven(job: Job, read: (reply: Reply, body: unknown) => SubmitVerdict): JobEvent | undefined {
  const { pendingReply, attempts } = job.record;
  const event: JobEvent = pendingReply
    ? eventOf(read(pendingReply, job.request), attempts)
    : {
        type: 'lost',
        attempt: attempts,
        error: { code: 'submit_unknown', message: 'The process ended before the answer came' },
      };
  // Where lines are missing, only a handle proves anything: a refusal may be of an earlier attempt.
  return job.state === 'unknown' && event.type !== 'accepted' ? undefined : event;
}

/** The state to show: a submission whose process is gone and whose answer nobody recorded is `unknown`. */
export function shownState(job: Job): Job['state'] {
  return isAbandoned(job) && job.record.pendingReply === undefined ? 'unknown' : job.state;
}
