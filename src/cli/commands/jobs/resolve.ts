import type { Command } from 'commander';
import { messageOf, usageError } from '../../../errors.ts';
import type { SubmitVerdict } from '../../../exchange.ts';
import type { Job } from '../../../job.ts';
import type { JsonObject } from '../../../json.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import { resolveJob, type Resolution } from '../../../jobs/resolve.ts';
import type { Order } from '../../../jobs/order.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import { takeOn } from '../../../jobs/run.ts';
import { reconcile } from '../../../jobs/reconcile.ts';
import { holdFor } from '../../../payment/hold.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { payingDeps } from '../../../flows/paying-deps.ts';
import { budgetOptions, type BudgetOptions } from '../../budget-options.ts';
import type { Context } from '../../context.ts';
import { single } from '../../options.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { configured } from '../../../flows/protocols.ts';
import { addOutputOptions, addWaitOptions, checkStdout, type OutputOptions } from '../../wait-options.ts';

interface ResolveOptions extends OutputOptions, BudgetOptions {
  adopt?: string;
  notCreated?: boolean;
  resubmit?: boolean;
}

/** `mgw jobs resolve REF --adopt HANDLE | --not-created | --resubmit`: how a person ends an `unknown`. */
export function registerResolve(command: Command, run: Run): void {
  command
    .argument('<ref>', 'job id, @key or @last')
    .addOption(single('--adopt <handle>', 'the task exists: this is its handle'))
    .option('--not-created', 'the task does not exist; the same command may submit again')
    .option('--resubmit', 'submit it again now, knowing that it may be charged twice');
  addOutputOptions(command, 'wait for the task that exists, and save its result here; - writes it to stdout');
  addWaitOptions(command);
  for (const option of budgetOptions('this submission')) command.addOption(option);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs resolve @last --adopt task_123\n  $ mgw jobs resolve @last --not-created\n  $ mgw jobs resolve @last --not-created --json',
    )
    .action((ref: string) => run(command, (context) => resolve(context, ref, command.opts())));
}

async function resolve(context: Context, ref: string, options: ResolveOptions): Promise<Outcome> {
  checkStdout(context, options);
  const resolution = chosen(options);
  if (options.output !== undefined && resolution.how === 'not-created')
    throw usageError('--not-created leaves nothing to save: leave --output out.');
  if (options.budget !== undefined && resolution.how !== 'resubmit')
    throw usageError('--budget goes with --resubmit: nothing else pays.');
  const { protocols } = await import('../../../protocols/registry.ts');
  const ledger = await context.ledger();
  const found = (await findJob(ledger, ref)) ?? missing(ref);
  if (found.protocol === 'tts') {
    const settled = await reconcile(ledger, found, () => unreadSpeech);
    const job = await resolveJob(ledger, settled, notAdopted(resolution));
    return { json: { job: jobView(job) }, text: job.id };
  }
  const protocol = configured(protocols[found.protocol], await context.settings());
  const job = await reconcile(ledger, found, (reply, body) =>
    protocol.readSubmission(reply, body as JsonObject),
  );
  if (resolution.how === 'adopted') checkHandle(resolution.handle, job, protocol);
  if (resolution.how === 'resubmit') return submitAgain(context, job, protocol, options);
  const resolved = await resolveJob(ledger, job, resolution);
  if (options.output === undefined) return { json: { job: jobView(resolved) }, text: resolved.id };
  const { deliverExisting, wantedBy } = await import('../video/deliver.ts');
  return deliverExisting(
    context,
    protocol,
    resolved,
    await context.jobDeps(),
    await wantedBy(context, 'fetch', options),
    options,
  );
}

// A stream that broke off left no answer that could be read again.
const unreadSpeech: SubmitVerdict = {
  kind: 'unknown',
  failure: { code: 'submit_unknown', message: 'The process ended before the speech did.' },
};

function checkHandle(handle: string, job: Job, protocol: Protocol): void {
  try {
    protocol.query(handle, job.model);
  } catch (error) {
    throw usageError(`--adopt: this is no handle of Protocol ${protocol.name}: ${messageOf(error)}`);
  }
}

function chosen(options: ResolveOptions): Resolution {
  const given = [options.adopt !== undefined, options.notCreated, options.resubmit].filter(Boolean);
  if (given.length !== 1) throw usageError('Give exactly one of --adopt HANDLE, --not-created, --resubmit.');
  if (options.adopt === '') throw usageError('--adopt: the handle is empty.');
  if (options.adopt !== undefined) return { how: 'adopted', handle: options.adopt };
  return { how: options.notCreated ? 'not-created' : 'resubmit' };
}

// Speech leaves nothing at the gateway that could be adopted.
function notAdopted(resolution: Resolution): Resolution {
  if (resolution.how === 'not-created') return resolution;
  throw usageError(
    'A speech job has no task at the gateway: use --not-created, or run mgw tts again with --new.',
  );
}

function checkRepeatable(job: Job): void {
  if (!job.record.elided && job.request !== undefined) return;
  throw usageError(
    `The body of ${job.id} was too large to be recorded; run the original command with --new.`,
  );
}

async function submitAgain(
  context: Context,
  job: Job,
  protocol: Protocol,
  options: ResolveOptions,
): Promise<Outcome> {
  checkRepeatable(job);
  const { submitAndDeliver, wantedBy } = await import('../video/deliver.ts');
  const body = job.request as JsonObject;
  const deps = await payingDeps(context, 'command', job.record.fingerprint, options);
  const { goal, deadline } = await wantedBy(context, 'submit', options);
  const order: Order = {
    protocol: protocol.name,
    model: job.model,
    body,
    fingerprint: job.record.fingerprint,
    exchange: protocol.submission(body),
    auth: protocol.auth,
    read: (reply) => protocol.readSubmission(reply, body),
    key: job.key,
    fresh: false,
    goal,
    deadline,
  };
  // Where no budget has room for it, the doubt stands as it is.
  if (job.state === 'unknown') await checkRoom(order, job, deps);
  const resolved = await resolveJob(deps.ledger, job, { how: 'resubmit' });
  return submitAndDeliver(context, protocol, order, deps, options, takeOn(resolved, deps));
}

async function checkRoom(order: Order, { id: name }: Job, deps: JobDeps): Promise<void> {
  const purchase = { ...(await deps.priceOf(order)), name };
  const hold = await holdFor(purchase, await deps.allowances(), deps.lease, deps.note);
  await hold.settle('none');
}
