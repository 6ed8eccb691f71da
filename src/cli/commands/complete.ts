import type { Command } from 'commander';
import { loadNested, rootOf, type Run, topics, optionsOf, pathOf } from '../command-tree.ts';
import { type Candidate, completionsFor, type Completions, type Place } from '../completion/values.ts';
import type { Context } from '../context.ts';

// The global flags that determine which jobs, models and profiles are suggested.
const valueFlags = { '--profile': 'profile', '--base-url': 'baseUrl' };
const switches = { '--sandbox': 'sandbox', '--allow-http': 'allowHttp' };

/**
 * `mgw __complete -- WORD...`: prints completions for the last word, for the scripts of `mgw completion`. `--new-word`
 * represents an empty last word, for shells that cannot pass an empty argument.
 */
export function registerComplete(command: Command, run: Run): void {
  command
    .argument('[words...]')
    .option('--new-word')
    .action(async (words: string[], { newWord }: { newWord?: boolean }) => {
      const { placeOf } = await import('../completion/values.ts');
      const root = rootOf(command);
      const place = await placeOf(root, newWord ? [...words, ''] : words);
      for (const [flag, name] of Object.entries(valueFlags))
        root.setOptionValue(name, place.flagValues.get(flag));
      for (const [flag, name] of Object.entries(switches))
        if (place.flagValues.has(flag)) root.setOptionValue(name, true);
      return run(command, async (context) => {
        return { json: {}, text: await completionText(context, root, place) };
      });
    });
}

/**
 * Returns the completions in the format that the shell scripts read. The first line is the kind: `words`, `files`,
 * `files @` (files after an `@`), or `program N` (word N starts another program's command line). Each other line is a
 * completion: the word, a tab, and its description.
 */
async function completionText(context: Context, root: Command, place: Place): Promise<string> {
  if (place.programIndex !== undefined) return `program ${place.programIndex}`;
  const { words = [], files } = await completionsAt(context, root, place);
  const matching = words.filter(({ word }) => word.startsWith(place.typed) && !/[\s\p{Cc}]/u.test(word));
  const kind = files === undefined ? 'words' : `files${files === 'at' ? ' @' : ''}`;
  return [kind, ...matching.map(lineOf)].join('\n');
}

function lineOf({ word, about }: Candidate): string {
  return about === undefined || about === '' ? word : `${word}\t${about.replace(/[\s\p{Cc}]+/gu, ' ')}`;
}

async function completionsAt(context: Context, root: Command, place: Place): Promise<Completions> {
  const { command, option, argument, typed, allowsFlags } = place;
  if (option !== undefined) return completionsFor(context, place, option);
  if (allowsFlags && typed.startsWith('-')) return { words: flagsOf(command) };
  if (pathOf(command)[0] === 'help') return { words: await helpCandidates(root, place) };
  const commands = place.args.length === 0 ? commandsOf(command) : [];
  const ofArgument = argument === undefined ? {} : await completionsFor(context, place, argument);
  const words = [...commands, ...(ofArgument.words ?? [])];
  // For free text, only flags can be completed.
  const isFreeText = words.length === 0 && ofArgument.files === undefined && typed === '' && allowsFlags;
  return { ...ofArgument, words: isFreeText ? flagsOf(command) : words };
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

// Completes `mgw help`: the first word is a topic or command, later words are subcommands.
async function helpCandidates(root: Command, { command, args }: Place): Promise<Candidate[]> {
  const path = [...pathOf(command).slice(1), ...args];
  const target = await loadNested(root, path);
  if (pathOf(target).length < path.length) return [];
  const pages = path.length === 0 ? topics.map(({ name, about }) => ({ word: name, about })) : [];
  const names = pages.map(({ word }) => word);
  return [...pages, ...commandsOf(target).filter(({ word }) => !names.includes(word))];
}
