import { exitCodes, type MgwError } from '../errors.ts';
import { shownState } from '../jobs/reconcile.ts';
import type { RowEnd } from './run.ts';
import { rowStates, type RowState } from './row-state.ts';

/** Counts the rows in each state during a run. */
export class Tally {
  readonly counts = Object.fromEntries(rowStates.map((state) => [state, 0])) as Record<RowState, number>;
  /** Invalid rows, which are left out. */
  bad = 0;
  /** The number of rows to carry out. */
  chosen = 0;
  /** The number of rows that this run has ended, successfully or not. */
  ended = 0;
  /** Files that this run has saved. */
  files = 0;

  /** Adds a row with its state in the plan. */
  count(state: RowState, isChosen: boolean): void {
    this.counts[state] += 1;
    if (isChosen) this.chosen += 1;
  }

  /** Moves a row to another state. */
  move(from: RowState, to: RowState): void {
    this.counts[from] -= 1;
    this.counts[to] += 1;
  }

  get rows(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, this.bad);
  }

  /** True if every row has its file. */
  get isDone(): boolean {
    return this.counts.done === this.rows;
  }
}

/** The state of a row after a run. */
export function stateAfter({ planned, job, error }: RowEnd): RowState {
  if (error === undefined) return 'done';
  const state = job === undefined ? undefined : shownState(job);
  if (state === 'unknown' || state === 'failed' || state === 'rejected') return state;
  if (error.code === 'conflict') return 'changed';
  if (error.exitCode === exitCodes.unknown) return 'unknown';
  // True if the gateway accepted it, even if that could not be recorded yet.
  if (error.handle !== undefined || error.charged === 'yes') return 'running';
  if (state === undefined) return planned.state;
  return state === 'prepared' ? 'new' : 'running';
}

/** The exit code of a run. */
export function exitCodeOfRun(tally: Tally, signal: AbortSignal, stopped: MgwError | undefined): number {
  // Even if all rows are done, a path that could not be printed or a result that could not be written is an error.
  if (tally.isDone) return stopped?.exitCode ?? exitCodes.ok;
  if (!signal.aborted) return stopped?.code === 'budget' ? exitCodes.budget : exitCodes.partial;
  return signal.reason === 'SIGTERM' ? exitCodes.terminated : exitCodes.interrupted;
}
