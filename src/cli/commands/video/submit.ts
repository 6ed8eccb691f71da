import { Option, type Command } from 'commander';
import { deadlineIn, type Clock } from '../../../clock.ts';
import type { Settings } from '../../../config/resolve.ts';
import { fingerprintOf } from '../../../jobs/order.ts';
import { missingPrompt } from './missing-prompt.ts';
import { checkKeyName } from '../../../key-name.ts';
import { goalOf } from '../../../jobs/target.ts';
import { videoOrder, type WantedVideo } from '../../../jobs/video-order.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { payingDeps } from '../../../flows/paying-deps.ts';
import { budgetOptions } from '../../budget-options.ts';
import type { Context } from '../../context.ts';
import type { Run } from '../../action.ts';
import { bodyOptions, jobOptions, noCheckOption, requestOptions } from '../../job-options.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addOutputOptions,
  addWaitOptions,
  checkSidecar,
  checkStdout,
  sidecarOption,
  targetOf,
} from '../../wait-options.ts';
import { configured } from '../../../flows/protocols.ts';
import { addProtocolFlags } from './flags.ts';
import { submissionBody } from './body.ts';
import { dryRun, withCost } from './dry-run.ts';
import { setExamples, submitExamples } from './examples.ts';
import type { SubmitOptions } from './submit-options.ts';

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
    setExamples[protocol.name],
    ...bodyOptions(protocol.endpoints),
    noCheckOption(),
  ))
    command.addOption(option);
  command.addHelpText('after', submitExamples[protocol.name]);
  command.action((prompt: string | undefined) =>
    run(command, (context) => submitCommand(context, protocol, prompt, command.opts())),
  );
}

async function submitCommand(
  context: Context,
  registered: Protocol,
  prompt: string | undefined,
  options: SubmitOptions,
): Promise<Outcome> {
  checkKeyName(options.key, options.new);
  checkStdout(context, options);
  checkSidecar(options);
  const settings = await context.settings();
  const protocol = configured(registered, settings);
  const given = prompt ?? (await missingPrompt(context, protocol, options));
  const composed = await submissionBody(context, protocol, given, options);
  const exchange = protocol.submission(composed.body, { endpoint: options.endpoint });
  for (const note of composed.advice) context.progress.note(note);
  if (options.dryRun) {
    const { body } = composed;
    const asked = { protocol: protocol.name, model: protocol.modelOf(body), body };
    return withCost(dryRun(exchange, protocol.auth, settings), [asked], context);
  }
  const wanted = wantedBy(options, settings, context.clock);
  const order = videoOrder(protocol, { ...composed, exchange }, wanted);
  const { name } = await context.gateway();
  const deps = await payingDeps(context, 'command', fingerprintOf(order, name), options);
  const { submitAndDeliver } = await import('./deliver.ts');
  return submitAndDeliver(context, protocol, order, deps, options);
}

function wantedBy(options: SubmitOptions, settings: Settings, clock: Clock): WantedVideo {
  const { key, new: fresh = false, force = false, sidecar = false } = options;
  const target = targetOf(options);
  const ask = target === undefined ? (options.wait ? 'finish' : 'accept') : 'file';
  const deadline = deadlineIn(settings.timeoutMs.value, clock);
  return { goal: goalOf('submit', ask, target), deadline, key, fresh, target, force, sidecar };
}
