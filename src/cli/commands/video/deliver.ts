import { toMgwError } from '../../../errors.ts';
import { deadlineIn, type Deadline } from '../../../clock.ts';
import type { Goal, Job, JobEvent, JobFile } from '../../../job.ts';
import { createOrResume } from '../../../jobs/create-or-resume.ts';
import { deliver, type Delivery } from '../../../jobs/deliver.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import type { Order } from '../../../jobs/order.ts';
import { inRun, onExisting, type Ran } from '../../../jobs/run.ts';
import { submit } from '../../../jobs/submit.ts';
import { goalOf, type Target } from '../../../jobs/target.ts';
import { printableLine } from '../../../printable.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { withOutput } from '../../../flows/next.ts';
import type { Context } from '../../context.ts';
import { writeMedia } from '../../io.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Outcome } from '../../output/outcome.ts';
import { version } from '../../../version.ts';
import { targetOf, type OutputOptions } from '../../wait-options.ts';
import { costText, savedText } from '../../output/saved.ts';
import { showWaiting } from './waiting.ts';

/** What of a job a command delivers, and where it goes. */
export interface Wanted {
  goal: Goal;
  target?: Target;
  force: boolean;
  deadline: Deadline;
}

/** What a command wants of a job by its flags, without `--wait`. */
export async function wantedBy(
  context: Context,
  command: Goal['command'],
  options: OutputOptions,
): Promise<Wanted> {
  const target = targetOf(options);
  const { timeoutMs } = await context.settings();
  return {
    goal: goalOf(command, target === undefined ? 'accept' : 'file', target),
    target,
    force: options.force ?? false,
    deadline: deadlineIn(timeoutMs.value, context.clock),
  };
}

/**
 * Submits an order (or carries on with it), and delivers as much as it asks for.
 * @param begin the job to send; found or made by the order where this is absent
 */
export async function submitAndDeliver(
  context: Context,
  protocol: Protocol,
  order: Order,
  deps: JobDeps,
  options: OutputOptions,
  begin = (began: JobEvent): Promise<Job> => createOrResume(order, deps, began),
): Promise<Outcome> {
  const { goal, deadline } = order;
  const wanted = { goal, deadline, target: targetOf(options), force: options.force ?? false };
  return outcomeOf(context, options, wanted, deps, () =>
    inRun(goal, deps, begin, async (found, own) => {
      const { job, isResumed } = await submit(found, order, own);
      const handle = `handle ${job.handle ?? '?'}`;
      context.progress.note(
        isResumed
          ? `Resuming ${job.id} (${handle}); nothing is submitted again.${accountText(job, deps)}`
          : `Accepted as ${job.id} (${handle}).`,
      );
      return deliver(job, protocol, own, await delivery(context, job, own, wanted, isResumed));
    }),
  );
}

// A key that was rotated sees the tasks of the same account; one of another account does not.
function accountText({ record }: Job, { account }: JobDeps): string {
  return record.account === '' || record.account === account ? '' : ' It was submitted with another API key.';
}

/** Delivers a job that exists already, as `fetch` and `jobs wait` do. */
export async function deliverExisting(
  context: Context,
  protocol: Protocol,
  job: Job,
  deps: JobDeps,
  wanted: Wanted,
  options: OutputOptions = {},
): Promise<Outcome> {
  return outcomeOf(context, options, wanted, deps, () =>
    inRun(wanted.goal, deps, onExisting(job, deps), async (found, own) =>
      deliver(found, protocol, own, await delivery(context, found, own, wanted, true)),
    ),
  );
}

/**
 * The outcome of a run. That it was delivered is recorded by `printed`: before its id or path was said, a repeat of
 * the command must not pay again.
 */
async function outcomeOf(
  context: Context,
  options: OutputOptions,
  { target }: Wanted,
  deps: JobDeps,
  run: () => Promise<Ran<JobFile[]>>,
): Promise<Outcome> {
  const { clock, progress } = context;
  const [begun, begunAt] = [clock.monotonic(), clock.now()];
  try {
    const { value: files, job, delivered } = await run();
    if (options.sidecar) await (await import('../../../jobs/sidecar.ts')).writeSidecars(job, files, version);
    if (files.length > 0) {
      const cost = await costText(deps.ledger, [job]);
      const isOld = target?.kind !== 'stdout' && Date.parse(job.fetched_at ?? '') < begunAt;
      progress.note(savedText({ files, ms: clock.monotonic() - begun, cost, isOld }));
    }
    const paths = files.map((file) => file.path).join('\n');
    const text = target?.kind === 'stdout' ? '' : target ? paths : job.id;
    return { json: { job: jobView(job), ...(target && { files }) }, text, printed: delivered, isRun: true };
  } catch (thrown) {
    const error = withOutput(toMgwError(thrown), options);
    const json = { ...(error.handle !== undefined && { handle: error.handle }) };
    // The handle of an acceptance that could not be recorded is data: it goes to stdout as well as into the message.
    const text = error.handle && printableLine(error.handle);
    return { json: { ...json, ...(error.job && { job: jobView(error.job) }) }, text, error, isRun: true };
  }
}

async function delivery(
  context: Context,
  job: Job,
  deps: JobDeps,
  { goal, target, force, deadline }: Wanted,
  atOnce: boolean,
): Promise<Delivery> {
  const [{ pollIntervalMs, key }, settings] = await Promise.all([context.gateway(), context.settings()]);
  const shown = goal.ask === 'accept' ? undefined : showWaiting(job, deps.ledger, context.progress);
  return {
    ask: goal.ask,
    target,
    force,
    deadline,
    atOnce,
    intervalMs: pollIntervalMs,
    onUpdate: shown?.update,
    onEnd: shown?.end,
    key,
    trustedOrigins: settings.trustedOrigins.value,
    onProgress: (transfer) => context.progress.downloading(transfer),
    toStdout: (bytes) => writeMedia(context.io.stdout, bytes),
  };
}
