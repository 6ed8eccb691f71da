import type { Argument, Command, Option } from 'commander';
import { childOf, read } from '../command-tree.ts';

/** The position of the cursor in a command line, which determines the completions. */
export interface Place {
  command: Command;
  /** The typed part of the word, or of the value after `--flag=`. */
  typed: string;
  /** The flag whose value is being typed. */
  option?: Option;
  /** The argument that may be typed. */
  argument?: Argument;
  /** The number of arguments before it. */
  position: number;
  /** The arguments before it. */
  args: string[];
  /** The given flags with a value, by long name. */
  given: Map<string, string>;
  /** False after `--`. */
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

/** The flags of a command and of those above it. */
export function optionsOf(command: Command): Option[] {
  const own = command.options.filter(({ hidden }) => !hidden);
  return command.parent === null ? own : [...own, ...optionsOf(command.parent)];
}

function find(command: Command, flag: string): Option | undefined {
  return optionsOf(command).find(({ short, long }) => flag === short || flag === long);
}

/** The words of a command below `mgw`: `['video', 'c', 'submit']`. */
export function pathOf(command: Command): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}
