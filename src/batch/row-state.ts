import { parse } from 'node:path';
import { MgwError, exitCodes } from '../errors.ts';
import { stateBySize } from '../files/whole-file.ts';
import { deniesModelOrVoice } from '../http/failures.ts';
import { lostFingerprint, type Job, type JobFile } from '../job.ts';
import { removeJobLeftovers } from '../jobs/lock-output.ts';
import { changesFrom } from '../jobs/differences.ts';
import { nextAttempt } from '../jobs/charge-outcome.ts';
import { keyOfRetry, type LatestRetry, latestRetry, type Retry } from '../jobs/ref.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { type JobDeps, fingerprintOf } from '../jobs/order.ts';
import { isRunning, isUnaccepted, shownState } from '../jobs/reconcile.ts';
import { isSameOutput, pathsAt } from '../jobs/output.ts';
import { isObjectUrl } from '../store-url.ts';
import { fleetStateOf } from './fleet/fleet-state.ts';
import {
  countOf,
  type NamedRow,
  type PlannedRow,
  retriedByKind,
  rowStates,
  type RowState,
  type RowStatus,
  submissionOf,
  type Work,
} from './planned-row.ts';

/** Dependencies for determining a row's state. */
export interface RowStatusDeps extends Pick<JobDeps, 'ledger' | 'gateway' | 'account'> {
  /**
   * Whether files may be on other machines. If so, a recorded delivery is sufficient. Otherwise, the file must exist on
   * this machine.
   */
  isAnywhere?: boolean;
}

/**
 * Determines a row's state. If the record of the row's job is lost, the state is `unknown`, because the row may have
 * been paid for.
 * @throws MgwError if a run would pay for the row, but the model list does not allow it.
 */
export async function rowStatusOf(
  named: Pick<NamedRow, 'key' | 'work' | 'path'>,
  deps: RowStatusDeps,
): Promise<RowStatus> {
  return payable(named.work, await recordedStatusOf(named, deps));
}

/** Returns a row's status. @throws the request's `fault` if a run would pay for the row. */
export function payable({ fault }: Pick<Work, 'fault'>, status: RowStatus): RowStatus {
  if (fault !== undefined && (status.state === 'new' || status.state === 'rejected')) throw fault;
  return status;
}

async function recordedStatusOf(
  { key, work, path }: Pick<NamedRow, 'key' | 'work' | 'path'>,
  deps: RowStatusDeps,
): Promise<RowStatus> {
  const latest = await retryUnlessLost(deps.ledger, key);
  if (latest === undefined) return { state: 'unknown', take: { number: 1, key } };
  const { later, ...take } = latest;
  const last = later ?? take;
  const status = statusOfTake(take, { work, path }, deps);
  if (last.job === undefined || !isUnaccepted(last.job)) return status;
  const changes = changesOf(last.job, work, deps);
  // Another process may be about to send the earlier request.
  if (changes !== undefined && (await maySend(deps.ledger, last.job)))
    return { state: 'running', take: last, changes };
  // Nothing was paid for the last take: the same request continues its job, and a different one needs another key.
  const number = changes === undefined ? last.number : last.number + 1;
  const next = { number, key: keyOfRetry(key, number) };
  if (later !== undefined) return { ...status, next };
  return changes === undefined ? status : { state: 'new', take: next };
}

async function maySend(ledger: Ledger, job: Job): Promise<boolean> {
  return isRunning(job) || !['free', 'unsent'].includes(await nextAttempt(ledger, job));
}

/** Determines the state of a row from the given take. */
export function statusOfTake(
  take: Retry,
  { work, path }: Pick<NamedRow, 'work' | 'path'>,
  deps: RowStatusDeps,
): RowStatus {
  const { job } = take;
  if (job === undefined) return { state: 'new', take };
  const changes = changesOf(job, work, deps);
  const retryPath = recordedRetryPath(job, path);
  const status = retryPath === undefined ? { take } : { take, path: retryPath, rowPath: path };
  const state = stateOf(job, retryPath ?? path, countOf(work), deps);
  if (changes === undefined) return { ...status, state };
  // A retry would abandon a job in doubt or in progress, and pay for another one.
  const isOutstanding = state === 'unknown' || (state === 'running' && job.state !== 'succeeded');
  return { ...status, state: isOutstanding ? state : 'changed', changes };
}

