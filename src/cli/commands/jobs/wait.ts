import type { Command } from 'commander';
import { deadlineIn, type Deadline } from '../../../clock.ts';
import { exitCodes } from '../../../errors.ts';
import type { Job } from '../../../job.ts';
import type { JobDeps } from '../../../jobs/gateway.ts';
import { wasCutOff } from '../../../jobs/earlier.ts';
import { pendingError, rejectedError, unknownError } from '../../../jobs/errors.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import { shownState } from '../../../jobs/settle.ts';
import { refusalOf } from '../../../jobs/submission-errors.ts';
import type { Context } from '../../context.ts';
import { jobLine } from '../../output/human.ts';
import { errorView, jobView } from '../../output/json.ts';
import { toMgwError, type Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { configured } from '../../protocols.ts';
import { readRefs } from '../../refs.ts';
import { addWaitOptions } from '../../wait-options.ts';

/** `mgw jobs wait REF...`: waits until every job has ended; prints one line for each. */
export function registerWait(jobs: Command, run: Run): void {
  const command = jobs
    .command('wait')
    .description('wait until jobs have finished; saves nothing')
    .argument('<refs...>', 'job ids, @key, @last; - reads them from stdin');
  addWaitOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs wait @last --timeout 10m\n  $ mgw jobs ls -q --state running | mgw jobs wait -',
    )
    .action((refs: string[]) => run(command, (context) => wait(context, refs)));
}

interface Ended {
  ref: string;
  outcome: Outcome;
  job?: Job;
}

async function wait(context: Context, refs: string[]): Promise<Outcome> {
  const deps = await context.jobDeps();
  const settings = await context.settings();
  const deadline = deadlineIn(settings.timeoutMs.value, context.clock);
  const named = await readRefs(refs, context.io);
  const ended = await Promise.all(
    named.map((ref) => waitForOne(context, ref, withOwnSignals(deps), deadline)),
  );
  if (ended.length === 1 && ended[0] !== undefined) return single(ended[0]);
  const views = ended.map(({ outcome }) => ({
    ...(outcome.json['job'] as object),
    ...(outcome.error && { outcome: errorView(outcome.error) }),
  }));
  for (const { ref, outcome } of ended)
    if (outcome.error) context.progress.note(`${ref}: ${outcome.error.message}`);
  const bad = ended.some(({ outcome }) => outcome.error !== undefined);
  return {
    json: { jobs: views },
    text: lines(ended),
    exitCode: bad ? exitCodes.partial : exitCodes.ok,
    printed: async () => {
      for (const { outcome } of ended) await outcome.printed?.();
    },
  };
}

// For each listener that comes or goes Node walks all that its signal has: a thousand jobs must not share one.
function withOwnSignals(deps: JobDeps): JobDeps {
  const { soft, hard } = deps.signals;
  return { ...deps, signals: { soft: AbortSignal.any([soft]), hard: AbortSignal.any([hard]) } };
}

function single(ended: Ended): Outcome {
  return { ...ended.outcome, text: lines([ended]) };
}

function lines(ended: readonly Ended[]): string {
  return ended.flatMap(({ job }) => (job ? [jobLine(job)] : [])).join('\n');
}

async function waitForOne(context: Context, ref: string, deps: JobDeps, deadline: Deadline): Promise<Ended> {
  try {
    const [{ protocols }, { beginRun, deliver }, { videoJob }] = await Promise.all([
      import('../../../protocols/registry.ts'),
      import('../video/deliver.ts'),
      import('../video/video-job.ts'),
    ]);
    const found = (await findJob(deps.ledger, ref)) ?? missing(ref);
    if (found.protocol === 'tts') return { ref, job: found, outcome: await spokenOutcome(found) };
    const protocol = configured(protocols[found.protocol], await context.settings());
    const job = await videoJob(found.id, protocol, deps);
    const run = await beginRun(job, 'finish', deps);
    const outcome = await deliver(context, protocol, job, deps, {
      run,
      ask: 'finish',
      deadline,
      force: false,
      atOnce: true,
    });
    return { ref, job: await deps.ledger.read(job.id), outcome };
  } catch (error) {
    return { ref, outcome: { json: {}, error: toMgwError(error) } };
  }
}

// Speech is over when its command is: there is nothing at the gateway to wait for, only an end to tell.
async function spokenOutcome(job: Job): Promise<Outcome> {
  const json = { job: jobView(job) };
  if (job.state === 'failed' || wasCutOff(job)) {
    const { endedError } = await import('../../../speech/earlier-take.ts');
    return { json, error: endedError(job) };
  }
  if (job.state === 'rejected') return { json, error: rejectedError(refusalOf(job)) };
  if (shownState(job) === 'unknown')
    return { json, error: unknownError(job, job.error?.message ?? 'The answer was lost') };
  if (job.state === 'succeeded') return { json };
  // Under way in another process, or never sent.
  return { json, error: pendingError(job, job.handle === undefined ? { charged: 'no' } : {}) };
}
