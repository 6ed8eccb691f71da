import { add, type Decimal, parseDecimal, zero } from '../decimal.ts';
import { exitCodes } from '../errors.ts';
import { pathExists, pathsAt, sameFileName } from '../jobs/output.ts';
import { keyOfRetry } from '../jobs/ref.ts';
import type { Plan } from './plan.ts';
import { type PlannedRow, countOf, type RowState } from './planned-row.ts';
import { filesOf, isDelivered, pathFor, pathOfTake, type RowEnd, type Tally } from './row-state.ts';

/** Selects the rows that a command covers, and the rows that the command runs. */
export interface RowSelection {
  /** The row ids that must exist in the manifest. */
  ids?: ReadonlySet<string>;
  /** Whether a row affects the exit code. */
  isInScope(planned: PlannedRow): boolean;
  /**
   * Returns the row to run; undefined if the row remains unchanged. `before` is the number of the row's latest take in
   * the plan. A retry never saves to one of the plan's `paths`.
   */
  rowToRun(planned: PlannedRow, before: number, paths?: Plan['paths']): PlannedRow | undefined;
  /**
   * Returns the next retry of a paid row whose result is gone; undefined if the row remains unchanged. Absent if the
   * command never retries a row.
   */
  nextRetry?: (planned: PlannedRow) => PlannedRow | undefined;
}

// Whether a run continues a row. It cannot continue a changed row, because the job in progress has a different request.
const isOpen = ({ state, changes }: PlannedRow): boolean =>
  changes === undefined && ['new', 'running', 'rejected'].includes(state);

/** States of rows that only a retry runs. */
const settledStates = new Set<RowState>(['done', 'failed', 'changed', 'stale']);

/** `batch run` covers every row, but skips rows that failed, were changed or are in doubt. */
export const everyRow: RowSelection = {
  isInScope: () => true,
  rowToRun: (planned, _, paths) => (isOpen(planned) ? toContinue(planned, paths) : undefined),
};

/**
 * `batch retry --rated` remakes rows whose latest result is rated `maxRating` or less. Each new result is paid for, and
 * saved next to the old one. Continues jobs that an earlier run of this command started.
 */
export function retryOfRated(maxRating: number): RowSelection {
  // The rated file may have been moved since it was saved.
  const isPoor = ({ state, take: { job } }: PlannedRow): boolean =>
    (state === 'done' || (state === 'running' && job !== undefined && isDelivered(job))) &&
    (job?.rating ?? Infinity) <= maxRating;
  const isStarted = (planned: PlannedRow): boolean =>
    planned.take.number > 1 && planned.state === 'running' && isOpen(planned);
  return {
    isInScope: (planned) => isPoor(planned) || isStarted(planned),
    rowToRun: (planned, before, paths) => {
      if (!isPoor(planned)) return isStarted(planned) ? toContinue(planned, paths) : undefined;
      return planned.take.number === before ? withNextTakePath(planned, paths) : undefined;
    },
  };
}

/** The rows to retry: the rows in `ids`, or the selected kinds of rows (failed, changed or stale). */
export interface RetriedRows {
  ids?: ReadonlySet<string> | undefined;
  isFailed?: boolean;
  isChanged?: boolean;
  isStale?: boolean;
}

/**
 * `batch retry` remakes the rows of {@link RetriedRows}, and pays for them. Remakes rows in `ids` even if they are
 * done. Continues open rows, and leaves rows in doubt unchanged. Keeps an earlier take's file, and saves the new file
 * next to it.
 * @param force whether to replace the earlier take's file
 */
export function retryOf(rows: RetriedRows, force: boolean): RowSelection {
  const { ids, isFailed = false, isChanged = false, isStale = false } = rows;
  const isOfKind = (state: RowState): boolean =>
    (isFailed && (state === 'failed' || state === 'rejected')) ||
    (isChanged && state === 'changed') ||
    (isStale && state === 'stale');
  return {
    ids,
    isInScope: ({ id, state, take, changes }) => {
      if (ids !== undefined) return ids.has(id);
      return (
        isOfKind(state) ||
        (isChanged && changes !== undefined) ||
        // Not remade without --changed, but reported.
        (isFailed && state === 'changed' && take.job?.state === 'failed') ||
        // An edited row that was never accepted, or a retake that was begun.
        (take.number > 1 && ((isChanged && state === 'new') || state === 'running' || state === 'unknown'))
      );
    },
    rowToRun: (planned, before, paths) => {
      const { state, take } = planned;
      if (isOpen(planned)) return toContinue(planned, paths);
      const isSelected = ids === undefined ? isOfKind(state) : settledStates.has(state);
      // If another process has retried the row since the plan was made, do not retry it again: the user requested one
      // retry.
      if (!isSelected || take.number !== before) return undefined;
      return !force && isOccupied(planned) ? withNextTakePath(planned, paths) : withNextTake(planned);
    },
    // Retries the row only once, even if the result of the retry is gone too. A row that was refused, never sent or in
    // progress has no earlier result to remake.
    nextRetry: (planned) => {
      const hasResult = planned.state === 'running' && planned.take.job?.state === 'succeeded';
      if (ids === undefined || !hasResult) return undefined;
      return !force && isOccupied(planned) ? withNextTakePath(planned) : withNextTake(planned);
    },
  };
}

/** A row to run, with its state in the plan. */
export interface ChosenRow {
  id: string;
  line: number;
  take: number;
  state: RowState;
  /** Whether the row is remade, and its earlier result was paid for. */
  isPaid: boolean;
  /** The paths of the files that the run will save. */
  paths: string[];
}

