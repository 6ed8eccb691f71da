import { hash } from 'node:crypto';
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
import { type Charged, type MgwError, usageError } from '../../../errors.ts';
import { withBudget } from '../../../flows/budgets.ts';
import { type Listing, oneListing } from '../../../flows/models.ts';
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
import type { BatchRequest, CheckBatch, Root, RowInDoubt } from '../../../mcp/tool.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Context } from '../../context.ts';
import { planView, invalidRowsError, rowView } from '../../output/plan.ts';
import { queueUpdaterOf } from './run.ts';
import { lastBudget, openNamed, rememberOptions } from './known.ts';
import { planDepsOf } from './open.ts';
import { type BatchOptions, flagsAsTyped, runOptionsOf } from './options.ts';

/** The maximum number of rows in an answer. An agent reads the whole answer, so the answer must be short. */
const maxRows = 200;

/**
 * Returns the function that implements the batch tools of `mgw mcp`. The function shares its code with `mgw batch
 * plan`, `run` and `status`.
 */
export function batchChecker(context: Context): CheckBatch {
  return async (request, { root, runs }, kind) => {
    const { batch: opened, options } = await openBelowRoot(context, request, root);
    const batch = { ...opened, force: kind === 'status', hasOnlyFlags: kind !== 'status' };
    const listing = oneListing(context);
    const deps = await planDepsOf(context, batch, undefined, listing);
    const isAnywhere = kind === 'status' && fleetStateOf(await context.ledger()) !== undefined;
    const rows: Record<string, unknown>[] = [];
    const checkedHashes = new Set<string>();
    const others: OutsideJobs = { paidBy: new Set(), doubts: [] };
    const mismatched: string[] = [];
    const advice = new Set<string>();
    const forPerson = await commandsForPerson(context);
    let differing: MgwError | undefined;
    let unfinishedCount = 0;
    const open = { isOpen: false, hasUntriedRows: false };
    const plan = await planBatch(batch, { ...deps, isAnywhere }, async (planned) => {
      checkedHashes.add(planned.hash);
      if (kind === 'plan') await addOutsideJobs(others, planned, batch.name, deps);
      if (everyRow.rowToRun(planned, 0) !== undefined) open.isOpen = true;
      if (planned.state === 'new' && !runs.get(batch.name)?.errors.has(planned.id))
        open.hasUntriedRows = true;
      if (planned.state === 'done') {
        const error = planned.take.job && strictError(planned.take.job, planned.take.job.files);
        differing ??= error;
        if (error !== undefined && mismatched.length < maxRows) mismatched.push(planned.id);
        return;
      }
      for (const message of planned.state === 'running' ? [] : planned.work.advice)
        if (advice.size < maxRows) advice.add(message);
      unfinishedCount += 1;
      if (rows.length < maxRows)
        rows.push(rowForAgent(planned, runs.get(batch.name)?.errors.get(planned.id), forPerson));
    });
    return {
      name: batch.name,
      manifest: batch.manifest.path,
      commandWords: flagsAsTyped({ ...options, output: join(batch.place.folder, batch.place.template) }),
      view: {
        ...planView(batch, { ...plan, problems: plan.problems.map(withAgentText) }),
        rows,
        ...(unfinishedCount > rows.length && { more: unfinishedCount - rows.length }),
        ...(mismatched.length > 0 && { mismatched }),
      },
      differing,
      atMost: plan.cost.unpriced === 0 ? plan.cost.total : undefined,
      ...open,
      advice: [...advice],
      refusal: plan.bad === 0 ? undefined : invalidRowsError(plan),
      request: hash('sha256', [...checkedHashes].join('\n')),
      rows: checkedHashes,
      ...others,
      run: async (job, onError) => {
        await rememberOptions(context, opened, options);
        const budget = (await lastBudget(context, opened.name)) ?? opened.manifest.head.budget;
        return runChecked(context, opened, { listing, hashes: checkedHashes, job, budget }, onError);
      },
    };
  };
}

async function commandsForPerson(context: Context): Promise<(command: string[]) => string[]> {
  const settings = await context.settings();
  return (command) => commandForPerson(command, context.globals, settings, context.io.env);
}

/** Jobs outside a batch that have the same request as one of the batch's rows. */
interface OutsideJobs {
  paidBy: Set<string>;
  doubts: RowInDoubt[];
}

// Adds the jobs outside the batch that have the same request as a row that a run would send.
async function addOutsideJobs(
  { paidBy, doubts }: OutsideJobs,
  planned: PlannedRow,
  name: string,
  { ledger, gateway }: PlanDeps,
): Promise<void> {
  if (planned.state !== 'new' && planned.state !== 'rejected') return;
  const ids = await ledger.lookup('fingerprint', fingerprintOf(submissionOf(planned.work), gateway));
  const jobs = (await Promise.all(ids.map((id) => ledger.read(id)))).filter((job) => job !== undefined);
  for (const other of otherPayers(planned, name, jobs)) paidBy.add(other);
  doubts.push(...doubtsOf(planned, jobs).slice(0, maxRows - doubts.length));
}

// Returns the names of other batches with jobs for the same request that were, or may have been, charged.
function otherPayers({ state }: PlannedRow, name: string, jobs: readonly Job[]): string[] {
  if (state !== 'new') return [];
  return jobs.flatMap((job) => {
    const [other = '', row] = job.key?.split('/') ?? [];
    return row === undefined || other === name || chargeOf(job) === 'no' ? [] : [other];
  });
}

