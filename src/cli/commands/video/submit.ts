import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MgwError, systemCode, usageError } from '../../../errors.ts';
import { resumableOnly } from '../../../flows/compose-video.ts';
import { makeFolder } from '../../../files/make-folder.ts';
import { checkNoTemplate } from '../../../store-url.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import { type Command, Option } from 'commander';
import type { Run } from '../../command-tree.ts';
import {
  addFlags,
  composeFromOptions,
  missingPrompt,
  type BodyOptions,
  camelCase,
  dryRun,
  withCost,
} from './body.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, type BudgetOptions } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addOutputOptions,
  addWaitOptions,
  bodyOptions,
  checkFileOptions,
  checkStdout,
  jobOptions,
  noCheckOption,
  type OutputOptions,
  requestOptions,
  sidecarOption,
  markOption,
  strictOption,
  targetOf,
} from '../../wait-options.ts';
import { oneListing, type Listing } from '../../../flows/models.ts';
import { checkKeyName } from '../../../jobs/ref.ts';
import type { Protocol, Flag } from '../../../protocols/protocol.ts';
import { bodyOption, readLine, typedText } from '../../input.ts';
import { protocolOfJobs, protocolOfModel } from '../../../flows/model-protocol.ts';
import { nearestName } from '../../../nearest.ts';
import { printableLine } from '../../../printable.ts';
import { compose, longName } from '../../../protocols/compose.ts';
import { protocolNamed, protocolNames } from '../../../protocols/registry.ts';
import { shownValue } from '../../../protocols/violations.ts';

