import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import type { Failure, SpooledMedia } from '../exchange.ts';
import type { Job } from '../job.ts';
import type { Observation, Protocol, QueryVerdict } from '../protocols/protocol.ts';
import { asSentence } from '../http/failures.ts';
import { backoffMs, pollPauseMs } from '../http/retry.ts';
import {
  failedError,
  goneError,
  interruptedError,
  noResultError,
  pendingError,
  shortMessage,
} from './errors.ts';
import type { JobDeps } from './order.ts';
import { hasResult, observe, type PollResult, type OpenSink } from './observe.ts';

/** The time after a submission during which "not found" proves nothing, in ms (design 6). */
const notFoundGraceMs = 60_000;

/** The number of consecutive failures that the gateway may report for a job with a recorded success. */
const maxRevocations = 10;

/** The longest pause that a successful status response can request, in ms. */
const maxRequestedPauseMs = 300_000;

/** How long to wait, and how often to poll. */
export interface WatchOptions {
  /** When to stop waiting. A poll whose response stalls also ends then. */
  deadline: Deadline;
  /** Minimum delay between two polls, in ms. Delays grow to twice this value. */
  intervalMs: number;
  /** Whether to poll immediately. Otherwise, the first poll follows after one interval. */
  isImmediate: boolean;
  onUpdate?: (job: Job) => void;
  openSink?: OpenSink;
}

/** A job that succeeded with results to fetch, and its last observation. */
export interface WatchedJob {
  job: Job;
  observation: Observation;
  spooled: SpooledMedia[];
}

/**
 * Polls a job until it has succeeded, and returns the successful observation. Backs off after 429, 5xx, network errors
 * and unreadable responses. Sends nothing that costs money.
 * @throws MgwError: exit 5 failed, 8 at the deadline, 3 if the key is refused, 9 if the task is still not found after
 * the grace period, finished with nothing to fetch, or keeps failing after a recorded success, 130/143 interrupted.
 */
export async function watch(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  options: WatchOptions,
): Promise<WatchedJob> {
  let current = job;
  let failedPolls = 0;
  let revocations = 0;
  const startedAt = deps.clock.monotonic();
  // Use the monotonic clock, because the time of day may be changed during the wait. The time of day is used only for a
  // job that was submitted before the wait.
  const isNew = (): boolean =>
    current.state !== 'succeeded' &&
    deps.clock.monotonic() - startedAt <= notFoundGraceMs &&
    (!options.isImmediate || isTooNew(current, deps.clock.now()));
  const warn = onChange(deps.note);
  if (!options.isImmediate) await pause(deps, current, options, options.intervalMs);
  for (let polls = 0; ; polls += 1) {
    const result = await poll(current, protocol, deps, options);
    current = result.job;
    options.onUpdate?.(current);
    const { verdict } = result;
    if (verdict.kind === 'observation') {
      if (verdict.state === 'succeeded' && !hasResult(verdict)) throw noResultError(current, verdict);
      warn(verdict.warning);
      if (verdict.state === 'succeeded')
        return { job: current, observation: verdict, spooled: result.spooled };
      // Otherwise, poll again: a failure does not undo a recorded success (design 6), and another process may have
      // recorded that the failure was revoked.
      if (verdict.state === 'failed' && current.state === 'failed') throw failedError(current);
      revocations = verdict.state === 'failed' ? revocations + 1 : 0;
      if (revocations > maxRevocations) throw revokedError(current, verdict);
    } else {
      throwIfFinal(verdict, current, isNew());
    }
    failedPolls = verdict.kind === 'again' ? failedPolls + 1 : 0;
    const failure = verdict.kind === 'observation' ? undefined : verdict.failure;
    if (failure && failedPolls > 1)
      warn(`${current.id}: the status query failed (${shortMessage(failure)}); trying again.`);
    const minPauseMs = Math.max(
      Math.min(result.retryAfterMs ?? 0, maxRequestedPauseMs),
      delayAfter(verdict, failedPolls, options.intervalMs),
    );
    const pauseMs = Math.max(minPauseMs, pollPauseMs(polls, options.intervalMs));
    await pause(deps, current, options, pauseMs, failure);
  }
}

