import type { FlowDeps } from '../flows/settings.ts';
import { MgwError, toMgwError } from '../errors.ts';
import { pathsAt } from '../jobs/output.ts';
import { type ChosenRow, type ChosenRows, refuseOccupied, type RowSelection } from './row-selection.ts';
import { planBatch, planRow, type Batch, type Plan, type PlanDeps } from './plan.ts';
import { rememberRow } from './done-row-cache.ts';
import { countOf, type PlannedRow, needsFrame, type RowState } from './planned-row.ts';
import { BatchRun, type RunOptions, type RunWatcher } from './row-runner.ts';
import { removeRowLeftovers, stateAfter, Tally, type RowEnd } from './row-state.ts';
import { problemsOf } from './manifest/fields.ts';
import { changedError } from './manifest/manifest.ts';
import type { Row } from './manifest/row.ts';
import type { RowGraph } from './row-graph.ts';

/** A run's plan. */
export interface ReadyRun {
  plan: Plan;
  tally: Tally;
  /** The rows to run, by position. */
  chosen: ReadonlyMap<number, ChosenRow>;
  /** Whether ffmpeg is needed because a row's input is a frame of a video. */
  needsFrames: boolean;
}

/** Callbacks for a run. `skipped` is called for a row that the run leaves unchanged. */
export interface BatchWatcher extends RunWatcher {
  skipped(planned: PlannedRow): void;
  /** Called for a row that has become invalid since the plan was made. */
  bad(row: { id: string; line: number }, error: MgwError): void;
  /** Called before a row is run. If it throws, the row is not run, and the run ends. */
  beforeRow?: ((planned: PlannedRow) => Promise<void>) | undefined;
}

/**
 * Plans a run. Sends nothing, but removes the files that dead runs left behind for finished rows. Counts only rows in
 * the command's scope.
 */
export async function readyRun(
  batch: Batch,
  deps: { plan: PlanDeps; job: FlowDeps },
  choice: RowSelection,
  onRow: (planned: PlannedRow, isChosen: boolean) => void,
): Promise<ReadyRun> {
  const tally = new Tally();
  const chosen: ChosenRows = new Map();
  let needsFrames = false;
  const plan = await planBatch(batch, deps.plan, async (planned) => {
    if (!choice.isInScope(planned)) return;
    const { state, id, work, take } = planned;
    const toRun = choice.rowToRun(planned, take.number);
    const isChosen = toRun !== undefined;
    const isPaid = state !== 'running' && take.job?.state === 'succeeded';
    if (isChosen) {
      const { row } = planned;
      const paths = pathsAt(toRun.path, countOf(work));
      chosen.set(row.index, { id, line: row.line, take: take.number, state, isPaid, paths });
    }
    needsFrames ||= isChosen && state !== 'running' && needsFrame(work);
    tally.count(state, isChosen);
    onRow(planned, isChosen);
    if (!isChosen) await removeRowLeftovers(planned, deps.job);
  });
  tally.bad = plan.bad;
  tally.counts.done += plan.known;
  refuseOccupied(plan, tally, chosen);
  return { plan, tally, chosen, needsFrames };
}

/**
 * Runs the chosen rows of a batch concurrently. Reads the manifest a second time if any rows are chosen.
 * @returns the error that stopped the run early; undefined if the run was complete or a signal stopped it
 * @throws MgwError if the manifest or a budget cannot be read and no row was started. After a row was started, returns
 * the error, because the run may have paid for rows.
 */
export async function runBatch(
  batch: Batch,
  ready: ReadyRun,
  choice: RowSelection,
  deps: { plan: PlanDeps; job: FlowDeps },
  options: RunOptions,
  watcher: BatchWatcher,
): Promise<MgwError | undefined> {
  const { chosen, plan } = ready;
  const { chains } = plan;
  if (chosen.size === 0) return undefined;
  await readBudgets(ready, deps.job);
  const order = new RunOrder(chains.graph, chosen.values());
  const settle = async ({ planned: { id }, job, error }: RowEnd, state: RowState): Promise<void> => {
    if (!chains.graph.isNeeded(id)) return;
    const latest = job ?? error?.job;
    chains.recordOutcome(id, state, latest && (await deps.job.ledger.read(latest.id)));
    order.settle(id);
  };
  const run = new BatchRun(deps.job, options, withTally(watcher, ready, settle), async (end) => {
    if (end.job !== undefined) await rememberRow(end.planned, end.job, deps.plan);
    await settle(end, 'done');
  });
  const begin = async (waiting: WaitingRow): Promise<void> => {
    const next = await planChosen(waiting, batch, plan, choice, deps.plan).catch((error: unknown) => {
      recordBad(ready, waiting, error, watcher);
      order.settle(waiting.chosen.id);
    });
    if (next === undefined) return;
    const { planned, isChosen } = next;
    if (planned.id !== waiting.chosen.id) throw changedError(batch.manifest.path);
    if (isChosen) {
      await watcher.beforeRow?.(planned);
      return run.begin(planned);
    }
    ready.tally.skip(waiting.chosen.state, planned.state);
    watcher.skipped(planned);
    await removeRowLeftovers(planned, deps.job);
    chains.record(planned);
    order.settle(planned.id);
  };
  try {
    await beginInOrder(batch, ready, { order, run, known: deps.plan.known }, begin);
  } catch (error) {
    run.stop(toMgwError(error));
    await run.end();
    if (ready.tally.ended === 0) throw error;
  } finally {
    await run.end();
    deps.plan.known?.write();
  }
  return run.stoppedBy;
}

