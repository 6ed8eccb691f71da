import type { FlowDeps } from '../flows/flow-deps.ts';
import type { MgwError } from '../errors.ts';
import type { Choice } from './choice.ts';
import { planBatch, planRow, type Batch, type Plan, type PlanDeps } from './plan.ts';
import { rememberRow } from './done-row-cache.ts';
import type { PlannedRow } from './planned-row.ts';
import { BatchRun, type RowEnd, type RunOptions, type RunWatcher } from './run.ts';
import { tidyRow, type RowState } from './row-state.ts';
import { stateAfter, Tally } from './tally.ts';

/** What a run begins with. */
export interface ReadyRun {
  plan: Plan;
  tally: Tally;
  /** The rows to carry out, by their positions, and the line of each. */
  chosen: ReadonlyMap<number, { take: number; state: RowState }>;
}

/** Who is told of a run, in addition to {@link RunWatcher}: rows that are left alone. */
export interface BatchWatcher extends RunWatcher {
  left(planned: PlannedRow): void;
}

/** Plans a run: sends nothing, and removes the leftovers of dead runs of finished rows. Rows outside the command's scope are not counted. */
export async function readyRun(
  batch: Batch,
  deps: { plan: PlanDeps; job: FlowDeps },
  choice: Choice,
  onRow: (planned: PlannedRow, isChosen: boolean) => void,
): Promise<ReadyRun> {
  const tally = new Tally();
  const chosen = new Map<number, { take: number; state: RowState }>();
  const plan = await planBatch(batch, deps.plan, async (planned) => {
    if (!choice.isAbout(planned)) return;
    const { number } = planned.take;
    const isChosen = choice.toCarryOut(planned, number) !== undefined;
    if (isChosen) chosen.set(planned.row.index, { take: number, state: planned.state });
    tally.count(planned.state, isChosen);
    onRow(planned, isChosen);
    if (!isChosen) await tidyRow(planned, deps.job);
  });
  tally.bad = plan.bad;
  tally.counts.done += plan.known;
  return { plan, tally, chosen };
}

/**
 * Carries out the chosen rows of a batch, many at once. Reads the manifest a second time if there are any.
 * @returns why it was stopped before its end, undefined if it was not, or by a signal
 * @throws MgwError if the manifest cannot be read.
 */
export async function runBatch(
  batch: Batch,
  ready: ReadyRun,
  choice: Choice,
  deps: { plan: PlanDeps; job: FlowDeps },
  options: RunOptions,
  watcher: BatchWatcher,
): Promise<MgwError | undefined> {
  const { tally, chosen } = ready;
  if (chosen.size === 0) return undefined;
  const moved = ({ row, state }: PlannedRow, to: RowState): void =>
    tally.move(chosen.get(row.index)?.state ?? state, to);
  const counted: RunWatcher = {
    ...bound(watcher),
    began: (planned) => {
      moved(planned, 'running');
      watcher.began(planned);
    },
    ended: async (end) => {
      tally.move('running', stateAfter(end));
      tally.ended += 1;
      tally.files += end.files.length;
      await watcher.ended(end);
    },
  };
  const run = new BatchRun(deps.job, options, counted, async ({ planned, job }) => {
    if (job !== undefined) await rememberRow(planned, job, deps.plan);
  });
  try {
    for await (const item of batch.manifest.items((_, index) => !chosen.has(index))) {
      if (run.isOver) break;
      const found = 'row' in item ? chosen.get(item.row.index) : undefined;
      if (!('row' in item) || found === undefined) continue;
      const mark = deps.plan.known?.contentHash(item.record);
      // Another process may have worked on it since it was planned.
      const planned = { ...(await planRow(item.row, batch, deps.plan)), mark };
      const own = choice.toCarryOut(planned, found.take);
      if (own !== undefined) await run.begin(own);
      else {
        moved(planned, planned.state);
        watcher.left(planned);
        await tidyRow(planned, deps.job);
      }
    }
  } finally {
    await run.end();
    deps.plan.known?.write();
  }
  return run.stoppedBy;
}

function bound(watcher: BatchWatcher): RunWatcher {
  return {
    began: (planned) => watcher.began(planned),
    updated: (planned, job) => watcher.updated(planned, job),
    ended: (end: RowEnd) => watcher.ended(end),
    note: (text) => watcher.note(text),
  };
}
