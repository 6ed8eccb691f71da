import { createHash } from 'node:crypto';
import { isAbsolute, join, relative, resolve } from 'node:path';
import { everyRow } from '../../../batch/row-selection.ts';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import {
  type PlannedRow,
  hashOf,
  isSpeech,
  submissionOf,
  type RowState,
} from '../../../batch/planned-row.ts';
import type { RowEnd } from '../../../batch/row-state.ts';
import { type Batch, planBatch, type PlanDeps } from '../../../batch/plan.ts';
import { readyRun, runBatch } from '../../../batch/run-batch.ts';
import type { Row } from '../../../batch/manifest/row.ts';
import { add, formatDecimal, zero } from '../../../decimal.ts';
import { type Charged, type MgwError, usageError } from '../../../errors.ts';
import { withBudget } from '../../../flows/budgets.ts';
import { commandForPerson } from '../../../flows/next.ts';
import type { FlowDeps } from '../../../flows/settings.ts';
import type { Job } from '../../../job.ts';
import { failedError, noHandleError } from '../../../jobs/errors.ts';
import { strictError } from '../../../jobs/receipt.ts';
import { doubtForRow } from '../../../jobs/liveness.ts';
import { fingerprintOf } from '../../../jobs/order.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import type { OutputPlace } from '../../../jobs/output.ts';
import { agentText, errorAnswer, type NextCall } from '../../../mcp/result.ts';
import type { Root } from '../../../mcp/tool.ts';
import type { BatchRequest, CheckBatch, RowInDoubt } from '../../../mcp/tool.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Context } from '../../context.ts';
import { planView, refusal, rowView } from '../../output/plan.ts';
import { defaultConcurrency } from './run.ts';
import { openNamed, remember } from './known.ts';
import { planDepsOf } from './open.ts';
import { type BatchOptions, flagsAsTyped, paceOf, rowOptionsOf } from './options.ts';

/** The maximum number of rows in an answer, because an agent reads all of them. */
const maxRows = 200;

/**
 * Returns the functions behind the batch tools of `mgw mcp`, which share the code of `mgw batch plan`, `run` and
 * `status`.
 */
export function batchChecker(context: Context): CheckBatch {
  return async (asked, { root, runs }, kind) => {
    const { batch: opened, options } = await openBelow(context, asked, root);
    const batch = { ...opened, force: kind === 'status' };
    const deps = await planDepsOf(context, batch);
    const isAnywhere = kind === 'status' && fleetStateOf(await context.ledger()) !== undefined;
    const rows: Record<string, unknown>[] = [];
    const checked = new Set<string>();
    const others: Others = { paidBy: new Set(), doubts: [] };
    const errors = runs.get(batch.name)?.errors;
    const mismatched: string[] = [];
    const settings = await context.settings();
    const forPerson = (command: string[]): string[] => commandForPerson(command, context.globals, settings);
    let differing: MgwError | undefined;
    let undone = 0;
    let isOpen = false;
    const plan = await planBatch(batch, { ...deps, isAnywhere }, async (planned) => {
      checked.add(planned.hash);
      if (kind === 'plan') await addOthers(others, planned, batch.name, deps);
      if (everyRow.rowToRun(planned, 0) !== undefined) isOpen = true;
      if (planned.state === 'done') {
        const { job } = planned.take;
        const error = job && strictError(job, job.files);
        differing ??= error;
        if (error !== undefined && mismatched.length < maxRows) mismatched.push(planned.id);
        return;
      }
      undone += 1;
      if (rows.length < maxRows) rows.push(rowForAgent(planned, errors?.get(planned.id), forPerson));
    });
    const costs = [...plan.costs.values()];
    const isKnown = costs.every(({ unknown }) => unknown === 0);
    return {
      name: batch.name,
      manifest: batch.manifest.path,
      typed: flagsAsTyped({ ...options, output: join(batch.place.folder, batch.place.template) }),
      view: {
        ...planView(batch, { ...plan, problems: plan.problems.map(forAgent) }),
        rows,
        ...(undone > rows.length && { more: undone - rows.length }),
        ...(mismatched.length > 0 && { mismatched }),
      },
      differing,
      atMost: isKnown ? formatDecimal(costs.reduce((sum, { known }) => add(sum, known), zero)) : undefined,
      isOpen,
      refusal: plan.bad === 0 ? undefined : refusal(plan),
      request: createHash('sha256')
        .update([...checked].join('\n'))
        .digest('hex'),
      rows: checked,
      ...others,
      run: async (job, onError) => {
        await remember(context, opened, options);
        const { budget = opened.manifest.head.budget } = options;
        return runChecked(context, opened, { plan: onlyChecked(deps, checked), job, budget }, onError);
      },
    };
  };
}

/** The jobs outside of a batch with the requests of its rows. */
interface Others {
  paidBy: Set<string>;
  doubts: RowInDoubt[];
}

// Adds the jobs outside of the batch with the request of a row that would be sent.
async function addOthers(
  { paidBy, doubts }: Others,
  planned: PlannedRow,
  name: string,
  { ledger, gateway }: PlanDeps,
): Promise<void> {
  if (planned.state !== 'new' && planned.state !== 'rejected') return;
  const ids = await ledger.lookup('fingerprint', fingerprintOf(submissionOf(planned.work), gateway));
  const jobs = (await Promise.all(ids.map((id) => ledger.read(id)))).filter((job) => job !== undefined);
  for (const other of othersThatPaid(planned, name, jobs)) paidBy.add(other);
  doubts.push(...doubtsAbout(planned, jobs).slice(0, maxRows - doubts.length));
}

