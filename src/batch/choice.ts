import { takeKey } from '../jobs/named-job.ts';
import type { PlannedRow } from './planned-row.ts';
import { filesOf, pathOfTake, type RowState } from './row-state.ts';
import { countOf } from './work.ts';

/** Which rows of a batch a command is about, and which of them it carries out. */
export interface Choice {
  /** The rows that must be there, by their ids. */
  ids?: ReadonlySet<string>;
  /** True for a row that counts for how the command ends. */
  isAbout(planned: PlannedRow): boolean;
  /**
   * The row as it is to be carried out; undefined leaves it alone. `before` is the take that the plan has found.
   */
  toCarryOut(planned: PlannedRow, before: number): PlannedRow | undefined;
  /** The next retry of a paid row whose result is gone; undefined leaves the row as it is. */
  retake(planned: PlannedRow): PlannedRow | undefined;
}

const open = new Set(['new', 'running', 'rejected']);
/** States of rows that only a retry carries out. */
const settled = new Set(['done', 'failed', 'changed', 'stale']);

/** `batch run`: every row, and what failed, is in doubt, or was changed is left alone. */
export const everyRow: Choice = {
  isAbout: () => true,
  toCarryOut: (planned) => (open.has(planned.state) ? planned : undefined),
  retake: () => undefined,
};

/**
 * `batch retry --rated`: rows whose latest result is rated `most` or less get a new take, which is paid for and saved next to
 * that result. What such a run began before is carried on with.
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

/** The rows that a retry is about: those of `ids`, or else all that failed, were changed or are stale, as far as it says so. */
export interface RetriedRows {
  ids?: ReadonlySet<string> | undefined;
  isFailed?: boolean;
  isChanged?: boolean;
  isStale?: boolean;
}

/**
 * `batch retry`: rows that ended badly get a new take, which is paid for. What is open is carried on with, and what is in
 * doubt is left alone. The file of a row that was changed or is stale stays, and the take is saved next to it.
 * @param force replaces that file
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
      const isBad = ids === undefined ? isOfKind(state) : settled.has(state) && state !== 'done';
      // Another process has tried it again meanwhile: once is what was asked for.
      if (!isBad || take.number !== before) return undefined;
      return (state === 'changed' || state === 'stale') && !force && isSaved(planned)
        ? takeNextToIt(planned)
        : nextTake(planned);
    },
    // Once: what is made for this is not made again.
    retake: (planned) =>
      ids !== undefined && planned.take.job !== undefined ? nextTake(planned) : undefined,
  };
}

function isSaved({ take: { job }, path, work }: PlannedRow): boolean {
  return job !== undefined && filesOf(job, path, countOf(work)) !== undefined;
}

function takeNextToIt(planned: PlannedRow): PlannedRow {
  const next = nextTake(planned);
  return { ...next, path: pathOfTake(planned.rowPath ?? planned.path, next.take.number) };
}

function nextTake(planned: PlannedRow): PlannedRow {
  const number = planned.take.number + 1;
  return { ...planned, state: 'new', take: { number, key: takeKey(planned.key, number) } };
}