// Reads the budgets before the first row, because every new row would fail with the same error.
async function readBudgets({ chosen }: ReadyRun, { allowances }: FlowDeps): Promise<void> {
  if ([...chosen.values()].every(({ state }) => state === 'running')) return;
  for (const { budget } of await allowances()) await budget.state();
}

/** A run, its waiting rows, and the cache of done rows. */
interface RunParts {
  order: RunOrder;
  run: BatchRun;
  known: PlanDeps['known'];
}

// Begins the chosen rows in file order, but each after the rows that it waits for. Reads the manifest only up to the
// last chosen row, so that a later change of the file does not matter.
async function beginInOrder(
  { manifest }: Batch,
  { chosen }: ReadyRun,
  { order, run, known }: RunParts,
  begin: (waiting: WaitingRow) => Promise<void>,
): Promise<void> {
  let unread = chosen.size;
  for await (const item of manifest.items((_, index) => !chosen.has(index))) {
    for (let next = order.next(); next !== undefined && !run.isOver; next = order.next()) await begin(next);
    if (run.isOverFor('running')) break;
    const found = 'row' in item ? chosen.get(item.row.index) : undefined;
    if (!('row' in item) || found === undefined) continue;
    const { row, record } = item;
    const waiting = { row, chosen: found, cacheKey: known?.contentHash(record) };
    if (!run.isOverFor(found.state) && !order.hasToWait(waiting)) await begin(waiting);
    unread -= 1;
    if (unread === 0) break;
  }
  while (order.isOpen && !run.isOver) {
    const next = order.next();
    if (next !== undefined) await begin(next);
    else if (run.isIdle) break;
    else await run.nextEnd();
  }
}

// Records a row that has become invalid since the plan was made, for example because a file that it names is gone.
function recordBad(
  { plan, tally }: ReadyRun,
  { row, chosen: { id, state } }: WaitingRow,
  error: unknown,
  watcher: BatchWatcher,
): void {
  if (!(error instanceof MgwError) || error.code !== 'usage') throw error;
  plan.bad += 1;
  plan.problems.push(...problemsOf(row, error));
  plan.chains.recordInvalid(id);
  tally.refuse(state);
  watcher.bad({ id, line: row.line }, error);
}

// Plans a chosen row again, because another process may have run the row, or a row that it waits for may have failed.
async function planChosen(
  { row, chosen, cacheKey }: WaitingRow,
  batch: Batch,
  { chains, paths }: Plan,
  choice: RowSelection,
  deps: PlanDeps,
): Promise<{ planned: PlannedRow; isChosen: boolean }> {
  const planned = { ...(await planRow(row, batch, deps, chains)), cacheKey };
  const because = chosen.state === 'running' ? undefined : chains.blockerOf(row);
  if (because === undefined) {
    const toRun = choice.rowToRun(planned, chosen.take, paths);
    return { planned: toRun ?? planned, isChosen: toRun !== undefined };
  }
  return { planned: { ...planned, because, state: 'blocked' }, isChosen: false };
}

function withTally(
  watcher: BatchWatcher,
  { tally, chosen }: ReadyRun,
  settle: (end: RowEnd, state: RowState) => Promise<void>,
): RunWatcher {
  return {
    updated: (planned, job) => watcher.updated(planned, job),
    note: (text) => watcher.note(text),
    began: (planned) => {
      tally.move(chosen.get(planned.row.index)?.state ?? planned.state, 'running');
      watcher.began(planned);
    },
    ended: async (end) => {
      tally.move('running', stateAfter(end));
      tally.ended += 1;
      tally.files += end.files.length;
      await watcher.ended(end);
      if (end.error !== undefined) await settle(end, stateAfter(end));
    },
  };
}

/** A chosen row, as read from the manifest. */
interface WaitingRow {
  row: Row;
  chosen: ChosenRow;
  cacheKey: string | undefined;
}

/** Holds back a run's rows until the rows that they wait for have ended. */
class RunOrder {
  readonly #graph: RowGraph;
  /** The ids of unfinished rows that others wait for. */
  readonly #awaited: Set<string>;
  readonly #waiting = new Map<string, WaitingRow[]>();
  readonly #ready: WaitingRow[] = [];

  constructor(graph: RowGraph, chosen: Iterable<ChosenRow>) {
    this.#graph = graph;
    this.#awaited = new Set([...chosen].map(({ id }) => id).filter((id) => graph.isNeeded(id)));
  }

  /** Whether any rows are still held back. */
  get isOpen(): boolean {
    return this.#waiting.size > 0 || this.#ready.length > 0;
  }

  /** Whether a row has to wait for another row. If so, holds the row back. A paid row does not wait. */
  hasToWait(row: WaitingRow): boolean {
    const id = row.chosen.state === 'running' ? undefined : this.#awaitedBy(row);
    if (id === undefined) return false;
    this.#addWaiting(id, row);
    return true;
  }

  /** Reports that a row has ended. Rows that waited only for that row can run next. */
  settle(id: string): void {
    this.#awaited.delete(id);
    const rows = this.#waiting.get(id) ?? [];
    this.#waiting.delete(id);
    for (const row of rows) {
      const other = this.#awaitedBy(row);
      if (other === undefined) this.#ready.push(row);
      else this.#addWaiting(other, row);
    }
  }

  /** Returns a row that no longer waits; undefined if there is none. */
  next(): WaitingRow | undefined {
    return this.#ready.shift();
  }

  #awaitedBy({ row }: WaitingRow): string | undefined {
    return this.#graph.waitsFor(row).find((id) => this.#awaited.has(id));
  }

  #addWaiting(id: string, row: WaitingRow): void {
    const rows = this.#waiting.get(id);
    if (rows === undefined) this.#waiting.set(id, [row]);
    else rows.push(row);
  }
}