// Returns the jobs outside the batch that block the given row until their outcome is known.
function doubtsOf({ id, work, take: { key } }: PlannedRow, jobs: readonly Job[]): RowInDoubt[] {
  return jobs.flatMap((job) => {
    const about = doubtForRow(job, key, isSpeech(work));
    return about === undefined ? [] : [{ id, job, about }];
  });
}

// Returns whether the given job was charged. A failed job is treated as not charged, so that its request can be retried
// under a different name.
function chargeOf(job: Job): Charged {
  if (job.state === 'failed') return 'no';
  if (job.handle !== undefined) return 'yes';
  return ['unknown', 'sending'].includes(shownState(job)) ? 'maybe' : 'no';
}

function withAgentText<Problem extends { message: string }>(problem: Problem): Problem {
  return { ...problem, message: agentText(problem.message) };
}

// Returns the JSON representation of a row, with its error, whether it was charged, and the tool to call next.
function rowForAgent(
  planned: PlannedRow,
  runError: MgwError | undefined,
  forPerson: (command: string[]) => string[],
): Record<string, unknown> {
  const { job } = planned.take;
  const charged = chargeOfRow(planned);
  const error = runError ?? recordedError(planned);
  const answer = error && errorAnswer(error, charged);
  return {
    ...rowView(planned),
    charged,
    error: answer?.error,
    next: job === undefined ? null : nextOf(planned.state, job.id),
    command: answer?.command && forPerson(answer.command),
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

// Returns the recorded error of the given row; undefined if the row has none.
function recordedError({ state, take: { job } }: PlannedRow): MgwError | undefined {
  if (job === undefined) return undefined;
  if (state === 'failed') return failedError(job);
  return state === 'rejected' || state === 'unknown' ? noHandleError(job) : undefined;
}

// Refuses rows that were not checked, because the manifest may have been edited after its cost was checked.
function onlyChecked(deps: PlanDeps, checked: ReadonlySet<string>): PlanDeps {
  // Tracks the checked rows by identity, because a row's hash changes once the videos that it waits for exist.
  const checkedRows = new WeakSet<Row>();
  return {
    ...deps,
    workOf: async (row, inputs) => {
      const work = await deps.workOf(row, inputs);
      if (!checkedRows.has(row) && !checked.has(hashOf(work)))
        throw usageError('The row changed after the batch was checked. Run the batch again.');
      checkedRows.add(row);
      return work;
    },
  };
}

/** A run of checked rows. `listing` is the plan's model list, so that the run composes each row as the plan did. */
interface CheckedRun {
  listing: Listing;
  hashes: ReadonlySet<string>;
  job: FlowDeps;
  budget: string | undefined;
}

async function runChecked(
  context: Context,
  batch: Batch,
  { listing, hashes, job: jobDeps, budget }: CheckedRun,
  onError: (id: string, error: MgwError) => void,
): Promise<MgwError | undefined> {
  const plan = onlyChecked(await planDepsOf(context, batch, undefined, listing), hashes);
  const deps = { plan, job: await withBudget(jobDeps, 'batch', batch.name, budget) };
  const ready = await readyRun(batch, deps, everyRow, () => undefined);
  if (ready.plan.bad > 0) return invalidRowsError(ready.plan);
  const beforeRow = await queueUpdaterOf(batch.name, plan, () => undefined);
  const rows = await runOptionsOf(context, batch, { sidecar: false }, () => undefined);
  const options = { ...rows, isOfAgent: true };
  const watcher = {
    began: () => undefined,
    updated: () => undefined,
    skipped: () => undefined,
    bad: ({ id }: { id: string }, error: MgwError) => onError(id, error),
    note: () => undefined,
    beforeRow,
    ended: ({ planned, error }: RowEnd) => {
      if (error !== undefined) onError(planned.id, error);
      return Promise.resolve();
    },
  };
  try {
    return await runBatch(batch, ready, everyRow, deps, options, watcher);
  } finally {
    await rows.pace.close();
  }
}

// Opens a batch that reads and writes only below the agent's root, regardless of the manifest and earlier runs.
async function openBelowRoot(
  context: Context,
  { manifest, name, output }: BatchRequest,
  root: Root,
): Promise<{ batch: Batch; options: BatchOptions }> {
  const file = await root.file(manifest, 'manifest');
  if (output !== undefined) await root.file(output, 'output');
  const outputPath = output === undefined || isAbsolute(output) ? output : join(root.path, output);
  const overrides = {
    ...(name !== undefined && { name }),
    ...(outputPath !== undefined && { output: outputPath }),
  };
  const { batch, options } = await openNamed(context, file, overrides);
  const place = await placeBelowRoot(batch.place, root);
  const limits = { readable: [root.path], filesFrom: root.path, hasOnlyFlags: true };
  return { batch: { ...batch, place, ...limits }, options };
}

function notBelowRoot(root: Root): MgwError {
  return usageError(`output must be a path below ${root.path}, not an object's URL.`);
}

async function placeBelowRoot(place: OutputPlace, root: Root): Promise<OutputPlace> {
  if (isObjectUrl(place.folder)) throw notBelowRoot(root);
  // Resolves a relative output of the manifest against the root instead of the current folder.
  const isInside = !relative(root.path, place.folder).startsWith('..');
  const folder = isInside ? place.folder : resolve(root.path, relative(process.cwd(), place.folder));
  await root.file(folder, 'output');
  return { ...place, folder, root: root.path };
}