/** The rows to run, by position. */
export type ChosenRows = Map<number, ChosenRow>;

/** Refuses the chosen rows that would overwrite the file of another row, even with `--force`. */
export function refuseOccupied(plan: Plan, tally: Tally, chosen: ChosenRows): void {
  for (const [index, { id, line, state, paths }] of chosen) {
    const owned = paths.flatMap((path) => {
      const owner = plan.saved.get(sameFileName(path));
      return owner === undefined || owner.line === line || !pathExists(path) ? [] : [{ path, owner }];
    })[0];
    if (owned === undefined) continue;
    const message = `${owned.path} is the file of the row ${owned.owner.id}, which was paid for; change the output of one of them`;
    plan.problems.push({ line, field: 'output', message });
    plan.bad += 1;
    plan.counts[state] -= 1;
    plan.chains.recordInvalid(id);
    tally.refuse(state);
    chosen.delete(index);
  }
}

/** Tracks the rows that a command has chosen and that no run has paid for. */
export class UnpaidRows {
  readonly #choice: RowSelection;
  /** The highest cost of each unpaid row, by id. */
  readonly #costs = new Map<string, Decimal>();
  /** The highest cost of each row that this run has paid for and that the same command would pay for again, by id. */
  readonly #paidAgain = new Map<string, Decimal>();
  readonly #endedIds = new Set<string>();

  constructor(choice: RowSelection) {
    this.#choice = choice;
  }

  /** Adds a chosen row, unless an earlier run has paid for it. */
  add({ id, state }: PlannedRow, cost = zero): void {
    if (state !== 'running') this.#costs.set(id, cost);
  }

  /** Removes a row that the command leaves unchanged. */
  remove(id: string): void {
    this.#costs.delete(id);
  }

  /** Records a row's outcome. */
  record({ planned, job, isPaid, error }: RowEnd, state: RowState): void {
    const { id, take } = planned;
    this.#endedIds.add(id);
    const isAccepted = error === undefined || (job?.handle ?? error.handle) !== undefined;
    if (isPaid || isAccepted || state === 'unknown') this.#costs.delete(id);
    // A budget may refuse the retry of a row whose paid result is gone.
    else if (error.budget !== undefined) this.#costs.set(id, this.#costs.get(id) ?? zero);
    if (!isPaid) return;
    const row = { ...planned, state, take: { ...take, job: job ?? take.job } };
    const retry = error?.exitCode === exitCodes.incomplete ? this.#choice.nextRetry?.(row) : undefined;
    const next = retry ?? this.#choice.rowToRun(row, take.number);
    if (next !== undefined && next.take.number > take.number)
      this.#paidAgain.set(id, parseDecimal(job?.cost?.at_most ?? '0'));
  }

  /** The ids of the unpaid rows. */
  get ids(): string[] {
    return [...this.#costs.keys()];
  }

  /** Whether the command has not started some of the unpaid rows. */
  get hasUnstarted(): boolean {
    return this.ids.some((id) => !this.#endedIds.has(id));
  }

  /** The highest cost of the unpaid rows. */
  get cost(): Decimal {
    return [...this.#costs.values()].reduce(add, zero);
  }

  /** The highest cost of the unpaid rows and of the rows that the same command would pay for again. */
  get costWithPaidAgain(): Decimal {
    return [...this.#paidAgain.values()].reduce(add, this.cost);
  }

  /**
   * Whether the same command would pay again for the given row, which this run has paid for. Without a row, whether it
   * would pay again for any such row.
   */
  isPaidAgain(id?: string): boolean {
    return id === undefined ? this.#paidAgain.size > 0 : this.#paidAgain.has(id);
  }
}

// If the row's `output` was changed and then changed back, the file at its path belongs to an earlier take.
function isOccupied({ take: { job }, path, work }: PlannedRow): boolean {
  if (job === undefined) return false;
  const count = countOf(work);
  return filesOf(job, path, count) !== undefined || pathsAt(pathFor(path, job), count).some(pathExists);
}

// A retry that was begun in another folder does not replace the file of an earlier take.
function toContinue(planned: PlannedRow, paths: Plan['paths'] | undefined): PlannedRow {
  const { state, take, path } = planned;
  const isBegunHere = take.job?.record.goals.some(({ output }) => output === path) === true;
  if (take.number === 1 || state !== 'running' || isBegunHere || !isOccupied(planned)) return planned;
  return withTakePath(planned, paths);
}

function withNextTakePath(planned: PlannedRow, paths?: Plan['paths']): PlannedRow {
  return withTakePath(withNextTake(planned), paths);
}

// If the file name with the take's number exists or is another row's output, uses the next free number.
function withTakePath(planned: PlannedRow, paths: Plan['paths'] = new Map()): PlannedRow {
  const { path, rowPath = path, work, take } = planned;
  if (rowPath.includes('{job}')) return { ...planned, path: rowPath };
  const isFree = (file: string): boolean => !pathExists(file) && !paths.has(sameFileName(file));
  for (let { number } = take; ; number += 1) {
    const takePath = pathOfTake(rowPath, number);
    if (pathsAt(takePath, countOf(work)).every(isFree)) return { ...planned, path: takePath, rowPath };
  }
}

function withNextTake(planned: PlannedRow): PlannedRow {
  const number = planned.take.number + 1;
  const take = planned.next ?? { number, key: keyOfRetry(planned.key, number) };
  return { ...planned, state: 'new', take, next: undefined, before: planned.state };
}
