import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { systemCode } from '../../../errors.ts';
import { localError } from '../../../files/local-error.ts';
import { isFolder, makeFolder } from '../../../files/make-folder.ts';
import type { Target } from '../../../jobs/target.ts';
import { isObjectUrl } from '../../../store-url.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import { type Command, Option } from 'commander';
import type { Run } from '../../command-tree.ts';
import { addFlags, composedVideo, missingPrompt } from './body.ts';
import { addAllFlags, allEndpoints, type ChoiceOptions, chooseProtocol, missingModel } from './choose.ts';
import { dryRun, withCost } from './dry-run.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, type BudgetOptions } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addOutputOptions,
  addWaitOptions,
  bodyOptions,
  checkFileOptions,
  checkNoTemplate,
  checkStdout,
  jobOptions,
  noCheckOption,
  type OutputOptions,
  requestOptions,
  sidecarOption,
  markOption,
  strictOption,
  targetOf,
  type WaitOptions,
} from '../../wait-options.ts';
import { oneListing } from '../../../flows/listing.ts';
import { checkKeyName } from '../../../key-name.ts';
import type { Protocol } from '../../../protocols/protocol.ts';

interface SubmitOptions extends ChoiceOptions, WaitOptions, OutputOptions, BudgetOptions {
  wait?: boolean;
  key?: string;
  new?: boolean;
}

const examples = [
  'mgw video submit "a paper boat at sea" -m vendor-h3-mini -o boat.mp4',
  'mgw video submit "a boat" -m video-a -d 8 --resolution 720p --no-audio --key boat-1 -o boat.mp4',
  'mgw video submit "a boat" -m vendor-h3-mini -d 5 --dry-run',
];

/**
 * `mgw video [X] submit [PROMPT|-]`: submits a task and prints its id; with `-o` or `--wait` it also waits. If no
 * protocol is given, the model determines it.
 */
export function registerSubmit(command: Command, protocol: Protocol | undefined, run: Run): void {
  command.argument('[prompt]', 'what to generate; - reads it from stdin');
  if (protocol === undefined) addAllFlags(command);
  else addFlags(command, protocol.flags);
  addOutputOptions(command);
  command.addOption(sidecarOption());
  command.addOption(strictOption()).addOption(markOption());
  command.addOption(
    new Option('--wait', 'wait until the job has finished; -o does so too').helpGroup('Waiting:'),
  );
  addWaitOptions(command);
  for (const option of jobOptions()) command.addOption(option);
  for (const option of budgetOptions('this submission')) command.addOption(option);
  for (const option of requestOptions(
    protocol?.setExample ?? 'parameters.seed=7',
    ...bodyOptions(protocol === undefined ? allEndpoints : protocol.endpoints),
    noCheckOption(),
    new Option('--check-assets', 'ask for each asset first: its status, type and size'),
  ))
    command.addOption(option);
  command.addHelpText(
    'after',
    `\nExamples:\n${(protocol?.examples ?? examples).map((line) => `  $ ${line}`).join('\n')}`,
  );
  command.action((prompt: string | undefined) =>
    run(command, (context) => submitCommand(context, protocol, prompt, command.opts())),
  );
}

async function submitCommand(
  context: Context,
  named: Protocol | undefined,
  prompt: string | undefined,
  given: SubmitOptions,
): Promise<Outcome> {
  const { key, new: fresh = false, force = false, sidecar = false, strict, mark, budget } = given;
  checkKeyName(key, given.new);
  checkStdout(context, given);
  checkNoTemplate(given, true);
  checkFileOptions(given);
  const settings = await context.settings();
  // The time that the user takes to answer does not count.
  if (context.io.stdin.isTTY !== true) await context.deadline();
  const listing = oneListing(context);
  const model = await missingModel(context, named, given, listing);
  const options = model === undefined ? given : { ...given, model };
  const protocol = named ?? (await chooseProtocol(context, options, listing));
  const text = prompt ?? (await missingPrompt(context, protocol, options));
  const deadline = await context.deadline();
  const { video, advice, defaults } = await composedVideo(context, protocol, text, options, listing);
  for (const note of advice) context.progress.note(note);
  if (defaults !== undefined && options.dryRun) context.progress.note(defaults);
  else if (defaults !== undefined) await noteOnce(context, defaults);
  if (options.dryRun) {
    const { body, exchange } = video;
    if (options.checkAssets) {
      const { checkAssetUrls } = await import('../../../flows/check-assets.ts');
      await checkAssetUrls(context, video.protocol, body);
    }
    const asked = { protocol: protocol.name, model: protocol.modelOf(body), body };
    return withCost(dryRun(exchange, video.protocol.auth, settings), [asked], context);
  }
  const target = await inFolder(targetOf(options));
  const ask = target === undefined ? (options.wait ? 'finish' : 'accept') : 'file';
  const deps = await context.jobDeps();
  const [{ submitVideo }, { deliveredOutcome, submitHooks }] = await Promise.all([
    import('../../../flows/submit-video.ts'),
    import('./delivered.ts'),
  ]);
  const wanted = { ask, target, force, deadline, key, fresh, sidecar, strict, mark, budget } as const;
  const hooks = submitHooks(context, deps.account, { isWaiting: ask !== 'accept' });
  return deliveredOutcome(context, options, () => submitVideo(video, wanted, deps, hooks));
}

// Show the note once, since it would be noise on every submission. If the state folder is not writable, show it each
// time.
async function noteOnce(context: Context, text: string): Promise<void> {
  const folder = join(ledgerFolder(await context.settings()), 'told');
  const name = createHash('sha256').update(text).digest('hex').slice(0, 32);
  try {
    await makeFolder(folder);
    await writeFile(join(folder, name), '', { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return;
  }
  context.progress.note(text);
}

/**
 * If the output is a folder, the file is named after the job's id, as with `fetch`. A missing folder is created before
 * anything is paid.
 * @throws MgwError('local_io') if it cannot be created.
 */
async function inFolder(target: Target | undefined): Promise<Target | undefined> {
  if (target === undefined || target.kind === 'stdout' || isObjectUrl(target.path)) return target;
  const { path } = target;
  const isNamed = /[\\/]$/.test(path);
  if (!isNamed && !isFolder(path)) return target;
  if (isNamed)
    await makeFolder(resolve(path), 0o777).catch((error: unknown) => {
      throw localError(error, path, 'no');
    });
  return { kind: 'file', path: join(path, '{id}.mp4') };
}
