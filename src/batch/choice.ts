import { pathExists, pathsAt } from '../jobs/output.ts';
import { keyOfRetry } from '../jobs/ref.ts';
import { type PlannedRow, countOf, type RowState } from './planned-row.ts';
import { filesOf, pathFor, pathOfTake } from './row-state.ts';

/** Selects the rows that a command covers, and those that it carries out. */
export interface Choice {
  /** The ids of rows that must exist. */
  ids?: ReadonlySet<string>;
  /** Whether a row counts towards the exit code. */
  isAbout(planned: PlannedRow): boolean;
  /**
   * Returns the row to carry out; undefined if the row is left as it is. `before` is the row's take number in the plan.
   */
  toCarryOut(planned: PlannedRow, before: number): PlannedRow | undefined;
  /** Returns the next retry of a paid row whose result is gone; undefined if the row is left as it is. */
  retake(planned: PlannedRow): PlannedRow | undefined;
}

const open = new Set(['new', 'running', 'rejected']);
/** States of rows that only a retry carries out. */
const settled = new Set<RowState>(['done', 'failed', 'changed', 'stale']);

/** `batch run` covers every row, but does not touch rows that failed, were changed or are in doubt. */
export const everyRow: Choice = {
  isAbout: () => true,
  toCarryOut: (planned) => (open.has(planned.state) ? planned : undefined),
  retake: () => undefined,
};

/**
 * `batch retry --rated`: makes rows again if their latest result is rated `most` or less. Each new result is paid for,
 * and saved next to the old one. Jobs that an earlier run of this kind began are continued.
 */
export function retryOfRated(most: number): Choice {
  const isPoor = ({ state, take }: PlannedRow): boolean =>
    state === 'done' && (take.job?.rating ?? Infinity) <= most;
  const isBegun = ({ state, take }: PlannedRow): boolean => take.number > 1 && open.has(state);
  return {
    isAbout: (planned) => isPoor(planned) || isBegun(planned),
    toCarryOut: (planned, before) => {
      if (isBegun(planned)) return planned;
      return isPoor(planned) && planned.take.number === before ? takeNextToIt(planned) : undefined;
    },
    retake: () => undefined,
  };
}

/** The rows to retry: those in `ids`, or the selected kinds of failed, changed and stale rows. */
export interface RetriedRows {
  ids?: ReadonlySet<string> | undefined;
  isFailed?: boolean;
  isChanged?: boolean;
  isStale?: boolean;
}

/**
 * `batch retry` makes the rows of {@link RetriedRows} again, and pays for them. Rows in `ids` are made again even if
 * they are done. Open rows are continued, and rows in doubt are left as they are. The file of an earlier take stays,
 * and the new one is saved next to it.
 * @param force replaces the file of the earlier take
 */
export function retryOf(rows: RetriedRows, force: boolean): Choice {
  const { ids, isFailed = false, isChanged = false, isStale = false } = rows;
  const isOfKind = (state: RowState): boolean =>
    (isFailed && (state === 'failed' || state === 'rejected')) ||
    (isChanged && state === 'changed') ||
    (isStale && state === 'stale');
  return {
    ids,
    isAbout: ({ id, state, take }) => {
      if (ids !== undefined) return ids.has(id);
      return isOfKind(state) || (take.number > 1 && !settled.has(state));
    },
    toCarryOut: (planned, before) => {
      const { state, take } = planned;
      if (open.has(state)) return planned;
      const isChosen = ids === undefined ? isOfKind(state) : settled.has(state);
      // Another process has retried the row in the meantime, and the user asked for only one retry.
      if (!isChosen || take.number !== before) return undefined;
      return !force && isOccupied(planned) ? takeNextToIt(planned) : nextTake(planned);
    },
    // Only once: the result of a retry is not retried.
    retake: (planned) =>
      ids !== undefined && planned.take.job !== undefined ? nextTake(planned) : undefined,
  };
}

// If the output was changed and changed back, the file at its path is that of a take before the latest.
function isOccupied({ take: { job }, path, work }: PlannedRow): boolean {
  if (job === undefined) return false;
  const count = countOf(work);
  return filesOf(job, path, count) !== undefined || pathsAt(pathFor(path, job), count).some(pathExists);
}

function takeNextToIt(planned: PlannedRow): PlannedRow {
  const next = nextTake(planned);
  return { ...next, path: pathOfTake(planned.rowPath ?? planned.path, next.take.number) };
}

function nextTake(planned: PlannedRow): PlannedRow {
  const number = planned.take.number + 1;
  const take = { number, key: keyOfRetry(planned.key, number) };
  return { ...planned, state: 'new', take, before: planned.state };
}
