import { createHash } from 'node:crypto';
import { isAbsolute, join, relative, resolve } from 'node:path';
import { everyRow } from '../../../batch/choice.ts';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { type Batch, planBatch, type PlanDeps } from '../../../batch/plan.ts';
import { readyRun, runBatch } from '../../../batch/run-batch.ts';
import type { Row } from '../../../batch/manifest/row.ts';
import { hashOf } from '../../../batch/work.ts';
import { add, formatDecimal, zero } from '../../../decimal.ts';
import { type MgwError, usageError } from '../../../errors.ts';
import { withBudget } from '../../../flows/budgets.ts';
import type { FlowDeps } from '../../../flows/flow-deps.ts';
import type { OutputPlace } from '../../../jobs/output-template.ts';
import type { Root } from '../../../mcp/root.ts';
import type { AskedBatch, CheckBatch } from '../../../mcp/tool.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Context } from '../../context.ts';
import { planView, refusal, rowView } from '../../output/plan.ts';
import { defaultConcurrency } from './execute.ts';
import { openNamed, remember } from './known.ts';
import { planDepsOf } from './open.ts';
import { type BatchOptions, paceOf, rowOptionsOf } from './options.ts';

/** How many rows an answer shows: an agent reads all of it. */
const maxRows = 200;

/** Returns the check of batches for `mgw mcp`, by the code of `mgw batch plan`, `run` and `status`. */
export function batchChecker(context: Context): CheckBatch {
  return async (asked, root, kind) => {
    const { batch: opened, options } = await openBelow(context, asked, root);
    const batch = { ...opened, force: kind === 'status' };
    const deps = await planDepsOf(context, batch);
    const isAnywhere = kind === 'status' && fleetStateOf(await context.ledger()) !== undefined;
    const rows: Record<string, unknown>[] = [];
    const checked = new Set<string>();
    let undone = 0;
    let isOpen = false;
    const plan = await planBatch(batch, { ...deps, isAnywhere }, (planned) => {
      checked.add(planned.hash);
      if (everyRow.toCarryOut(planned, 0) !== undefined) isOpen = true;
      if (planned.state === 'done') return;
      undone += 1;
      if (rows.length < maxRows) rows.push(rowView(planned));
    });
    const costs = [...plan.costs.values()];
    const isKnown = costs.every(({ unknown }) => unknown === 0);
    return {
      name: batch.name,
      view: { ...planView(batch, plan), rows, ...(undone > rows.length && { more: undone - rows.length }) },
      atMost: isKnown ? formatDecimal(costs.reduce((sum, { known }) => add(sum, known), zero)) : undefined,
      isOpen,
      refusal: plan.bad === 0 ? undefined : refusal(plan),
      request: createHash('sha256')
        .update([...checked].join('\n'))
        .digest('hex'),
      run: async (job) => {
        await remember(context, opened, options);
        return runChecked(context, opened, { plan: onlyChecked(deps, checked), job });
      },
    };
  };
}

// The manifest may be edited after its cost was checked.
function onlyChecked(deps: PlanDeps, checked: ReadonlySet<string>): PlanDeps {
  // A row is composed again with the videos of the rows that it waits for.
  const passed = new WeakSet<Row>();
  return {
    ...deps,
    workOf: async (row, inputs) => {
      const work = await deps.workOf(row, inputs);
      if (!passed.has(row) && !checked.has(hashOf(work)))
        throw usageError('The row changed after the batch was checked: run it again.');
      passed.add(row);
      return work;
    },
  };
}

async function runChecked(
  context: Context,
  batch: Batch,
  { plan, job: given }: { plan: PlanDeps; job: FlowDeps },
): Promise<MgwError | undefined> {
  const { budget, concurrency } = batch.manifest.head;
  const deps = { plan, job: await withBudget(given, 'batch', batch.name, budget) };
  const ready = await readyRun(batch, deps, everyRow, () => undefined);
  if (ready.plan.bad > 0) return refusal(ready.plan);
  const rows = await rowOptionsOf(context, { force: false, sidecar: false });
  const pace = await paceOf(context, batch.name, {
    concurrency: Number(concurrency ?? defaultConcurrency),
    perMinute: undefined,
    onLimit: () => undefined,
  });
  const watcher = {
    began: () => undefined,
    updated: () => undefined,
    left: () => undefined,
    note: () => undefined,
    ended: () => Promise.resolve(),
  };
  try {
    return await runBatch(batch, ready, everyRow, deps, { ...rows, pace, retake: () => undefined }, watcher);
  } finally {
    await pace.close();
  }
}

// An agent's batch reads and writes below the root alone, whatever the manifest or an earlier run says.
async function openBelow(
  context: Context,
  { manifest, name, output }: AskedBatch,
  root: Root,
): Promise<{ batch: Batch; options: BatchOptions }> {
  const file = await root.file(manifest, 'manifest');
  if (output !== undefined && isObjectUrl(output)) throw usageError('output: give a path below the root.');
  const below = output === undefined || isAbsolute(output) ? output : join(root.path, output);
  const asked = { ...(name !== undefined && { name }), ...(below !== undefined && { output: below }) };
  const { batch, options } = await openNamed(context, file, asked);
  const place = await placeBelow(batch.place, root);
  return { batch: { ...batch, place, readable: [root.path], filesFrom: root.path }, options };
}

async function placeBelow(place: OutputPlace, root: Root): Promise<OutputPlace> {
  if (isObjectUrl(place.folder)) throw usageError('output: give a path below the root.');
  // A relative output of the manifest was read from the current folder.
  const isInside = !relative(root.path, place.folder).startsWith('..');
  const folder = isInside ? place.folder : resolve(root.path, relative(process.cwd(), place.folder));
  await root.file(folder, 'output');
  return { ...place, folder, root: root.path };
}
