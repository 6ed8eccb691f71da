import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bashCompletion } from '../../../src/cli/completion/bash.ts';
import { fishCompletion } from '../../../src/cli/completion/fish.ts';
import { commandEntries, type CommandEntry } from '../../../src/cli/completion/tree.ts';
import { zshCompletion } from '../../../src/cli/completion/zsh.ts';
import { createProgram } from '../../../src/cli/program.ts';

const { root } = await createProgram([], () => Promise.resolve());
const entries = commandEntries(root);
const folder = mkdtempSync(path.join(tmpdir(), 'mgw-completion-'));
const script = path.join(folder, 'mgw.bash');

beforeAll(() => {
  writeFileSync(script, bashCompletion(entries));
  mkdirSync(path.join(folder, 'my videos'));
  writeFileSync(path.join(folder, 'my videos', 'clip.mp4'), '');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What bash offers for the words typed so far; the last one is being typed. */
function offered(...words: string[]): string[] {
  const code = 'source "$0"; COMP_WORDS=(mgw "$@"); COMP_CWORD=$#; _mgw; printf "%s\\n" "${COMPREPLY[@]}"';
  const out = execFileSync('bash', ['--norc', '-c', code, script, ...words], {
    cwd: folder,
    encoding: 'utf8',
  });
  return out.split('\n').filter((line) => line !== '');
}

describe('the bash script', () => {
  it('is bash', () => {
    expect(spawnSync('bash', ['-n', script], { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  });

  it('offers every command where it belongs', () => {
    for (const { path: at, commands } of entries.filter((entry) => entry.commands.length > 0))
      expect(offered(...at.split(' ').filter(Boolean), '')).toEqual(commands.map(({ name }) => name));
  });

  it('completes commands and flags', () => {
    expect(offered('vi')).toEqual(['video']);
    expect(offered('video', 'c', 'submit', '--dur')).toEqual(['--duration']);
    expect(offered('auth', 'l')).toEqual(['login', 'logout']);
    expect(offered('completion', '')).toEqual(['bash', 'zsh', 'fish']);
  });

  it('is not misled by flags and their values', () => {
    expect(offered('--sandbox', '--profile', 'jobs', 'auth', 'log')).toEqual(['login', 'logout']);
    expect(offered('--profile', '=', 'jobs', 'auth', 'log')).toEqual(['login', 'logout']);
    expect(offered('--profile', '')).toEqual([]);
  });

  it('completes files where a flag takes one, also those with blanks', () => {
    expect(offered('video', 'c', 'submit', '-o', 'my')).toEqual(['my videos']);
    expect(offered('video', 'c', 'submit', '--output', '=', 'my videos/c')).toEqual(['my videos/clip.mp4']);
  });

  it('leaves what stands behind -- to the shell', () => {
    expect(offered('sandbox', 'exec', '--', 'my')).toContain('my videos');
  });
});

const odd: CommandEntry[] = [
  {
    path: '',
    commands: [{ name: 'x', description: "it's: $(touch pwned) `touch pwned` \\" }],
    flags: [
      { long: '--y', description: "it's: $(touch pwned)", value: { kind: 'words', words: ['a', 'b'] } },
    ],
    argument: { kind: 'free' },
  },
  { path: 'x', commands: [], flags: [], argument: { kind: 'file' } },
];

describe('every script', () => {
  it.each([
    ['bash', bashCompletion],
    ['zsh', zshCompletion],
    ['fish', fishCompletion],
  ])('names all commands and flags: %s', (_shell, write) => {
    const text = write(entries);
    for (const { commands, flags } of entries) {
      for (const { name } of commands) expect(text).toContain(name);
      for (const { long = '' } of flags) expect(text).toContain(long.slice(2));
    }
  });

  // A shell that is not on this machine is covered by the test above alone.
  it.each([
    ['bash', bashCompletion, ['-n']],
    ['zsh', zshCompletion, ['-n']],
    ['fish', fishCompletion, ['--no-config', '-n']],
  ] as const)('is read by its shell where that is there: %s', (shell, write, flags) => {
    for (const some of [entries, odd]) {
      const file = path.join(folder, `script.${shell}`);
      writeFileSync(file, write(some));
      const { status, error } = spawnSync(shell, [...flags, file], { cwd: folder });
      if (error === undefined) expect(status).toBe(0);
      else expect(error).toMatchObject({ code: 'ENOENT' });
    }
  });

  it('runs nothing that a description holds', () => {
    writeFileSync(path.join(folder, 'odd.bash'), bashCompletion(odd));
    const code = 'source "$0"; COMP_WORDS=(mgw --y ""); COMP_CWORD=2; _mgw; echo "${COMPREPLY[@]}"; ls';
    const out = execFileSync('bash', ['--norc', '-c', code, path.join(folder, 'odd.bash')], {
      cwd: folder,
      encoding: 'utf8',
    });
    expect(out).toMatch(/^a b\n/);
    expect(out).not.toContain('pwned');
  });
});
