import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, type BudgetOptions, single } from '../../options.ts';
import { shellWord } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addOutputOptions,
  addWaitOptions,
  checkStdout,
  type OutputOptions,
  targetOf,
} from '../../wait-options.ts';
import { readLine } from '../../input.ts';
import { type ErrorDetails, MgwError, usageError } from '../../../errors.ts';
import { resolveCommand, showCommand } from '../../../jobs/errors.ts';
import { commandWithGlobals, withOutput } from '../../../flows/next.ts';
import type { Resolution } from '../../../flows/resolve.ts';

interface ResolveOptions extends OutputOptions, BudgetOptions {
  adopt?: string;
  notCreated?: boolean;
  resubmit?: boolean;
}

/**
 * `mgw jobs resolve REF [--adopt HANDLE | --not-created | --resubmit]`: records whether an `unknown` job's task exists.
 * Without a choice, prompts on a terminal; elsewhere, lists the choices and exits with 7.
 */
export function registerResolve(command: Command, run: Run): void {
  command
    .argument('<ref>', 'job id, @key or @last')
    .addOption(single('--adopt <handle>', 'the task exists, and this is its handle'))
    .option('--not-created', 'the task does not exist; the same command may submit again')
    .option('--resubmit', 'submit the task again now; it may be charged twice');
  addOutputOptions(command, 'wait for the task, and save its result to this file; - writes it to stdout');
  addWaitOptions(command);
  for (const option of budgetOptions('this submission')) command.addOption(option);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs resolve @last\n  $ mgw jobs resolve @last --adopt task_123\n  $ mgw jobs resolve @last --not-created',
    )
    .action((ref: string) => run(command, (context) => resolve(context, ref, command.opts()), 'runs jobs'));
}

async function resolve(context: Context, ref: string, options: ResolveOptions): Promise<Outcome> {
  checkStdout(context, options);
  const resolution = resolutionOf(options) ?? (await promptForResolution(context, ref, options));
  const [flow, { deliveredOutcome, hooksOf, submitHooks }, deadline] = await Promise.all([
    import('../../../flows/resolve.ts'),
    import('../video/delivered.ts'),
    context.deadline(),
  ]);
  const { budget, force = false } = options;
  const target = resolution.how === 'not-created' ? undefined : targetOf(options);
  const request = { target, force, budget, deadline };
  const isPaid = resolution.how === 'resubmit';
  const isWaiting = target !== undefined;
  const hooks = isPaid
    ? submitHooks(context, (await context.jobDeps()).account, { isWaiting })
    : hooksOf(context, { isWaiting });
  return deliveredOutcome(context, options, () => flow.resolve(context, ref, resolution, request, hooks));
}

function resolutionOf(options: ResolveOptions): Resolution | undefined {
  const choices = [options.adopt !== undefined, options.notCreated, options.resubmit].filter(Boolean);
  if (choices.length > 1) throw usageError('Use only one of --adopt HANDLE, --not-created and --resubmit.');
  if (choices.length === 0) return undefined;
  if (options.output !== undefined && options.notCreated)
    throw usageError('--not-created cannot be combined with --output: there is no result to save.');
  if (options.budget !== undefined && !options.resubmit)
    throw usageError('--budget requires --resubmit, the only choice that costs money.');
  if (options.adopt === '') throw usageError('--adopt: the handle is empty.');
  if (options.adopt !== undefined) return { how: 'adopted', handle: options.adopt };
  return { how: options.notCreated ? 'not-created' : 'resubmit' };
}

// Prompts for the choice that applies. Without an answer, the job is unchanged.
async function promptForResolution(
  context: Context,
  ref: string,
  options: ResolveOptions,
): Promise<Resolution> {
  const { findDoubt } = await import('../../../flows/resolve.ts');
  const { job, ways } = await findDoubt(context, ref).catch((error: unknown) => {
    throw error instanceof MgwError ? withOutput(error, options) : error;
  });
  const { possibleHandle } = job.record;
  const doubt = (message: string, next: string[], details: ErrorDetails = {}): MgwError => {
    const error = new MgwError('submit_unknown', message, { charged: 'maybe', next, job, ...details });
    return withOutput(error, options);
  };
  const text = `Job ${job.id} may have been accepted and charged.`;
  const lines = ways.map(({ command, meaning }, index) => {
    const { next = command } = doubt(text, command);
    const words = commandWithGlobals(next, context.globals);
    return `  ${index + 1}. ${meaning}\n     ${words.map(shellWord).join(' ')}`;
  });
  const { noInput } = await context.settings();
  if (context.io.stdin.isTTY !== true || noInput.value) {
    const next = possibleHandle === undefined ? showCommand(job) : resolveCommand(job);
    throw doubt(`${text} Run the command that applies:\n${lines.join('\n')}`, next);
  }
  for (const line of [text, ...lines].join('\n').split('\n')) context.progress.note(line);
  const undecided = (details?: ErrorDetails): MgwError =>
    doubt(`${text} The job is unchanged.`, resolveCommand(job), details);
  const ask = (question: string): Promise<string> =>
    readLine(context.io, question).catch((error: unknown) => {
      throw error instanceof MgwError ? undecided({ exit: 'interrupted' }) : error;
    });
  const answer = await ask(`Which applies? (1-${ways.length}, or Enter to leave the job unchanged) `);
  const how = ways[Number(answer.trim()) - 1]?.resolution;
  if (how === undefined) throw undecided();
  if (how !== 'adopted') return { how };
  const handle = possibleHandle ?? (await ask('Task handle: ')).trim();
  if (handle === '') throw undecided();
  return { how, handle };
}