interface SubmitOptions extends ChoiceOptions, OutputOptions, BudgetOptions {
  prompt?: string;
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
 * `mgw video [X] submit [PROMPT|-]`: submits a task and prints its id. With `-o` or `--wait`, also waits for the task.
 * Without X, the model determines the protocol.
 */
export function registerSubmit(command: Command, protocol: Protocol | undefined, run: Run): void {
  command.argument('[prompt]', 'what to generate; - reads it from stdin');
  if (protocol === undefined) addAllFlags(command);
  else addFlags(command, protocol.flags);
  addOutputOptions(command);
  command.addOption(sidecarOption());
  command.addOption(strictOption()).addOption(markOption());
  command.addOption(
    new Option('--wait', 'wait until the job has finished (implied by -o)').helpGroup('Waiting:'),
  );
  addWaitOptions(command);
  for (const option of jobOptions()) command.addOption(option);
  for (const option of budgetOptions('this submission')) command.addOption(option);
  for (const option of requestOptions(
    protocol?.setExample ?? 'parameters.seed=7',
    ...bodyOptions(protocol === undefined ? allEndpoints : protocol.endpoints),
    noCheckOption(),
    new Option('--check-assets', 'request each asset first to check its status, type and size'),
  ))
    command.addOption(option);
  command.addHelpText(
    'after',
    `\nExamples:\n${(protocol?.examples ?? examples).map((line) => `  $ ${line}`).join('\n')}`,
  );
  command.action((prompt: string | undefined) =>
    run(command, (context) => submitCommand(context, protocol, prompt, command.opts()), 'runs jobs'),
  );
}

async function submitCommand(
  context: Context,
  namedProtocol: Protocol | undefined,
  prompt: string | undefined,
  typedOptions: SubmitOptions,
): Promise<Outcome> {
  const { key, new: fresh = false, force = false, sidecar = false, strict, mark, budget } = typedOptions;
  checkKeyName(key, typedOptions.new);
  checkStdout(context, typedOptions);
  checkNoTemplate('--output', typedOptions.output, true);
  checkFileOptions(typedOptions);
  for (const text of [prompt, typedOptions.prompt]) if (text !== undefined) await typedText(text);
  const settings = await context.settings();
  // On a terminal, starts the deadline only after the prompts, so that the time that the user takes to answer is not
  // counted.
  if (context.io.stdin.isTTY !== true) await context.deadline();
  const listing = oneListing(context);
  const model = await missingModel(context, namedProtocol, typedOptions, listing);
  const options = model === undefined ? typedOptions : { ...typedOptions, model };
  const { protocol, fault } = namedProtocol
    ? { protocol: namedProtocol }
    : await chooseProtocol(context, options, listing);
  const text = prompt ?? (await missingPrompt(context, protocol, options));
  const deadline = await context.deadline();
  const { video: composed, defaults } = await composeFromOptions(context, protocol, text, options, listing);
  const video = fault === undefined ? composed : resumableOnly(composed, fault);
  for (const note of video.advice) context.progress.note(note);
  if (defaults !== undefined && options.dryRun) context.progress.note(defaults);
  else if (defaults !== undefined) await noteOnce(context, defaults);
  if (options.dryRun) {
    const { body, exchange } = video;
    if (options.checkAssets) {
      const { checkAssetUrls } = await import('../../../flows/check-assets.ts');
      await checkAssetUrls(context, video.protocol, body);
    }
    const query = { protocol: protocol.name, model: protocol.modelOf(body), body };
    return withCost(dryRun(exchange, video.protocol.auth, settings), [query], context);
  }
  const [{ submitVideo, inFolder }, { deliveredOutcome, submitHooks }] = await Promise.all([
    import('../../../flows/submit-video.ts'),
    import('./delivered.ts'),
  ]);
  const target = await inFolder(targetOf(options));
  const ask = target === undefined ? (options.wait ? 'finish' : 'accept') : 'file';
  const deps = await context.jobDeps();
  const submission = { ask, target, force, deadline, key, fresh, sidecar, strict, mark, budget } as const;
  const hooks = submitHooks(context, deps.account, { isWaiting: ask !== 'accept' });
  return deliveredOutcome(context, options, () => submitVideo(video, submission, deps, hooks));
}

// Prints a note only once, because repeating it for every submission would be noise. If the state folder is not
// writable, prints the note each time.
async function noteOnce(context: Context, text: string): Promise<void> {
  const folder = join(ledgerFolder(await context.settings()), 'printed-notes');
  const name = createHash('sha256').update(text).digest('hex').slice(0, 32);
  try {
    await makeFolder(folder);
    await writeFile(join(folder, name), '', { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return;
  }
  context.progress.note(text);
}

/** The options that determine the protocol. */
interface ChoiceOptions extends BodyOptions {
  model?: string;
}

const allProtocols: readonly Protocol[] = protocolNames.map(protocolNamed);

const modelDescription = 'model, which determines the protocol (to list the models: mgw models)';

/** Adds the flags of every protocol to `mgw video submit`, each with the names of its protocols. */
function addAllFlags(command: Command): void {
  const byName = new Map<string, { flag: Flag; values: Set<string>; owners: string[] }>();
  for (const { name, flags } of allProtocols)
    for (const flag of flags) {
      const entry = byName.get(longName(flag)) ?? { flag, values: new Set(), owners: [] };
      for (const value of /<([^.>]+)/.exec(flag.flags)?.[1]?.split('|') ?? []) entry.values.add(value);
      entry.owners.push(name);
      byName.set(longName(flag), entry);
    }
  const merged = [...byName.values()].map(({ flag, values, owners }): Flag => ({
    ...flag,
    flags: flag.flags.replace(/<[^.>]+/, `<${[...values].join('|')}`),
    description:
      longName(flag) === 'model'
        ? modelDescription
        : `${flag.description}${owners.length < allProtocols.length ? ` (${owners.join(', ')})` : ''}`,
  }));
  addFlags(command, merged);
}

/** The values of `--endpoint` for all protocols. */
const allEndpoints = allProtocols.flatMap(({ endpoints = [] }) => endpoints);

/**
 * Determines a submission's protocol from its model, and refuses flags that the protocol does not have.
 * @returns the protocol. If only an earlier job with the model has it, `fault` is the reason why a new job would not.
 * @throws MgwError('usage') with the `protocols` to choose from, or naming the flag.
 */
async function chooseProtocol(
  context: Context,
  options: ChoiceOptions,
  listing: Listing,
): Promise<{ protocol: Protocol; fault?: MgwError | undefined }> {
  const model = options.model ?? (await modelOfBody(context, options));
  if (model === undefined)
    throw usageError('--model is required. To list the models: mgw models', ['mgw', 'models']);
  let fault: MgwError | undefined;
  const protocol = await protocolOfModel(context, model, listing, options).catch((error: unknown) => {
    if (options.dryRun || !(error instanceof MgwError)) throw error;
    fault = error;
    return protocolOfJobs(context, model, error);
  });
  const optionNames = new Set(Object.keys(options));
  const stray = allProtocols
    .flatMap(({ flags }) => flags.map(longName))
    .find(
      (name) => optionNames.has(camelCase(name)) && !protocol.flags.some((flag) => longName(flag) === name),
    );
  const unknown = stray ?? (options.endpoint !== undefined && !protocol.endpoints ? 'endpoint' : undefined);
  if (unknown === undefined) return { protocol, fault };
  if (fault !== undefined) throw fault;
  const text = `--${unknown} is not a flag of Protocol ${protocol.name.toUpperCase()}, which serves ${printableLine(model, 60)}.`;
  throw usageError(text, ['mgw', 'video', protocol.name, 'submit', '--help']);
}

// Returns the model in `--body` or `--set`. Tries every protocol, because each has a different name for the field.
async function modelOfBody(
  context: Context,
  { body: source, set }: BodyOptions,
): Promise<string | undefined> {
  if (source === '@-' || source === '-')
    throw usageError('--body @- requires --model, which determines the protocol.');
  const body = await bodyOption(context, source);
  const models = allProtocols.map((protocol) =>
    protocol.modelOf(protocol.normalize(compose(protocol, { body, flags: {}, set }))),
  );
  return models.find((model) => model !== undefined);
}

/**
 * Prompts on a terminal for the model of a submission that has none. Returns undefined if the submission has a model,
 * or mgw must not prompt.
 * @throws MgwError('usage') if the typed model is probably misspelt.
 */
async function missingModel(
  context: Context,
  protocol: Protocol | undefined,
  options: ChoiceOptions,
  listing: Listing,
): Promise<string | undefined> {
  const { io, progress } = context;
  const hasModel = options.model !== undefined || options.body !== undefined || options.check === false;
  if (hasModel || io.stdin.isTTY !== true || (await context.settings()).noInput.value) return undefined;
  if ((await modelOfBody(context, options)) !== undefined) return undefined;
  const listed = (await listing('check')) ?? [];
  const usable = listed.filter(({ protocols }) =>
    protocol === undefined ? protocols.length > 0 : protocols.includes(protocol.name),
  );
  if (usable.length > 0) progress.note(`Models: ${usable.map(({ id }) => printableLine(id, 60)).join(', ')}`);
  const model = (await readLine(io, 'Model: ')).trim() || undefined;
  const ids = usable.map(({ id }) => id);
  const nearestId = model === undefined || ids.includes(model) ? undefined : nearestName(model, ids);
  if (nearestId === undefined) return model;
  throw usageError(`The list contains no model ${shownValue(model)}. Did you mean ${shownValue(nearestId)}?`);
}
