import { type Command, Option } from 'commander';
import type { Run } from '../../command-tree.ts';
import { addProtocolFlags, type BodyOptions, composedVideo, missingPrompt } from './body.ts';
import { dryRun, withCost } from './dry-run.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, type BudgetOptions } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addOutputOptions,
  addWaitOptions,
  bodyOptions,
  checkSidecar,
  checkStdout,
  jobOptions,
  noCheckOption,
  type OutputOptions,
  requestOptions,
  sidecarOption,
  targetOf,
  type WaitOptions,
} from '../../wait-options.ts';
import { deadlineIn } from '../../../clock.ts';
import { checkKeyName } from '../../../key-name.ts';
import type { Protocol } from '../../../protocols/protocol.ts';

interface SubmitOptions extends BodyOptions, WaitOptions, OutputOptions, BudgetOptions {
  wait?: boolean;
  key?: string;
  new?: boolean;
}

/** `mgw video X submit [PROMPT|-]`: accepts a task and prints its id; with `-o` or `--wait` it also waits. */
export function registerSubmit(command: Command, protocol: Protocol, run: Run): void {
  command.argument('[prompt]', 'what to generate; - reads it from stdin');
  addProtocolFlags(command, protocol);
  addOutputOptions(command);
  command.addOption(sidecarOption());
  command.addOption(
    new Option('--wait', 'wait until the job has finished; -o does so too').helpGroup('Waiting:'),
  );
  addWaitOptions(command);
  for (const option of jobOptions()) command.addOption(option);
  for (const option of budgetOptions('this submission')) command.addOption(option);
  for (const option of requestOptions(
    protocol.setExample,
    ...bodyOptions(protocol.endpoints),
    noCheckOption(),
  ))
    command.addOption(option);
  command.addHelpText('after', `\nExamples:\n${protocol.examples.map((line) => `  $ ${line}`).join('\n')}`);
  command.action((prompt: string | undefined) =>
    run(command, (context) => submitCommand(context, protocol, prompt, command.opts())),
  );
}

async function submitCommand(
  context: Context,
  protocol: Protocol,
  prompt: string | undefined,
  options: SubmitOptions,
): Promise<Outcome> {
  const { key, new: fresh = false, force = false, sidecar = false, budget } = options;
  checkKeyName(key, options.new);
  checkStdout(context, options);
  checkSidecar(options);
  const settings = await context.settings();
  const given = prompt ?? (await missingPrompt(context, protocol, options));
  const { video, advice } = await composedVideo(context, protocol, given, options);
  for (const note of advice) context.progress.note(note);
  if (options.dryRun) {
    const { body, exchange } = video;
    const asked = { protocol: protocol.name, model: protocol.modelOf(body), body };
    return withCost(dryRun(exchange, video.protocol.auth, settings), [asked], context);
  }
  const target = targetOf(options);
  const ask = target === undefined ? (options.wait ? 'finish' : 'accept') : 'file';
  const deadline = deadlineIn(settings.timeoutMs.value, context.clock);
  const deps = await context.jobDeps();
  const [{ submitVideo }, { deliveredOutcome, submitHooks }] = await Promise.all([
    import('../../../flows/submit-video.ts'),
    import('./delivered.ts'),
  ]);
  const wanted = { ask, target, force, deadline, key, fresh, sidecar, budget } as const;
  const hooks = submitHooks(context, deps.account, { isWaiting: ask !== 'accept' });
  return deliveredOutcome(context, options, () => submitVideo(video, wanted, deps, hooks));
}
