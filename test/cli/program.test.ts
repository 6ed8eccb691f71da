import type { Command } from 'commander';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { childOf } from '../../src/cli/command-tree.ts';
import type { Globals } from '../../src/cli/options.ts';
import { createProgram } from '../../src/cli/program.ts';

/** Parses a command line; returns the global flags, and the flags of the submit command. */
async function parsed(...argv: string[]): Promise<{ globals: Globals; flags: Record<string, unknown> }> {
  let globals: Globals = {};
  const { root, run } = createProgram(argv, (received) => {
    globals = received;
    return Promise.resolve();
  });
  await run();
  const submit = ['video', 'c', 'submit'].reduce((command, name) => childOf(command, name) as Command, root);
  return { globals, flags: submit.opts() };
}

const submit = ['video', 'c', 'submit', '-m', 'vendor-h3'];

describe('a command line', () => {
  it('passes each value to its flag unchanged, even if the value looks like a global flag', async () => {
    const flagLike = fc.constantFrom(
      '-v',
      '-q',
      '--json',
      '--base-url',
      '--base-url=http://x',
      '-V',
      '--help-all',
    );
    const text = fc.oneof(
      flagLike,
      flagLike.map((flag) => `${flag} boat`),
      fc.string({ unit: 'grapheme', minLength: 1 }),
    );
    await fc.assert(
      fc.asyncProperty(text, async (prompt) => {
        const { globals, flags } = await parsed(...submit, '--prompt', prompt, '--dry-run');
        expect(flags).toMatchObject({ prompt, dryRun: true });
        expect(globals.json ?? globals.verbose ?? globals.quiet ?? globals.baseUrl).toBeUndefined();
      }),
      { numRuns: 60 },
    );
  });

  it.each([
    ['before all commands', ['-qv', '--base-url', 'https://h', ...submit, '-d', '5']],
    [
      'between commands',
      ['video', '-q', 'c', '--base-url=https://h', '-v', 'submit', '-m', 'vendor-h3', '-d', '5'],
    ],
    ['after the command, in groups', [...submit, '-vqd', '5', '--base-url', 'https://h']],
  ])('accepts global flags %s', async (_place, argv) => {
    const { globals, flags } = await parsed(...argv, '--prompt', 'boat');
    expect(globals).toMatchObject({ quiet: true, verbose: true, baseUrl: 'https://h' });
    expect(flags).toMatchObject({ model: 'vendor-h3', duration: '5', prompt: 'boat' });
  });

  it('lacks a value if it ends in a global flag that needs one', async () => {
    await expect(parsed(...submit, 'boat', '--base-url')).rejects.toThrow('--base-url <url> needs a value');
  });
});
