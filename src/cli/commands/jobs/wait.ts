import { toMgwError } from '../../../errors.ts';
import type { Command } from 'commander';
import type { Deadline } from '../../../clock.ts';
import type { FlowDeps } from '../../../flows/settings.ts';
import type { Context } from '../../context.ts';
import { columnsOf, write } from '../../io.ts';
import { jobLine, paintOn, withStates } from '../../output/human.ts';
import { isInterruption, type Outcome, runForRefs, withOwnSignals } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { readRefs } from '../../input.ts';
import { addWaitOptions } from '../../wait-options.ts';

/** `mgw jobs wait REF...`: waits until every job has ended, and prints each as it ends. */
export function registerWait(command: Command, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last; - reads them from stdin');
  addWaitOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs wait @last --timeout 10m\n  $ mgw jobs wait @last --json\n  $ mgw jobs ls -q --state running | mgw jobs wait -',
    )
    .action((refs: string[]) => run(command, (context) => wait(context, refs), 'runs jobs'));
}

/** The maximum pause between the first polls of consecutive jobs, in ms. */
const maxGapMs = 50;

async function wait(context: Context, refArguments: string[]): Promise<Outcome> {
  const deadline = await context.deadline();
  // Reads the REFs before `jobDeps` installs signal handlers, so that a signal ends the command during the read.
  const refs = await readRefs(refArguments, context.io, deadline);
  const deps = await context.jobDeps();
  // Spreads the first polls over one interval, which also spreads the later polls. Otherwise, a thousand polls could be
  // sent at once.
  const gapMs = Math.min(maxGapMs, deps.pollIntervalMs / refs.length);
  let startedCount = 0;
  const waitAndPrint = async (ref: string): Promise<Outcome> => {
    const ownDeps = withOwnSignals(deps);
    // Ignores an interruption here, because the wait for the job reports it.
    await deps.clock.sleep(gapMs * startedCount++, ownDeps.signals.soft).catch(() => undefined);
    const outcome = await waitForOne(context, ref, ownDeps, deadline);
    const isOver = refs.length === 1 || outcome.error === undefined || !isInterruption(outcome.error);
    return isOver ? printOutcome(context, outcome) : { ...outcome, text: undefined };
  };
  return runForRefs(refs, waitAndPrint, context, refs.length);
}

// Prints each job as it ends, because the next one may take an hour.
async function printOutcome(context: Context, { text, ...outcome }: Outcome): Promise<Outcome> {
  const { io, globals, progress } = context;
  const paint = paintOn(io.stdout, io.env, globals.color);
  const line = context.redact(`${withStates(text ?? '', paint)}\n`);
  if (text && !globals.json) await progress.withSpinnerHidden(() => write(io.stdout, line, 'yes'));
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
    const latest = (await deps.ledger.read(job.id)) ?? job;
    return { ...outcome, text: jobLine(latest, columnsOf(context.io.stdout)) };
  } catch (error) {
    return { json: {}, error: toMgwError(error) };
  }
}
