import { Option, type Argument, type Command } from 'commander';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { settableKeys } from '../../config/setting-names.ts';
import { readConfig } from '../../config/read.ts';
import type { Job } from '../../job.ts';
import { isObject, tryParseJson } from '../../json.ts';
import { shownState } from '../../jobs/reconcile.ts';
import { longName } from '../../protocols/compose.ts';
import { findProtocol, protocolNamed, protocolNames } from '../../protocols/registry.ts';
import type { Flag } from '../../protocols/protocol.ts';
import { recallModels, type KnownModel } from '../../flows/models.ts';
import { ledgerFolder } from '../../flows/settings.ts';
import type { Context } from '../context.ts';
import { childOf, optionsOf, pathOf, loadCommand } from '../command-tree.ts';

/** A completion and its description. */
export interface Candidate {
  word: string;
  about?: string;
}

/** Completions: words, file names, or both. `at` means file names after an `@`. */
export interface Completions {
  words?: Candidate[];
  files?: 'plain' | 'at';
}

type Source = (context: Context, place: Place) => Promise<Completions>;

// The maximum number of jobs to read, newest first.
const maxJobs = 100;

/** Returns the completions for a flag or an argument. Sends no request and writes nothing. */
export async function completionsFor(
  context: Context,
  place: Place,
  parameter: Option | Argument,
): Promise<Completions> {
  if (parameter.argChoices !== undefined) return wordsOnly(parameter.argChoices);
  const source =
    parameter instanceof Option ? sourcesByFlag[parameter.long ?? ''] : sourcesByArgument[parameter.name()];
  const completions = source === undefined ? {} : await source(context, place);
  if (completions.words !== undefined || completions.files !== undefined) return completions;
  const flagWords = parameter instanceof Option ? (await flagOf(place, parameter))?.words : undefined;
  if (flagWords !== undefined) return wordsOnly(flagWords);
  const term = parameter instanceof Option ? parameter.flags : `<${parameter.name()}>`;
  return /[<[][^<>[\]]*(file|path|dir|folder|template)/i.test(term) ? { files: 'plain' } : {};
}

const sourcesByFlag: Record<string, Source> = {
  '--model': async (context, place) => ({ words: (await knownModels(context, place)).map(modelCandidate) }),
  '--model-version': async (context, place) => {
    const selectedModel = place.flagValues.get('--model');
    const models = await knownModels(context, place);
    const matching = models.filter(({ id }) => selectedModel === undefined || id === selectedModel);
    return wordsOnly(new Set(matching.flatMap((model) => model.model_versions)));
  },
  '--profile': async (context) => wordsOnly(await profileNames(context)),
  '--budget-name': async (context) => wordsOnly(await budgetNames(context)),
  '--batch': async (context) => wordsOnly(await batchNames(context)),
  '--key': async (context) => ({ words: keyCandidates(await newestJobs(context), '') }),
  '--fault': faultCompletions,
  '--body': () => Promise.resolve({ words: [{ word: '@-', about: 'standard input' }], files: 'at' }),
  '--ext-info': () => Promise.resolve({ files: 'at' }),
  '--set': () => Promise.resolve({}),
  '--default': async () => {
    const { kinds, rowFlags } = await import('../../batch/manifest/fields.ts');
    const names = kinds.flatMap((kind) => rowFlags(kind).map(longName));
    return wordsOnly(new Set(['protocol=', ...names.map((name) => `${name}=`)]));
  },
};

const sourcesByArgument: Record<string, Source> = {
  ref: refCompletions,
  refs: refCompletions,
  key: () => Promise.resolve(wordsOnly([...settableKeys, 'profile'])),
  values: async (context, { args }) => {
    if (args[0] === 'profile') return wordsOnly(await profileNames(context));
    return args[0] === 'budget' ? wordsOnly(await budgetNames(context)) : {};
  },
  name: async (context) => wordsOnly(await budgetNames(context)),
  id: async (context, place) => ({ words: (await knownModels(context, place)).map(modelCandidate) }),
  batch: async (context) => ({ ...wordsOnly(await batchNames(context)), files: 'plain' }),
  method: () => Promise.resolve(wordsOnly(['GET', 'POST'])),
  path: () => Promise.resolve({}),
};

function wordsOnly(all: Iterable<string>): Completions {
  return { words: [...all].map((word) => ({ word })) };
}

async function knownModels(context: Context, { command }: Place): Promise<KnownModel[]> {
  const settings = await context.settings();
  const [group, protocol] = pathOf(command);
  const models = settings.sandbox.value ? await sandboxModels() : recallModels(settings);
  if (group !== 'video') return models;
  if (findProtocol(protocol ?? '') === undefined)
    return models.filter(({ protocols }) => protocols.length > 0);
  const matching = models.filter(({ protocols }) => protocols.some((name) => name === protocol));
  return matching.length === 0 ? models.filter(({ protocols }) => protocols.length === 0) : matching;
}

async function sandboxModels(): Promise<KnownModel[]> {
  const { allModels } = await import('../../sandbox/models.ts');
  return allModels.map(({ id, area, versions = [] }) => ({
    id,
    protocols: area === 'tts' || area === 'responses' ? [] : [area],
    model_versions: [...versions],
  }));
}

function modelCandidate({ id, protocols }: KnownModel): Candidate {
  return { word: id, about: protocols.length === 0 ? undefined : `protocol ${protocols.join(', ')}` };
}

async function profileNames({ io }: Context): Promise<string[]> {
  return [...new Set(['default', ...Object.keys((await readConfig(io.env)).profiles)])];
}

async function budgetNames(context: Context): Promise<string[]> {
  const { configuredBudgets } = await import('../../flows/budgets.ts');
  return configuredBudgets(context).catch(() => []);
}

async function batchNames(context: Context): Promise<string[]> {
  const folder = join(ledgerFolder(await context.settings()), 'batches');
  const files = await readdir(folder).catch(() => []);
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), 'utf8').catch(() => '')));
  return texts.flatMap((text) => {
    const json = tryParseJson(text);
    return isObject(json) && typeof json['name'] === 'string' ? [json['name']] : [];
  });
}

