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
import { childOf, optionsOf, pathOf, read } from '../command-tree.ts';

/** A completion, and its description. */
export interface Candidate {
  word: string;
  about?: string;
}

/** The completions: words, file names, or both. `at` means file names after an `@`. */
export interface Offer {
  words?: Candidate[];
  files?: 'plain' | 'at';
}

type Source = (context: Context, place: Place) => Promise<Offer>;

// The maximum number of jobs to read, newest first.
const recent = 100;

/** Returns the completions of a flag or an argument. Sends no request and writes nothing. */
export async function offer(context: Context, place: Place, what: Option | Argument): Promise<Offer> {
  if (what.argChoices !== undefined) return words(what.argChoices);
  const source = what instanceof Option ? bySwitch[what.long ?? ''] : byArgument[what.name()];
  const own = source === undefined ? {} : await source(context, place);
  if (own.words !== undefined || own.files !== undefined) return own;
  const known = what instanceof Option ? (await flagOf(place, what))?.words : undefined;
  if (known !== undefined) return words(known);
  const term = what instanceof Option ? what.flags : `<${what.name()}>`;
  return /[<[][^<>[\]]*(file|path|dir|folder|template)/i.test(term) ? { files: 'plain' } : {};
}

const bySwitch: Record<string, Source> = {
  '--model': async (context, place) => ({ words: (await models(context, place)).map(modelWord) }),
  '--model-version': async (context, place) => {
    const named = place.given.get('--model');
    const known = await models(context, place);
    const of = known.filter(({ id }) => named === undefined || id === named);
    return words(new Set(of.flatMap((model) => model.model_versions)));
  },
  '--profile': async (context) => words(await profiles(context)),
  '--budget-name': async (context) => words(await budgets(context)),
  '--batch': async (context) => words(await batches(context)),
  '--key': async (context) => ({ words: await keys(context, '') }),
  '--fault': faults,
  '--body': () => Promise.resolve({ words: [{ word: '@-', about: 'standard input' }], files: 'at' }),
  '--ext-info': () => Promise.resolve({ files: 'at' }),
  '--set': () => Promise.resolve({}),
  '--default': async () => {
    const { kinds, rowFlags } = await import('../../batch/manifest/fields.ts');
    const names = kinds.flatMap((kind) => rowFlags(kind).map(longName));
    return words(new Set(['protocol=', ...names.map((name) => `${name}=`)]));
  },
};

const byArgument: Record<string, Source> = {
  ref: refs,
  refs,
  key: () => Promise.resolve(words([...settableKeys, 'profile'])),
  values: async (context, { args }) => {
    if (args[0] === 'profile') return words(await profiles(context));
    return args[0] === 'budget' ? words(await budgets(context)) : {};
  },
  name: async (context) => words(await budgets(context)),
  id: async (context, place) => ({ words: (await models(context, place)).map(modelWord) }),
  batch: async (context) => ({ ...words(await batches(context)), files: 'plain' }),
  method: () => Promise.resolve(words(['GET', 'POST'])),
  path: () => Promise.resolve({}),
};

function words(all: Iterable<string>): Offer {
  return { words: [...all].map((word) => ({ word })) };
}

async function models(context: Context, { command }: Place): Promise<KnownModel[]> {
  const settings = await context.settings();
  const [group, protocol] = pathOf(command);
  const known = settings.sandbox.value ? await sandboxModels() : recallModels(settings);
  if (group !== 'video') return known;
  if (findProtocol(protocol ?? '') === undefined)
    return known.filter(({ protocols }) => protocols.length > 0);
  const marked = known.filter(({ protocols }) => protocols.some((name) => name === protocol));
  return marked.length === 0 ? known.filter(({ protocols }) => protocols.length === 0) : marked;
}

async function sandboxModels(): Promise<KnownModel[]> {
  const { MODELS } = await import('../../sandbox/models.ts');
  return MODELS.map(({ id, area, versions = [] }) => ({
    id,
    protocols: area === 'tts' || area === 'responses' ? [] : [area],
    model_versions: [...versions],
  }));
}

function modelWord({ id, protocols }: KnownModel): Candidate {
  return { word: id, about: protocols.length === 0 ? undefined : `protocol ${protocols.join(', ')}` };
}

async function profiles({ io }: Context): Promise<string[]> {
  return [...new Set(['default', ...Object.keys((await readConfig(io.env)).profiles)])];
}

async function budgets(context: Context): Promise<string[]> {
  const { configuredBudgets } = await import('../../flows/budgets.ts');
  return configuredBudgets(context).catch(() => []);
}

async function batches(context: Context): Promise<string[]> {
  const folder = join(ledgerFolder(await context.settings()), 'batches');
  const files = await readdir(folder).catch(() => []);
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), 'utf8').catch(() => '')));
  return texts.flatMap((text) => {
    const json = tryParseJson(text);
    return isObject(json) && typeof json['name'] === 'string' ? [json['name']] : [];
  });
}