/** Returns a row's jobs, like {@link latestRetry}; undefined if the record of a job is lost. */
export async function retryUnlessLost(ledger: Ledger, key: string): Promise<LatestRetry | undefined> {
  try {
    return await latestRetry(ledger, key);
  } catch (error) {
    if (error instanceof MgwError && error.code === 'submit_unknown') return undefined;
    throw error;
  }
}

/** Returns the path of a retry's file, next to the earlier file: `clip.2.mp4` for `clip.mp4`. */
export function pathOfTake(path: string, number: number): string {
  const { ext } = parse(path);
  const stem = path.slice(0, path.length - ext.length);
  return path.includes('{job}') ? path : `${stem}.${number}${ext}`;
}

// Returns the path of a retry's file, as recorded by the command that paid for the retry; undefined if there is none.
function recordedRetryPath({ record: { goals } }: Job, path: string): string | undefined {
  // With --force, a retry may have been saved at the row's own path.
  if (goals.some(({ output, deliveredAt }) => output === path && deliveredAt !== undefined)) return undefined;
  const outputs = goals.map(({ output = '' }) => output);
  return outputs.findLast((output) => {
    const number = Number(/\.(\d+)(?:\.[^./\\]*)?$/.exec(output)?.[1] ?? 1);
    return number > 1 && output !== path && pathOfTake(path, number) === output;
  });
}

function stateOf(job: Job, path: string, count: number, deps: RowStatusDeps): RowState {
  const state = shownState(job);
  if (state === 'unknown' || state === 'failed' || state === 'rejected') return state;
  if (state === 'prepared') return 'new';
  if (state !== 'succeeded') return 'running';
  const { ledger, isAnywhere = false } = deps;
  const isEnded = isDelivered(job);
  // Other machines see the record but not the file. If a run died before recording the delivery, another run must
  // record the delivery.
  const isHere = filesOf(job, path, count) !== undefined && (isEnded || fleetStateOf(ledger) === undefined);
  return isHere || (isAnywhere && isEnded) ? 'done' : 'running';
}

/** Returns the path of a job's files, with the job's id inserted. */
export function pathFor(path: string, job: Pick<Job, 'id'>): string {
  return path.replaceAll('{job}', job.id);
}

/**
 * Whether a job's result was saved, here or on another machine. A file that differs from its request is treated as
 * delivered, because `--strict` keeps it without recording a delivery.
 */
export function isDelivered({ record, files }: Job): boolean {
  const isDiffering = files.some(({ mismatches }) => mismatches !== undefined);
  return isDiffering || record.goals.some((goal) => goal.ask === 'file' && goal.deliveredAt !== undefined);
}

/**
 * Returns a job's files at its row's path; undefined if one is missing. Compares only sizes,
 * because hashing would read every file.
 */
export function filesOf(job: Job, path: string, count: number): JobFile[] | undefined {
  const expectedPath = pathFor(path, job);
  const paths =
    job.protocol === 'tts' ? [expectedPath] : pathsAt(expectedPath, job.record.results ?? 0, count);
  const files = paths.map((each) => job.files.find((file) => isSameOutput(file.path, each)));
  const present = files.filter((file) => file !== undefined && isPresent(file)) as JobFile[];
  return paths.length > 0 && present.length === paths.length ? present : undefined;
}

/**
 * Removes files that dead runs left behind for a row whose job has ended. A run would not remove the files, because it
 * skips the row.
 */
export async function removeRowLeftovers(
  { state, take, path, work }: PlannedRow,
  deps: Parameters<typeof removeJobLeftovers>[2],
): Promise<void> {
  const { job } = take;
  if (job === undefined || isObjectUrl(path) || (state !== 'done' && state !== 'failed')) return;
  const count = Math.max(countOf(work), job.record.results ?? 0);
  await removeJobLeftovers(job, pathsAt(pathFor(path, job), count), deps);
}

