import { toMgwError } from '../../../errors.ts';
import type { Command } from 'commander';
import { deadlineIn, type Deadline } from '../../../clock.ts';
import type { Job } from '../../../job.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import { goalOf } from '../../../jobs/target.ts';
import type { Context } from '../../context.ts';
import { columnsOf, write } from '../../io.ts';
import { paintOn, plain, withStates } from '../../output/colour.ts';
import { jobLine } from '../../output/human.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { configured } from '../../../flows/protocols.ts';
import { severalOutcomes } from '../../output/several.ts';
import { readRefs } from '../../refs.ts';
import { addWaitOptions } from '../../wait-options.ts';

/** `mgw jobs wait REF...`: waits until every job has ended; prints a line for each as it ends. */
export function registerWait(command: Command, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last; - reads them from stdin');
  addWaitOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs wait @last --timeout 10m\n  $ mgw jobs wait @last --json\n  $ mgw jobs ls -q --state running | mgw jobs wait -',
    )
    .action((refs: string[]) => run(command, (context) => wait(context, refs)));
}

/** Between the first looks at two of several jobs, ms. */
const longestGapMs = 50;

async function wait(context: Context, given: string[]): Promise<Outcome> {
  const deps = await context.jobDeps();
  const settings = await context.settings();
  const deadline = deadlineIn(settings.timeoutMs.value, context.clock);
  const refs = await readRefs(given, context.io);
  const { pollIntervalMs } = await context.gateway();
  // Spread over one interval, and so their later polls: a thousand at once would be a thousand at once each time.
  const gapMs = Math.min(longestGapMs, pollIntervalMs / refs.length);
  let begun = 0;
  const one = async (ref: string): Promise<Outcome> => {
    const own = withOwnSignals(deps);
    // What interrupts this is told of each job by its own wait.
    await deps.clock.sleep(gapMs * begun++, own.signals.soft).catch(() => undefined);
    return told(context, await waitForOne(context, ref, own, deadline));
  };
  return severalOutcomes(refs, one, context.progress, refs.length);
}

// Said as each job ends: the next one may take an hour.
async function told(context: Context, { text, ...outcome }: Outcome): Promise<Outcome> {
  const { io, globals, progress } = context;
  const paint = globals.color === false ? plain : paintOn(io.stdout, io.env);
  const line = context.redact(`${withStates(text ?? '', paint)}\n`);
  if (text && !globals.json) await progress.aside(() => write(io.stdout, line, 'yes'));
  return outcome;
}

// For each listener that comes or goes Node walks all that its signal has: a thousand jobs must not share one.
function withOwnSignals(deps: JobDeps): JobDeps {
  const { soft, hard } = deps.signals;
  return { ...deps, signals: { soft: AbortSignal.any([soft]), hard: AbortSignal.any([hard]) } };
}

async function waitForOne(
  context: Context,
  ref: string,
  deps: JobDeps,
  deadline: Deadline,
): Promise<Outcome> {
  try {
    const [{ protocols }, { deliverExisting }, { jobFor }] = await Promise.all([
      import('../../../protocols/registry.ts'),
      import('../video/deliver.ts'),
      import('../../../jobs/ref.ts'),
    ]);
    const found = (await findJob(deps.ledger, ref)) ?? missing(ref);
    if (found.protocol === 'tts') {
      const { speechProblem } = await import('../../../speech/problem.ts');
      return withLine(found, { json: { job: jobView(found) }, error: speechProblem(found) }, context);
    }
    const protocol = configured(protocols[found.protocol], await context.settings());
    const job = await jobFor(found.id, protocol, deps);
    const wanted = { goal: goalOf('wait', 'finish', undefined), force: false, deadline };
    const outcome = await deliverExisting(context, protocol, job, deps, wanted);
    return withLine((await deps.ledger.read(job.id)) ?? job, outcome, context);
  } catch (error) {
    return { json: {}, error: toMgwError(error) };
  }
}

function withLine(job: Job, outcome: Outcome, { io }: Context): Outcome {
  return { ...outcome, text: jobLine(job, columnsOf(io.stdout)) };
}
