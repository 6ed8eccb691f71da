import { randomUUID } from 'node:crypto';
import type { Deadline } from '../../../clock.ts';
import { MgwError } from '../../../errors.ts';
import type { Ask, Job, JobFile } from '../../../job.ts';
import { failedError, interruptedError } from '../../../jobs/errors.ts';
import { fetchResults } from '../../../jobs/fetch.ts';
import type { JobDeps } from '../../../jobs/gateway.ts';
import type { Order } from '../../../jobs/order.ts';
import { delivered, detached } from '../../../jobs/run.ts';
import { withoutHandle } from '../../../jobs/submission-errors.ts';
import { jobOf, submit, UnrecordedHandle } from '../../../jobs/submit.ts';
import { watch, type WatchOptions } from '../../../jobs/watch.ts';
import type { Target } from '../../../jobs/target.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import { jobView } from '../../output/json.ts';
import { toMgwError, type Outcome } from '../../output/outcome.ts';
import { targetOf, type OutputOptions } from '../../wait-options.ts';
import { showWaiting } from './waiting.ts';

/** Submits an order (or carries on with it), and delivers as much as it asks for. */
export async function submitAndDeliver(
  context: Context,
  protocol: Protocol,
  order: Order,
  deps: JobDeps,
  options: OutputOptions,
): Promise<Outcome> {
  let submitted;
  try {
    submitted = await submit(order, deps);
  } catch (error) {
    return notSubmitted(error, deps);
  }
  const { job, run, resumed } = submitted;
  const handle = `handle ${job.handle ?? '?'}`;
  context.progress.note(
    resumed
      ? `Resuming ${job.id} (${handle}); nothing is submitted again.`
      : `Accepted as ${job.id} (${handle}).`,
  );
  return deliver(context, protocol, job, deps, {
    run,
    ask: order.ask,
    deadline: order.deadline,
    target: targetOf(options),
    force: options.force ?? false,
    atOnce: resumed,
  });
}

// The handle of an unrecorded acceptance is data: it goes to stdout as well as into the message.
async function notSubmitted(error: unknown, deps: JobDeps): Promise<Outcome> {
  const before = jobOf(error);
  if (error instanceof UnrecordedHandle) {
    return { json: { handle: error.handle, job: before && jobView(before) }, text: error.handle, error };
  }
  const job = before && ((await deps.ledger.read(before.id)) ?? before);
  for (const { run, owner } of job?.record.runs ?? []) {
    if (job && owner.pid === deps.owner.pid && owner.start === deps.owner.start)
      await detached(job, run, error, deps);
  }
  return { json: job ? { job: jobView(job) } : {}, error: toMgwError(error) };
}

/** What is to be delivered of a job, and in which run of it. */
export interface Delivery {
  run: string;
  ask: Ask;
  deadline: Deadline;
  target?: Target;
  force: boolean;
  /** True polls at once; else one interval after the submission. */
  atOnce: boolean;
}

/**
 * Waits for a job as far as the delivery asks, saves its files, and records how the run ended. That it ended well is
 * recorded by the outcome's `printed`: before its id or path was said, a repeat of the command must not pay again.
 */
export async function deliver(
  context: Context,
  protocol: Protocol,
  job: Job,
  deps: JobDeps,
  delivery: Delivery,
): Promise<Outcome> {
  try {
    const files = await carryOut(context, protocol, job, deps, delivery);
    const done = (await deps.ledger.read(job.id)) ?? job;
    const paths = files.map((file) => file.path).join('\n');
    const text = delivery.target?.kind === 'stdout' ? '' : delivery.target ? paths : job.id;
    return {
      json: { job: jobView(done), ...(delivery.target && { files }) },
      text,
      printed: () => delivered(job, delivery.run, delivery.ask, deps),
    };
  } catch (error) {
    await detached(job, delivery.run, error, deps);
    const last = (await deps.ledger.read(job.id)) ?? job;
    return { json: { job: jobView(last) }, error: toMgwError(error) };
  }
}

async function carryOut(
  context: Context,
  protocol: Protocol,
  job: Job,
  deps: JobDeps,
  delivery: Delivery,
): Promise<JobFile[]> {
  askable(job, protocol);
  if (job.state === 'failed') throw failedError(job);
  if (delivery.ask === 'accept') {
    if (deps.signals.soft.aborted) throw interruptedError(deps.signals.soft, job, 'yes');
    return [];
  }
  const { pollIntervalMs } = await context.gateway();
  const shown = showWaiting(job, deps.ledger, context.progress);
  const options: WatchOptions = {
    deadline: delivery.deadline,
    intervalMs: pollIntervalMs,
    atOnce: delivery.atOnce,
    onUpdate: shown.update,
  };
  try {
    return await awaited(context, protocol, job, deps, delivery, options);
  } finally {
    shown.end();
  }
}

async function awaited(
  context: Context,
  protocol: Protocol,
  job: Job,
  deps: JobDeps,
  delivery: Delivery,
  options: WatchOptions,
): Promise<JobFile[]> {
  if (delivery.target === undefined) {
    if (job.state !== 'succeeded' || job.record.results === 0) await watch(job, protocol, deps, options);
    return [];
  }
  const settings = await context.settings();
  return fetchResults(job, protocol, deps, {
    ...options,
    target: delivery.target,
    force: delivery.force,
    key: (await context.gateway()).key,
    trustedOrigins: settings.trustedOrigins.value,
    onProgress: (transfer) => context.progress.downloading(transfer),
    toStdout: (bytes) => write(context.io.stdout, bytes, 'yes'),
  });
}

// Accepted and paid for under a handle that cannot be asked for: no run of it may look like a success.
function askable(job: Job, protocol: Protocol): void {
  try {
    protocol.query(job.handle ?? '', job.model);
  } catch (error) {
    throw error instanceof MgwError ? Object.assign(error, { next: ['mgw', 'jobs', 'show', job.id] }) : error;
  }
}

/**
 * Begins a run on a job that exists already, as `fetch` and `jobs wait` do.
 * @throws MgwError: exit 7 where it is unknown whether the task exists, 3 or 4 where it was rejected, 6 where it was
 * never sent, 8 where it is being sent.
 */
export async function beginRun(job: Job, ask: Ask, deps: JobDeps): Promise<string> {
  if (job.handle === undefined) throw withoutHandle(job);
  const run = randomUUID().slice(0, 8);
  await deps.ledger.append(job.id, { type: 'began', run, owner: deps.owner, ask });
  return run;
}
