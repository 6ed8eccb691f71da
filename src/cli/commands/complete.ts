import type { Command } from 'commander';
import { reach, rootOf, type Run, topics, optionsOf, pathOf } from '../command-tree.ts';
import { type Candidate, offer, type Offer, type Place } from '../completion/values.ts';
import type { Context } from '../context.ts';

// The global flags that select the jobs, models and profiles.
const valueFlags = { '--profile': 'profile', '--base-url': 'baseUrl' };
const switches = { '--sandbox': 'sandbox', '--allow-http': 'allowHttp' };

/**
 * `mgw __complete -- WORD...`: prints completions of the last word after `mgw`, for the scripts of `mgw completion`.
 * `--new-word` means an empty last word, for shells that cannot pass one.
 */
export function registerComplete(command: Command, run: Run): void {
  command
    .argument('[words...]')
    .option('--new-word')
    .action(async (words: string[], { newWord }: { newWord?: boolean }) => {
      const { placeOf } = await import('../completion/values.ts');
      const root = rootOf(command);
      const place = await placeOf(root, newWord ? [...words, ''] : words);
      for (const [flag, name] of Object.entries(valueFlags)) root.setOptionValue(name, place.given.get(flag));
      for (const [flag, name] of Object.entries(switches))
        if (place.given.has(flag)) root.setOptionValue(name, true);
      return run(command, async (context) => {
        return { json: {}, text: await answerFor(context, root, place) };
      });
    });
}

/**
 * Returns the completions in the format that the shell scripts read: a first line with the kind (`words`, `files`,
 * `files @` for files after an `@`, `program N` if word N begins another program's command line), and then a line for
 * each word: the word, a tab, and its description.
 */
async function answerFor(context: Context, root: Command, place: Place): Promise<string> {
  if (place.program !== undefined) return `program ${place.program}`;
  const { words = [], files } = await offered(context, root, place);
  const fitting = words.filter(({ word }) => word.startsWith(place.typed) && !/[\s\p{Cc}]/u.test(word));
  const kind = files === undefined ? 'words' : `files${files === 'at' ? ' @' : ''}`;
  return [kind, ...fitting.map(lineOf)].join('\n');
}

function lineOf({ word, about }: Candidate): string {
  return about === undefined || about === '' ? word : `${word}\t${about.replace(/[\s\p{Cc}]+/gu, ' ')}`;
}

async function offered(context: Context, root: Command, place: Place): Promise<Offer> {
  const { command, option, argument, typed, takesFlags } = place;
  if (option !== undefined) return offer(context, place, option);
  if (takesFlags && typed.startsWith('-')) return { words: flagsOf(command) };
  if (pathOf(command)[0] === 'help') return { words: await helped(root, place) };
  const commands = place.position === 0 ? commandsOf(command) : [];
  const found = argument === undefined ? {} : await offer(context, place, argument);
  const words = [...commands, ...(found.words ?? [])];
  // For free text, only flags can be completed.
  const isFree = words.length === 0 && found.files === undefined && typed === '' && takesFlags;
  return { ...found, words: isFree ? flagsOf(command) : words };
}

function commandsOf(command: Command): Candidate[] {
  const visible = command.createHelp().visibleCommands(command);
  return visible.map((child) => ({ word: child.name(), about: child.description() }));
}

function flagsOf(command: Command): Candidate[] {
  const flags = optionsOf(command).map(({ long, short, description }) => ({
    word: long ?? short ?? '',
    about: description,
  }));
  return [
    ...flags,
    { word: '--help', about: 'print help' },
    { word: '--help-all', about: 'print the full help' },
  ];
}

// Completes `mgw help`: the first word with topics and commands, every other word with subcommands.
async function helped(root: Command, { command, args }: Place): Promise<Candidate[]> {
  const path = [...pathOf(command).slice(1), ...args];
  const at = await reach(root, path);
  if (pathOf(at).length < path.length) return [];
  const pages = path.length === 0 ? topics.map(({ name, about }) => ({ word: name, about })) : [];
  const names = pages.map(({ word }) => word);
  return [...pages, ...commandsOf(at).filter(({ word }) => !names.includes(word))];
}
