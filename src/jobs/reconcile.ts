import type { Failure, Reply, SubmitVerdict } from '../exchange.ts';
import type { Job, JobError, JobEvent } from '../job.ts';
import { isObject, type JsonObject } from '../json.ts';
import type { Ledger } from '../ledger/ledger.ts';

const maxTextLength = 4000;

/**
 * Returns a gateway's response in a form that may be recorded and displayed. The key is removed, because gateways quote
 * a key that they refuse. Every string is truncated to 4000 UTF-16 code units.
 */
export function redactTexts<T>(response: T, redact: (text: string) => string): T {
  return redactAll(response, redact) as T;
}

function redactAll(response: unknown, redact: (text: string) => string): unknown {
  if (typeof response === 'string') return redact(response).slice(0, maxTextLength);
  if (Array.isArray(response)) return response.map((each: unknown) => redactAll(each, redact));
  if (typeof response !== 'object' || response === null) return response;
  const members = Object.entries(response).map(([name, value]) => [redact(name), redactAll(value, redact)]);
  return Object.fromEntries(members);
}

/** Returns a failure as the ledger records it. */
export function recordOf({ code, message, nativeCode }: Failure): JobError {
  return { code, message, native_code: nativeCode };
}

/** Returns the event that records the verdict on an attempt. */
export function eventOf(verdict: SubmitVerdict, attempt: number): JobEvent {
  if (verdict.kind === 'accepted') {
    const { handle, nativeStatus, warning } = verdict;
    return { type: 'accepted', handle, native_status: nativeStatus, warning };
  }
  const event = { type: verdict.kind, attempt, error: recordOf(verdict.failure) };
  return verdict.kind === 'unknown' ? { ...event, type: 'unknown', handle: verdict.handle } : event;
}

/** Whether a job was being sent and its sender is not known to be alive. */
export function isAbandoned({ state, record: { sender, lifeOf } }: Job): boolean {
  return state === 'sending' && (sender === undefined || lifeOf(sender) !== 'alive');
}

/**
 * Returns the state to display and to act on. It is `unknown` if the sender may have died and the response was not
 * recorded. It is also `unknown` if the user sent a job in doubt again, and every run that might send it may have died.
 */
export function shownState(job: Job): Job['state'] {
  const isResponseLost = isAbandoned(job) && job.record.pendingReply === undefined;
  const isLeftInDoubt = job.state === 'prepared' && job.record.hasEarlierDoubt === true && !isRunning(job);
  return isResponseLost || isLeftInDoubt ? 'unknown' : job.state;
}

/** Explains a submission without a response whose sender may be alive, for example in another container. */
export const unreachableSenderText =
  'The process that sent it cannot be reached from here and may still be waiting for the response';

/** Explains why a submission has no response. Says that its sender ended only if that is proven. */
export function lostResponseText(job: Job): string {
  return isSenderDead(job) ? 'The process ended before the response arrived' : unreachableSenderText;
}

/** Whether the process that made a job's last attempt is proven to have ended. */
export function isSenderDead({ record: { sentBy, lifeOf } }: Job): boolean {
  return sentBy !== undefined && lifeOf(sentBy) === 'dead';
}

/** Whether a run of the command that paid for a job is known to be alive. */
export function isRunning(job: Job): boolean {
  return liveRuns(job).length > 0;
}

/** Returns the runs of the command that paid for a job that are known to be alive. */
export function liveRuns({ record: { runs, lifeOf } }: Job): Job['record']['runs'] {
  return runs.filter(({ command, owner }) => command === 'submit' && lifeOf(owner) === 'alive');
}

/** Whether nothing was accepted or charged for a job: the gateway refused each attempt, or nothing was sent. */
export function isUnaccepted(job: Job): boolean {
  const state = shownState(job);
  return state === 'rejected' || (state === 'prepared' && !job.record.hasEarlierDoubt);
}

/**
 * Updates a job whose run died to the state that its record proves (design 4). Interprets a response that was recorded
 * but not interpreted. A submission without a recorded response becomes `unknown`. Other jobs are unchanged.
 * @throws MgwError('local_io') if the state cannot be recorded.
 */
export async function reconcile(
  ledger: Ledger,
  job: Job,
  read: (reply: Reply, body: JsonObject) => SubmitVerdict,
): Promise<Job> {
  if (!isUnsettled(job)) return job;
  // Read the record again, because the process may have written to it just before it died.
  const latest = (await ledger.read(job.id)) ?? job;
  const event = isUnsettled(latest) ? provenEvent(latest, read) : undefined;
  if (event === undefined) return latest;
  await ledger.append(job.id, event);
  return (await ledger.read(job.id)) ?? latest;
}

// A damaged record may still contain the response.
function isUnsettled(job: Job): boolean {
  const isUnread = job.state === 'unknown' && job.record.pendingReply !== undefined;
  return isAbandoned(job) || (isUnread && job.handle === undefined);
}

function provenEvent(
  job: Job,
  read: (reply: Reply, body: JsonObject) => SubmitVerdict,
): JobEvent | undefined {
  const { pendingReply, attempts } = job.record;
  const body = isObject(job.request) ? job.request : {};
  const event: JobEvent = pendingReply
    ? eventOf(read(pendingReply, body), attempts)
    : {
        type: 'unknown',
        attempt: attempts,
        error: { code: 'submit_unknown', message: lostResponseText(job) },
      };
  // If the record lacks lines, only a handle proves anything: a rejection may belong to an earlier attempt.
  return job.state === 'unknown' && event.type !== 'accepted' ? undefined : event;
}
