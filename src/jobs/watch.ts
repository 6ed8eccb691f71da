import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import type { Failure, SpooledMedia } from '../exchange.ts';
import type { Job } from '../job.ts';
import type { Observation, Protocol, QueryVerdict } from '../protocols/protocol.ts';
import { backoffMs } from '../http/backoff.ts';
import { failedError, fetchCommand, interruptedError, noResult, pendingError, wordsOf } from './errors.ts';
import type { JobDeps } from './deps.ts';
import { isInGrace, isTooNew } from './grace.ts';
import { hasResult, observe, type Observed, type OpenSink } from './observe.ts';
import { PollPacer } from './poll-pacer.ts';

/** How long a wait goes on, and how closely it looks. */
export interface WatchOptions {
  /** When to give up. */
  deadline: Deadline;
  /** The least pause between two polls, ms; it grows to twice that. */
  intervalMs: number;
  /** True asks at once; else the first poll comes one interval after the submission. */
  atOnce: boolean;
  onUpdate?: (job: Job) => void;
  openSink?: OpenSink;
}

/** A job that has succeeded with something to fetch, and what was seen of it. */
export interface Watched {
  job: Job;
  observation: Observation;
  spooled: SpooledMedia[];
}

/**
 * Polls a job until a verdict and gives its successful observation. 429, 5xx, network errors and unreadable
 * answers back off; nothing here sends anything that costs money.
 * @throws MgwError: exit 5 failed, 8 at the deadline, 3 where the key is refused, 9 where the task is not found
 * for longer than the grace, or finished with nothing to fetch, 130/143 interrupted.
 */
export async function watch(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  options: WatchOptions,
): Promise<Watched> {
  let current = job;
  let troubles = 0;
  const begun = deps.clock.monotonic();
  // The time of day may be set while this waits; it is looked at only for a job that was submitted before that.
  const isNew = (): boolean =>
    isInGrace(deps.clock.monotonic() - begun) && (!options.atOnce || isTooNew(current, deps.clock.now()));
  const warn = onChange(deps.note);
  const pacer = new PollPacer(job, deps, options.intervalMs);
  if (!options.atOnce) await pause(deps, current, options, () => pacer.pauseMs(0));
  for (let looks = 1; ; looks += 1) {
    const seen = await asked(current, protocol, deps, options, pacer);
    current = seen.job;
    options.onUpdate?.(current);
    const { verdict } = seen;
    if (verdict.kind === 'observation') {
      if (verdict.state === 'succeeded' && !hasResult(verdict)) throw noResult(current, verdict);
      warn(verdict.warning);
      if (verdict.state === 'succeeded') return { job: current, observation: verdict, spooled: seen.spooled };
      // A success that was seen before outlives a status that goes back (design 6): its result is asked for again.
      if (verdict.state === 'failed' && current.state !== 'succeeded') throw failedError(current);
    } else {
      endOn(verdict, current, isNew());
    }
    troubles = verdict.kind === 'again' ? troubles + 1 : 0;
    const trouble = verdict.kind === 'observation' ? undefined : verdict.failure;
    if (trouble && troubles > 1) warn(`${current.id}: no news (${wordsOf(trouble)}); asking again.`);
    const atLeast = delayAfter(verdict, troubles, options.intervalMs);
    await pause(deps, current, options, async () => Math.max(atLeast, await pacer.pauseMs(looks)), trouble);
  }
}

async function asked(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  options: WatchOptions,
  pacer: PollPacer,
): Promise<Observed> {
  const begunMs = pacer.passedMs;
  try {
    const seen = await observe(job, protocol, deps, options.openSink, () => pacer.gapMs);
    if (seen.verdict.kind === 'observation' && job.state !== 'succeeded')
      await pacer.saw(seen.verdict, begunMs);
    return seen;
  } catch (error) {
    if (deps.signals.soft.aborted) throw interruptedError(deps.signals.soft, job, 'yes');
    throw error;
  }
}

function delayAfter(verdict: QueryVerdict, troubles: number, intervalMs: number): number {
  if (verdict.kind === 'observation') return 0;
  const { retryAfterMs = 0 } = verdict.failure;
  // Thirty seconds for the usual five: on loopback, where less may be asked for, no news is no reason to sleep long.
  const capMs = Math.min(30_000, 6 * intervalMs);
  const backoff = troubles > 1 ? backoffMs(troubles - 1, { baseMs: intervalMs, capMs }) : 0;
  return Math.max(retryAfterMs, backoff);
}

function endOn(verdict: Exclude<QueryVerdict, Observation>, job: Job, isNew: boolean): void {
  if (verdict.kind === 'unauthorized') throw refusedError(verdict.failure, job);
  if (verdict.kind === 'missing' && !isNew) throw lostTask(verdict.failure, job);
}

// A poll may say the same every few seconds.
function onChange(note: (text: string) => void): (text: string | undefined) => void {
  let last: string | undefined;
  return (text) => {
    if (text !== undefined && text !== last) note(text);
    last = text ?? last;
  };
}

/** Exit 3: the key is refused for a job that was accepted; a good key resumes it. */
export function refusedError(failure: Failure, job: Job): MgwError {
  return new MgwError('auth', `The key is refused: ${failure.message}`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
    requestId: failure.requestId,
  });
}

/** Exit 9: the gateway does not know the task, or no longer, or not for this key. */
export function lostTask(failure: Failure, job: Job): MgwError {
  const text = `The gateway does not know the task ${job.handle ?? ''} (expired, mistyped, or submitted with another key): ${failure.message}`;
  return new MgwError('not_found', text, {
    exit: 'incomplete',
    charged: 'yes',
    retry: 'never',
    next: ['mgw', 'jobs', 'show', job.id],
    requestId: failure.requestId,
  });
}

// The last pause is cut at the deadline, so that one more look is taken there.
async function pause(
  deps: JobDeps,
  job: Job,
  options: WatchOptions,
  howLong: () => Promise<number>,
  trouble?: Failure,
): Promise<void> {
  if (options.deadline.leftMs() <= 0) throw pendingError(job, {}, trouble);
  const begun = deps.clock.monotonic();
  // What it takes to find out is a part of the pause.
  const ms = (await howLong()) - (deps.clock.monotonic() - begun);
  await deps.clock
    .sleep(Math.min(ms, options.deadline.leftMs()), deps.signals.soft)
    .catch((error: unknown) => {
      if (deps.signals.soft.aborted) throw interruptedError(deps.signals.soft, job, 'yes');
      throw error;
    });
}