async function faults(): Promise<Offer> {
  const { FAULTS } = await import('../../sandbox/faults.ts');
  return { words: FAULTS.map(({ name, does }) => ({ word: name, about: does })) };
}

async function refs(context: Context, place: Place): Promise<Offer> {
  const jobs = await newest(context, place);
  if (jobs.length === 0) return { words: [] };
  const ids = jobs.map((job) => ({ word: job.id, about: aboutJob(job) }));
  const named = await keys(context, '@', place);
  return { words: [{ word: '@last', about: 'the newest job' }, ...named, ...ids] };
}

async function keys(context: Context, mark: string, place?: Place): Promise<Candidate[]> {
  const jobs = await newest(context, place);
  return jobs.flatMap((job) =>
    job.key === undefined ? [] : [{ word: mark + job.key, about: aboutJob(job) }],
  );
}

async function newest(context: Context, place?: Place): Promise<Job[]> {
  const ledger = await context.ledger();
  const [group, protocol] = place === undefined ? [] : pathOf(place.command);
  const hasProtocol = findProtocol(protocol ?? '') !== undefined;
  const found = await Promise.all((await ledger.listed()).slice(0, recent).map((id) => ledger.read(id)));
  return found.filter(
    (job): job is Job =>
      job !== undefined &&
      (group !== 'video' || job.protocol === protocol || (!hasProtocol && job.protocol !== 'tts')),
  );
}

function aboutJob(job: Job): string {
  return [shownState(job), job.model ?? ''].join(' ').trim();
}

// Returns the protocol's flag that an option was made from.
async function flagOf({ command }: Place, { long }: Option): Promise<Flag | undefined> {
  const [group, protocol = ''] = pathOf(command);
  const { speechFlags } = await import('../../speech/flags.ts');
  const own = findProtocol(protocol);
  const videoFlags = (own === undefined ? protocolNames.map(protocolNamed) : [own]).flatMap(
    ({ flags }) => flags,
  );
  const table = group === 'tts' ? speechFlags : group === 'video' ? videoFlags : [];
  return table.find((flag) => `--${longName(flag)}` === long);
}

/** The position of the cursor in a command line, which determines the completions. */
export interface Place {
  command: Command;
  /** The typed part of the word, or of the value after `--flag=`. */
  typed: string;
  /** The flag whose value is being typed. */
  option?: Option;
  /** The argument that may be typed at the cursor. */
  argument?: Argument;
  /** The number of arguments before the cursor. */
  position: number;
  /** The arguments before the cursor. */
  args: string[];
  /** The values of the given flags, by long name. */
  given: Map<string, string>;
  /** Whether flags may follow; false after `--`. */
  takesFlags: boolean;
  /** The index of the word at which another program's command line begins. */
  program?: number;
}

/** Parses the words after `mgw`, the last of which is being typed. */
export async function placeOf(root: Command, words: readonly string[]): Promise<Place> {
  const typed = words.at(-1) ?? '';
  const place: Place = { command: root, typed, position: 0, args: [], given: new Map(), takesFlags: true };
  let pending: Option | undefined;
  for (const [index, word] of words.slice(0, -1).entries()) {
    if (pending !== undefined) {
      give(place, pending, word);
      pending = undefined;
    } else if (place.takesFlags && word === '--') {
      place.takesFlags = false;
      if (
        place.command.registeredArguments[0]?.name() === 'command' &&
        place.command.parent?.name() === 'sandbox'
      )
        place.program = index + 1;
    } else if (place.takesFlags && word.startsWith('-') && word !== '-') pending = takeFlag(place, word);
    else await takeWord(place, word);
  }
  return ended(place, pending);
}

function ended(place: Place, pending: Option | undefined): Place {
  const { command, typed, takesFlags, position } = place;
  if (pending !== undefined) return { ...place, option: pending };
  const [flag = '', ...value] = typed.split('=');
  const option = takesFlags && typed.startsWith('--') && value.length > 0 ? find(command, flag) : undefined;
  if (option !== undefined) return { ...place, option, typed: value.join('=') };
  const args = command.registeredArguments;
  const last = args.at(-1);
  return { ...place, argument: args[position] ?? (last?.variadic === true ? last : undefined) };
}

function takeFlag(place: Place, word: string): Option | undefined {
  const [flag = '', ...value] = word.split('=');
  const option = find(place.command, flag);
  if (option === undefined) return undefined;
  const takesValue = option.required || option.optional;
  if (takesValue && value.length === 0) return option;
  give(place, option, value.join('='));
  return undefined;
}

function give(place: Place, option: Option, value: string): void {
  place.given.set(option.long ?? option.flags, value);
}

async function takeWord(place: Place, word: string): Promise<void> {
  const child = childOf(place.command, word);
  if (child !== undefined && place.position === 0) {
    await read(child);
    place.command = child;
  } else {
    place.position += 1;
    place.args.push(word);
  }
}

function find(command: Command, flag: string): Option | undefined {
  return optionsOf(command).find(({ short, long }) => flag === short || flag === long);
}
