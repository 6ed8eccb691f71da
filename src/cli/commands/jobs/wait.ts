import { toMgwError } from '../../../errors.ts';
import type { Command } from 'commander';
import { type Deadline } from '../../../clock.ts';
import type { Job } from '../../../job.ts';
import type { FlowDeps } from '../../../flows/settings.ts';
import type { Context } from '../../context.ts';
import { columnsOf, write } from '../../io.ts';
import { paintOn, plain, withStates } from '../../output/human.ts';
import { jobLine } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { isInterruption, severalOutcomes, withOwnSignals } from '../../output/outcome.ts';
import { readRefs } from '../../input.ts';
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

/** The maximum pause between the first polls of two jobs, ms. */
const maxGapMs = 50;

async function wait(context: Context, given: string[]): Promise<Outcome> {
  const [deps, deadline] = await Promise.all([context.jobDeps(), context.deadline()]);
  const refs = await readRefs(given, context.io);
  // Spreads the first polls over one interval, and with them all later ones, so that a thousand polls never come at
  // once.
  const gapMs = Math.min(maxGapMs, deps.pollIntervalMs / refs.length);
  let begun = 0;
  const one = async (ref: string): Promise<Outcome> => {
    const own = withOwnSignals(deps);
    // Ignores an interruption, which the wait for the job reports.
    await deps.clock.sleep(gapMs * begun++, own.signals.soft).catch(() => undefined);
    const outcome = await waitForOne(context, ref, own, deadline);
    const isOver = refs.length === 1 || outcome.error === undefined || !isInterruption(outcome.error);
    return isOver ? told(context, outcome) : { ...outcome, text: undefined };
  };
  return severalOutcomes(refs, one, context.progress, refs.length);
}

// Prints each job as it ends, because the next one may take an hour.
async function told(context: Context, { text, ...outcome }: Outcome): Promise<Outcome> {
  const { io, globals, progress } = context;
  const paint = globals.color === false ? plain : paintOn(io.stdout, io.env);
  const line = context.redact(`${withStates(text ?? '', paint)}\n`);
  if (text && !globals.json) await progress.aside(() => write(io.stdout, line, 'yes'));
  return outcome;
}

async function waitForOne(
  context: Context,
  ref: string,
  deps: FlowDeps,
  deadline: Deadline,
): Promise<Outcome> {
  try {
    const [{ findJobHere }, { waitFor }, { deliveredOutcome, hooksOf }] = await Promise.all([
      import('../../../flows/find-job.ts'),
      import('../../../flows/fetch.ts'),
      import('../video/delivered.ts'),
    ]);
    const found = await findJobHere(ref, deps, ['jobs', 'wait']);
    const { job } = found;
    const outcome = await deliveredOutcome(context, {}, () =>
      waitFor(found, deadline, deps, hooksOf(context)),
    );
    return withLine((await deps.ledger.read(job.id)) ?? job, outcome, context);
  } catch (error) {
    return { json: {}, error: toMgwError(error) };
  }
}

function withLine(job: Job, outcome: Outcome, { io }: Context): Outcome {
  return { ...outcome, text: jobLine(job, columnsOf(io.stdout)) };
}
