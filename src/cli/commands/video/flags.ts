import { Option, type Command } from 'commander';
import { longName, type FlagValue } from '../../../protocols/compose.ts';
import type { Flag, Protocol } from '../../../protocols/protocol.ts';
import { repeatable, single } from '../../options.ts';
import { readInputFile, readInputText } from '../../input-file.ts';

/** Adds a protocol's table of flags to its `submit`. */
export function addProtocolFlags(command: Command, protocol: Protocol): void {
  for (const flag of protocol.flags) {
    for (const option of optionsFor(flag)) command.addOption(option.helpGroup(`${flag.group ?? 'Video'}:`));
  }
}

function optionsFor(flag: Flag): Option[] {
  if (flag.kind === 'list') return [repeatable(flag.flags, flag.description)];
  if (flag.kind !== 'switch') return [single(flag.flags, flag.description)];
  const name = longName(flag);
  return [new Option(`--${name}`, flag.description), new Option(`--no-${name}`, `the opposite of --${name}`)];
}

/** Returns the given flags of the protocol by their long names, with files read. */
export async function givenFlags(
  protocol: Protocol,
  options: Record<string, unknown>,
): Promise<Record<string, FlagValue>> {
  const given: Record<string, FlagValue> = {};
  for (const flag of protocol.flags) {
    const name = longName(flag);
    const value = options[camelCase(name)];
    if (value !== undefined) given[name] = await valueOf(flag, `--${name}`, value as FlagValue);
  }
  return given;
}

async function valueOf(flag: Flag, name: string, value: FlagValue): Promise<FlagValue> {
  if (flag.kind === 'file') return readInputFile(String(value), name);
  if (flag.atFile !== true || typeof value !== 'string' || !value.startsWith('@')) return value;
  const text = await readInputText(value.slice(1), name);
  return text.replace(/\r?\n$/, '');
}

function camelCase(name: string): string {
  return name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}
