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
import { readLine } from '../../input.ts';
import { MgwError, usageError } from '../../../errors.ts';
import { resolveCommand, showCommand } from '../../../jobs/errors.ts';
import { globalArguments, withKeptFlags, withOutput } from '../../../flows/next.ts';
import type { Resolution } from '../../../flows/resolve.ts';

interface ResolveOptions extends OutputOptions, BudgetOptions {
  adopt?: string;
  notCreated?: boolean;
  resubmit?: boolean;
}

/**
 * `mgw jobs resolve REF [--adopt HANDLE | --not-created | --resubmit]`: records whether the task of an `unknown` job
 * exists. Without a choice, asks on a terminal; otherwise lists the choices and exits 7.
 */
export function registerResolve(command: Command, run: Run): void {
  command
    .argument('<ref>', 'job id, @key or @last')
    .addOption(single('--adopt <handle>', 'the task exists: this is its handle'))
    .option('--not-created', 'the task does not exist; the same command may submit again')
    .option('--resubmit', 'submit it again now, knowing that it may be charged twice');
  addOutputOptions(command, 'wait for the task, and save its result here; - writes it to stdout');
  addWaitOptions(command);
  for (const option of budgetOptions('this submission')) command.addOption(option);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs resolve @last\n  $ mgw jobs resolve @last --adopt task_123\n  $ mgw jobs resolve @last --not-created',
    )
    .action((ref: string) => run(command, (context) => resolve(context, ref, command.opts())));
}

async function resolve(context: Context, ref: string, options: ResolveOptions): Promise<Outcome> {
  checkStdout(context, options);
  const resolution = chosen(options) ?? (await askHow(context, ref, options));
  const [flow, { deliveredOutcome, hooksOf, submitHooks }, deadline] = await Promise.all([
    import('../../../flows/resolve.ts'),
    import('../video/delivered.ts'),
    context.deadline(),
  ]);
  const { budget, force = false } = options;
  const target = resolution.how === 'not-created' ? undefined : targetOf(options);
  const wanted = { target, force, budget, deadline };
  const pays = resolution.how === 'resubmit';
  const isWaiting = target !== undefined;
  const hooks = pays
    ? submitHooks(context, (await context.jobDeps()).account, { isWaiting })
    : hooksOf(context, { isWaiting });
  return deliveredOutcome(context, options, () => flow.resolve(context, ref, resolution, wanted, hooks));
}

function chosen(options: ResolveOptions): Resolution | undefined {
  const given = [options.adopt !== undefined, options.notCreated, options.resubmit].filter(Boolean);
  if (given.length > 1) throw usageError('Give only one of --adopt HANDLE, --not-created, --resubmit.');
  if (given.length === 0) return undefined;
  if (options.output !== undefined && options.notCreated)
    throw usageError('--not-created leaves nothing to save: leave --output out.');
  if (options.budget !== undefined && !options.resubmit)
    throw usageError('--budget requires --resubmit: nothing else pays.');
  if (options.adopt === '') throw usageError('--adopt: the handle is empty.');
  if (options.adopt !== undefined) return { how: 'adopted', handle: options.adopt };
  return { how: options.notCreated ? 'not-created' : 'resubmit' };
}

// Asks which choice applies. Without an answer, nothing is decided.
async function askHow(context: Context, ref: string, options: ResolveOptions): Promise<Resolution> {
  const [{ findDoubt }, { shellWord }] = await Promise.all([
    import('../../../flows/resolve.ts'),
    import('../../output/human.ts'),
  ]);
  const { job, ways } = await findDoubt(context, ref).catch((error: unknown) => {
    throw error instanceof MgwError ? withOutput(error, options) : error;
  });
  const { possibleHandle } = job.record;
  const globals = globalArguments(context.globals).flat();
  const lines = ways.map(({ command, meaning }, index) => {
    const [mgw = '', ...rest] = withKeptFlags(command, options);
    const words = [mgw, ...globals, ...rest];
    return `  ${index + 1}. ${meaning}\n     ${words.map(shellWord).join(' ')}`;
  });
  const text = `Job ${job.id} may have been accepted and charged.`;
  const { noInput } = await context.settings();
  if (context.io.stdin.isTTY !== true || noInput.value) {
    const next = possibleHandle === undefined ? showCommand(job) : resolveCommand(job);
    const all = `${text} Run the command that applies:\n${lines.join('\n')}`;
    throw withOutput(new MgwError('submit_unknown', all, { charged: 'maybe', next, job }), options);
  }
  for (const line of [text, ...lines].join('\n').split('\n')) context.progress.note(line);
  const answer = (
    await readLine(context.io, `Which is true? (1-${ways.length}, or Enter to decide nothing) `)
  ).trim();
  const how = ways[Number(answer) - 1]?.resolution;
  if (how === undefined)
    throw new MgwError('submit_unknown', `${text} Nothing was decided.`, { charged: 'maybe', job });
  if (how !== 'adopted') return { how };
  if (possibleHandle !== undefined) return { how, handle: possibleHandle };
  const handle = (await readLine(context.io, 'Handle of the task: ')).trim();
  if (handle === '') throw usageError('The handle is empty; nothing was decided.');
  return { how, handle };
}