/**
 * Whether the path is a regular file of the given size. Always true for an object, because an object is recorded only
 * after it has been stored.
 */
export function isPresent(file: Pick<JobFile, 'path' | 'bytes'>): boolean {
  return isObjectUrl(file.path) || stateBySize(file) === 'intact';
}

// A record whose beginning is lost does not contain the request. The row is then in doubt, not changed.
function changesOf(job: Job, work: Work, deps: RowStatusDeps): string[] | undefined {
  const { fingerprint, variant } = job.record;
  const submission = submissionOf(work);
  const isSame = fingerprint === fingerprintOf(submission, deps.gateway) && variant === submission.variant;
  if (fingerprint === lostFingerprint || isSame) return undefined;
  const changes = changesFrom(job, submission, deps.gateway, work.isFromFile);
  return changes.length === 0 ? undefined : changes;
}

/** Counts a run's rows in each state. */
export class Tally {
  readonly counts = Object.fromEntries(rowStates.map((state) => [state, 0])) as Record<RowState, number>;
  /** The number of invalid rows, which are skipped. */
  bad = 0;
  /** The number of rows to run. */
  chosen = 0;
  /** The number of rows that have ended in this run, successfully or not. */
  ended = 0;
  /** The number of files that this run has saved. */
  files = 0;

  /** Counts a row in its planned state. */
  count(state: RowState, isChosen: boolean): void {
    this.counts[state] += 1;
    if (isChosen) this.chosen += 1;
  }

  /** Moves a row from the count of state `from` to the count of state `to`. */
  move(from: RowState, to: RowState): void {
    this.counts[from] -= 1;
    this.counts[to] += 1;
  }

  /** Moves a chosen row that no longer needs work from the count of state `from` to the count of state `to`. */
  skip(from: RowState, to: RowState): void {
    this.move(from, to);
    this.chosen -= 1;
  }

  /** Moves a chosen row from the count of state `from` to the invalid rows. */
  refuse(from: RowState): void {
    this.counts[from] -= 1;
    this.bad += 1;
    this.chosen -= 1;
  }

  get rows(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, this.bad);
  }

  /** Whether every row has its file, and every row to run has ended. `retry` also runs rows that are done. */
  get isDone(): boolean {
    return this.counts.done === this.rows && this.ended === this.chosen;
  }
}

/** A row's outcome. */
export interface RowEnd {
  planned: PlannedRow;
  /** The row's job when the row ended; undefined if there was none. */
  job?: Job;
  files: JobFile[];
  /** Whether this run paid for the row. */
  isPaid: boolean;
  /** The error, if the row is not done. */
  error?: MgwError;
}

/** Returns a row's state after a run. */
export function stateAfter({ planned, job, error }: RowEnd): RowState {
  if (error === undefined) return 'done';
  const state = job === undefined ? undefined : shownState(job);
  if (state === 'unknown' || state === 'failed' || state === 'rejected') return state;
  if (error.code === 'conflict') return 'changed';
  if (error.exitCode === exitCodes.unknown) return 'unknown';
  // The gateway accepted the row, even if the acceptance could not be recorded.
  if (error.handle !== undefined || error.charged === 'yes') return 'running';
  if (state !== undefined && state !== 'prepared') return 'running';
  if (planned.before !== undefined && retriedByKind.includes(planned.before)) return planned.before;
  return state === undefined ? planned.state : 'new';
}

/** Whether the gateway refused the key itself before anything was charged. It would refuse every other row too. */
export function isKeyRefused({ code, charged, message }: MgwError): boolean {
  return code === 'auth' && charged === 'no' && !deniesModelOrVoice(message);
}

/** Returns a run's exit code. */
export function exitCodeOfRun(tally: Tally, signal: AbortSignal, stopped: MgwError | undefined): number {
  // Even if all rows are done, failing to print a path or to write a result is an error.
  if (tally.isDone) return stopped?.exitCode ?? exitCodes.ok;
  if (!signal.aborted) return stopped?.code === 'budget' ? exitCodes.budget : exitCodes.partial;
  return signal.reason === 'SIGTERM' ? exitCodes.terminated : exitCodes.interrupted;
}
