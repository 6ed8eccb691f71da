import { Command, Option } from 'commander';
import { describe, expect, it } from 'vitest';
import { commandEntries, namesOf, quoted, valuedFlags } from '../../../src/cli/completion/tree.ts';
import { createProgram } from '../../../src/cli/program.ts';

const { root } = await createProgram([], () => Promise.resolve());
const entries = commandEntries(root);

function allPaths(command: Command, path = ''): string[] {
  const below = command.commands.flatMap((child) => allPaths(child, `${path} ${child.name()}`.trim()));
  return [path, ...below];
}

describe('commandEntries', () => {
  it('has every command but the hidden ones', () => {
    const hidden = ['exit-codes'];
    expect(entries.map(({ path }) => path).sort()).toEqual(
      allPaths(root)
        .filter((path) => !hidden.includes(path))
        .sort(),
    );
  });

  it('has every flag of a command and the global ones', () => {
    const submit = entries.find(({ path }) => path === 'video c submit');
    const names = submit?.flags.flatMap(namesOf) ?? [];
    expect(names).toEqual(
      expect.arrayContaining(['--model', '--duration', '--key', '-o', '--output', '--json', '--sandbox']),
    );
    expect(names).toHaveLength(new Set(names).size);
  });

  it('knows what a flag takes', () => {
    const command = new Command('x')
      .addOption(new Option('--mode <mode>').choices(['a', 'b']))
      .option('-o, --output <path>')
      .option('--body <@file>')
      .option('--name <text>')
      .option('--maybe [text]')
      .option('--force');
    const values = commandEntries(command)[0]?.flags.map(({ long, value }) => [long, value?.kind]);
    expect(values).toEqual([
      ['--mode', 'words'],
      ['--output', 'file'],
      ['--body', 'file'],
      ['--name', 'free'],
      ['--maybe', 'free'],
      ['--force', undefined],
      ['--help', undefined],
    ]);
  });

  it('never has one name for a flag with and a flag without a value', () => {
    const valued = new Set(valuedFlags(entries));
    const bare = entries.flatMap(({ flags }) =>
      flags.filter(({ value }) => value === undefined).flatMap(namesOf),
    );
    expect(bare.filter((name) => valued.has(name))).toEqual([]);
  });
});

it('quotes for a shell', () => {
  expect(quoted(`it's $HOME`)).toBe(`'it'\\''s $HOME'`);
});