async function faultCompletions(): Promise<Completions> {
  const { allFaults } = await import('../../sandbox/faults.ts');
  return { words: allFaults.map(({ name, does }) => ({ word: name, about: does })) };
}

async function refCompletions(context: Context, place: Place): Promise<Completions> {
  const jobs = await newestJobs(context, place);
  if (jobs.length === 0) return { words: [] };
  const ids = jobs.map((job) => ({ word: job.id, about: aboutJob(job) }));
  return { words: [{ word: '@last', about: 'the newest job' }, ...keyCandidates(jobs, '@'), ...ids] };
}

function keyCandidates(jobs: readonly Job[], prefix: string): Candidate[] {
  return jobs.flatMap((job) =>
    job.key === undefined ? [] : [{ word: prefix + job.key, about: aboutJob(job) }],
  );
}

async function newestJobs(context: Context, place?: Place): Promise<Job[]> {
  const ledger = await context.ledger();
  const [group, protocol] = place === undefined ? [] : pathOf(place.command);
  const hasProtocol = findProtocol(protocol ?? '') !== undefined;
  const jobs = await Promise.all((await ledger.listed()).slice(0, maxJobs).map((id) => ledger.read(id)));
  return jobs.filter(
    (job): job is Job =>
      job !== undefined &&
      (group !== 'video' || job.protocol === protocol || (!hasProtocol && job.protocol !== 'tts')),
  );
}

function aboutJob(job: Job): string {
  return [shownState(job), job.model ?? ''].join(' ').trim();
}

// Returns the protocol flag that an option was created from.
async function flagOf({ command }: Place, { long }: Option): Promise<Flag | undefined> {
  const [group, protocol = ''] = pathOf(command);
  const { speechFlags } = await import('../../speech/flags.ts');
  const namedProtocol = findProtocol(protocol);
  const videoFlags = (
    namedProtocol === undefined ? protocolNames.map(protocolNamed) : [namedProtocol]
  ).flatMap(({ flags }) => flags);
  const candidates = group === 'tts' ? speechFlags : group === 'video' ? videoFlags : [];
  return candidates.find((flag) => `--${longName(flag)}` === long);
}

/** The position of the cursor in a command line, which determines the completions. */
export interface Place {
  command: Command;
  /** The part of the word, or of the value after `--flag=`, that has been typed. */
  typed: string;
  /** The flag whose value is being typed. */
  option?: Option;
  /** The argument that may be typed at the cursor. */
  argument?: Argument;
  /** The arguments before the cursor. */
  args: string[];
  /** The values of the flags on the command line, by long name. */
  flagValues: Map<string, string>;
  /** Whether flags may follow; false after `--`. */
  allowsFlags: boolean;
  /** The index of the word that starts another program's command line, after `mgw sandbox exec --`. */
  programIndex?: number;
}

/** Parses the words after `mgw`. The last word is the one being typed. */
export async function placeOf(root: Command, words: readonly string[]): Promise<Place> {
  const typed = words.at(-1) ?? '';
  const place: Place = { command: root, typed, args: [], flagValues: new Map(), allowsFlags: true };
  let pending: Option | undefined;
  for (const [index, word] of words.slice(0, -1).entries()) {
    if (pending !== undefined) {
      setFlagValue(place, pending, word);
      pending = undefined;
    } else if (place.allowsFlags && word === '--') {
      place.allowsFlags = false;
      if (
        place.command.registeredArguments[0]?.name() === 'command' &&
        place.command.parent?.name() === 'sandbox'
      )
        place.programIndex = index + 1;
    } else if (place.allowsFlags && word.startsWith('-') && word !== '-') pending = consumeFlag(place, word);
    else await consumeWord(place, word);
  }
  return withTarget(place, pending);
}

function withTarget(place: Place, pending: Option | undefined): Place {
  const { command, typed, allowsFlags } = place;
  if (pending !== undefined) return { ...place, option: pending };
  const [flag = '', ...value] = typed.split('=');
  const option =
    allowsFlags && typed.startsWith('--') && value.length > 0 ? findOption(command, flag) : undefined;
  if (option !== undefined) return { ...place, option, typed: value.join('=') };
  const allArguments = command.registeredArguments;
  const lastArgument = allArguments.at(-1);
  const argument =
    allArguments[place.args.length] ?? (lastArgument?.variadic === true ? lastArgument : undefined);
  return { ...place, argument };
}

function consumeFlag(place: Place, word: string): Option | undefined {
  const [flag = '', ...value] = word.split('=');
  const option = findOption(place.command, flag);
  if (option === undefined) return undefined;
  const acceptsValue = option.required || option.optional;
  if (acceptsValue && value.length === 0) return option;
  setFlagValue(place, option, value.join('='));
  return undefined;
}

function setFlagValue(place: Place, option: Option, value: string): void {
  place.flagValues.set(option.long ?? option.flags, value);
}

async function consumeWord(place: Place, word: string): Promise<void> {
  const child = childOf(place.command, word);
  if (child !== undefined && place.args.length === 0) {
    await loadCommand(child);
    place.command = child;
  } else place.args.push(word);
}

function findOption(command: Command, flag: string): Option | undefined {
  return optionsOf(command).find(({ short, long }) => flag === short || flag === long);
}