// Returns the names of other batches whose jobs for the same request were, or may have been, charged.
function othersThatPaid({ state }: PlannedRow, name: string, jobs: readonly Job[]): string[] {
  if (state !== 'new') return [];
  return jobs.flatMap((job) => {
    const [other = '', row] = job.key?.split('/') ?? [];
    return row === undefined || other === name || chargeOf(job) === 'no' ? [] : [other];
  });
}

// Returns the jobs outside of the batch that block a row until a person or the agent knows their outcome.
function doubtsAbout({ id, work, take: { key } }: PlannedRow, jobs: readonly Job[]): RowInDoubt[] {
  return jobs.flatMap((job) => {
    const about = doubtForRow(job, key, isSpeech(work));
    return about === undefined ? [] : [{ id, job, about }];
  });
}

// Whether a job was charged. A failed job does not count, so that its request may be tried again under another name.
function chargeOf(job: Job): Charged {
  if (job.state === 'failed') return 'no';
  if (job.handle !== undefined) return 'yes';
  return ['unknown', 'sending'].includes(shownState(job)) ? 'maybe' : 'no';
}

function forAgent<Problem extends { message: string }>(problem: Problem): Problem {
  return { ...problem, message: agentText(problem.message) };
}

// Returns a row with its error, its cost and the tool to call next.
function rowForAgent(
  planned: PlannedRow,
  ended: MgwError | undefined,
  forPerson: (command: string[]) => string[],
): Record<string, unknown> {
  const { job } = planned.take;
  const charged = chargeOfRow(planned);
  const error = ended ?? recordedError(planned);
  const told = error && errorAnswer(error, charged);
  return {
    ...rowView(planned),
    charged,
    error: told?.error,
    next: job === undefined ? null : nextOf(planned.state, job.id),
    command: told?.command && forPerson(told.command),
  };
}

function nextOf(state: RowState, id: string): NextCall {
  return state === 'running'
    ? { tool: 'wait', arguments: { refs: [id] } }
    : { tool: 'job', arguments: { ref: id } };
}

function chargeOfRow({ state, take: { job } }: PlannedRow): Charged {
  if (state === 'failed' || state === 'unknown') return 'maybe';
  return job === undefined ? 'no' : chargeOf(job);
}

// Returns the recorded error of a row; undefined if there is none.
function recordedError({ state, take: { job } }: PlannedRow): MgwError | undefined {
  if (job === undefined) return undefined;
  if (state === 'failed') return failedError(job);
  return state === 'rejected' || state === 'unknown' ? noHandleError(job) : undefined;
}

// Refuses rows that were not checked, because the manifest may be edited after its cost was checked.
function onlyChecked(deps: PlanDeps, checked: ReadonlySet<string>): PlanDeps {
  // The rows that were checked. A row is composed again, with another hash, when the videos that it waits for exist.
  const passed = new WeakSet<Row>();
  return {
    ...deps,
    workOf: async (row, inputs) => {
      const work = await deps.workOf(row, inputs);
      if (!passed.has(row) && !checked.has(hashOf(work)))
        throw usageError('The row changed after the batch was checked. Run the batch again.');
      passed.add(row);
      return work;
    },
  };
}

async function runChecked(
  context: Context,
  batch: Batch,
  { plan, job: given, budget }: { plan: PlanDeps; job: FlowDeps; budget: string | undefined },
  onError: (id: string, error: MgwError) => void,
): Promise<MgwError | undefined> {
  const { concurrency } = batch.manifest.head;
  const deps = { plan, job: await withBudget(given, 'batch', batch.name, budget) };
  const ready = await readyRun(batch, deps, everyRow, () => undefined);
  if (ready.plan.bad > 0) return refusal(ready.plan);
  const rows = await rowOptionsOf(context, { force: false, sidecar: false });
  const pace = await paceOf(context, batch.name, {
    concurrency: Number(concurrency ?? defaultConcurrency),
    perMinute: undefined,
    onLimit: () => undefined,
  });
  const options = { ...rows, pace, nextRetry: () => undefined, isOfAgent: true };
  const watcher = {
    began: () => undefined,
    updated: () => undefined,
    skipped: () => undefined,
    note: () => undefined,
    ended: ({ planned, error }: RowEnd) => {
      if (error !== undefined) onError(planned.id, error);
      return Promise.resolve();
    },
  };
  try {
    return await runBatch(batch, ready, everyRow, deps, options, watcher);
  } finally {
    await pace.close();
  }
}

// Opens a batch that reads and writes only below the agent's root, whatever the manifest or an earlier run says.
async function openBelow(
  context: Context,
  { manifest, name, output }: BatchRequest,
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
  // Moves a relative output of the manifest, which starts at the current folder, below the root.
  const isInside = !relative(root.path, place.folder).startsWith('..');
  const folder = isInside ? place.folder : resolve(root.path, relative(process.cwd(), place.folder));
  await root.file(folder, 'output');
  return { ...place, folder, root: root.path };
}