/**
 * Whether a job was submitted so recently that "not found" proves nothing; `now` is in ms since 1970. False for a job
 * that has succeeded, because the gateway knew its task.
 */
export function isTooNew(job: Job, now: number): boolean {
  if (job.state === 'succeeded') return false;
  const since = Date.parse(job.submitted_at ?? '');
  return !Number.isNaN(since) && now - since <= notFoundGraceMs;
}

async function poll(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  { openSink, deadline }: WatchOptions,
): Promise<PollResult> {
  try {
    return await observe(job, protocol, deps, openSink, deadline);
  } catch (error) {
    if (deps.signals.soft.aborted) throw interruptedError(deps.signals.soft, job, 'yes');
    throw error;
  }
}

function delayAfter(verdict: QueryVerdict, failedPolls: number, intervalMs: number): number {
  if (verdict.kind === 'observation') return 0;
  const { retryAfterMs = 0 } = verdict.failure;
  // 30 s for the default interval of 5 s; less for the shorter intervals that loopback allows.
  const capMs = Math.min(30_000, 6 * intervalMs);
  const backoff = failedPolls > 1 ? backoffMs(failedPolls - 1, { baseMs: intervalMs, capMs }) : 0;
  return Math.max(retryAfterMs, backoff);
}

function throwIfFinal(verdict: Exclude<QueryVerdict, Observation>, job: Job, isNew: boolean): void {
  if (verdict.kind === 'unauthorized') throw refusedError(verdict.failure, job);
  if (verdict.kind === 'missing' && !isNew) throw lostTaskError(verdict.failure, job);
}

// The result of a finished task may have expired, which some gateways report as a failure of the task.
function revokedError(job: Job, { failure, nativeStatus }: Observation): MgwError {
  const message = `the gateway reported success, but now reports: ${failure?.message ?? nativeStatus}`;
  return goneError({ code: 'result_unavailable', requestId: failure?.requestId, message }, job);
}

// Omits repeated lines, because polls may repeat the same warning every few seconds.
function onChange(note: (text: string) => void): (text: string | undefined) => void {
  let last: string | undefined;
  return (text) => {
    if (text !== undefined && text !== last) note(text);
    last = text ?? last;
  };
}

/** Returns the error (exit 3) for a key that is refused although the job was accepted. A valid key resumes the job. */
export function refusedError(failure: Failure, job: Job): MgwError {
  return new MgwError('auth', `The gateway refused the key: ${failure.message}`, {
    charged: 'yes',
    retry: 'resume',
    next: ['mgw', 'auth', 'status'],
    job,
    requestId: failure.requestId,
  });
}

/**
 * Returns the error (exit 9) for a task that the gateway does not know, has deleted, or does not return for this key.
 */
export function lostTaskError(failure: Failure, job: Job): MgwError {
  const { isUnconfirmed = false } = job.record;
  const text = `The gateway does not know the task ${job.handle ?? ''} (expired, mistyped, or submitted with a different key): ${failure.message}`;
  const advice = ` The gateway has never returned a task for this adopted handle. If the handle is wrong, resolve the job again.`;
  return new MgwError('not_found', isUnconfirmed ? `${asSentence(text)}${advice}` : text, {
    exit: 'incomplete',
    charged: isUnconfirmed ? 'maybe' : 'yes',
    retry: 'never',
    next: ['mgw', 'jobs', isUnconfirmed ? 'resolve' : 'show', job.id],
    requestId: failure.requestId,
  });
}

// The last pause ends at the deadline, so one more poll follows.
async function pause(
  deps: JobDeps,
  job: Job,
  options: WatchOptions,
  ms: number,
  failure?: Failure,
): Promise<void> {
  if (options.deadline.remainingMs() <= 0) throw pendingError(job, {}, failure);
  await deps.clock
    .sleep(Math.min(ms, options.deadline.remainingMs()), deps.signals.soft)
    .catch((error: unknown) => {
      if (deps.signals.soft.aborted) throw interruptedError(deps.signals.soft, job, 'yes');
      throw error;
    });
}
