import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, type BudgetOptions, single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addOutputOptions,
  addWaitOptions,
  checkStdout,
  type OutputOptions,
  targetOf,
} from '../../wait-options.ts';
import { usageError } from '../../../errors.ts';
import type { Resolution } from '../../../jobs/resolve.ts';

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
  const [flow, { deliveredOutcome, hooksOf, submitHooks }, deadline] = await Promise.all([
    import('../../../flows/resolve.ts'),
    import('../video/delivered.ts'),
    context.deadline(),
  ]);
  const { budget, force = false } = options;
  const target = targetOf(options);
  const wanted = { target, force, budget, deadline };
  const pays = resolution.how === 'resubmit';
  const isWaiting = target !== undefined;
  const hooks = pays
    ? submitHooks(context, (await context.jobDeps()).account, { isWaiting })
    : hooksOf(context, { isWaiting });
  return deliveredOutcome(context, options, () => flow.resolve(context, ref, resolution, wanted, hooks));
}

function chosen(options: ResolveOptions): Resolution {
  const given = [options.adopt !== undefined, options.notCreated, options.resubmit].filter(Boolean);
  if (given.length !== 1) throw usageError('Give exactly one of --adopt HANDLE, --not-created, --resubmit.');
  if (options.adopt === '') throw usageError('--adopt: the handle is empty.');
  if (options.adopt !== undefined) return { how: 'adopted', handle: options.adopt };
  return { how: options.notCreated ? 'not-created' : 'resubmit' };
}
