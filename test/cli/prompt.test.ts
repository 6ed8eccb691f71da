import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { readHidden, readLine, applyKeys } from '../../src/cli/input.ts';
import type { MgwError } from '../../src/errors.ts';
import type { Io } from '../../src/cli/io.ts';
import { readAll } from '../support/read-all.ts';

interface Terminal {
  io: Io;
  stdin: PassThrough;
  /** The arguments of each call of `setRawMode`, in order. */
  modes: boolean[];
  shown: () => string;
}

function terminal(): Terminal {
  const modes: boolean[] = [];
  const stdin = Object.assign(new PassThrough(), {
    isTTY: true,
    setRawMode: (on: boolean) => modes.push(on),
  });
  const stderr = new PassThrough();
  const stdout = new PassThrough();
  return { io: { stdin, stdout, stderr, env: {} }, stdin, modes, shown: () => String(readAll(stderr)) };
}

describe('readLine', () => {
  it('reads a line', async () => {
    const { io, stdin } = terminal();
    const line = readLine(io, 'Address: ');
    stdin.write('gateway.example\n');
    expect(await line).toBe('gateway.example');
  });

  it.each([true, false])(
    'refuses pasted text of several lines, but ignores empty lines; on a terminal: %j',
    async (isTTY) => {
      for (const [text, outcome] of [
        ['a boat\n\n', 'a boat'],
        ['a boat\nat sea\n', 2],
        ...(isTTY ? [['a boat\nat sea', 2] as const] : []),
      ] as const) {
        const { io, stdin } = terminal();
        Object.assign(io.stderr, { isTTY });
        const line = readLine(io, 'Prompt: ');
        stdin.write(text);
        expect(await line.catch((error: unknown) => (error as MgwError).exitCode)).toBe(outcome);
      }
    },
  );

  it('exits with 130 if the terminal disappears, and prints a newline after the prompt', async () => {
    const { io, stdin, shown } = terminal();
    const line = readLine(io, 'Address: ');
    stdin.end('gate');
    await expect(line).rejects.toMatchObject({ exitCode: 130 });
    expect(shown()).toMatch(/\n$/);
  });
});

describe('readHidden', () => {
  it('reads a line key by key, prints only the prompt, and restores the terminal', async () => {
    const { io, stdin, modes, shown } = terminal();
    const line = readHidden(io, 'API key: ');
    for (const key of ['s', 'k', '-', 'x', '\x7f', '1', '\r']) stdin.write(key);
    expect(await line).toBe('sk-1');
    expect(modes).toEqual([true, false]);
    expect(shown()).toBe('API key: \n');
  });

  it('exits with 130 on Ctrl-C, and restores the terminal', async () => {
    const { io, stdin, modes } = terminal();
    const line = readHidden(io, '? ');
    stdin.write('sk-\x03');
    await expect(line).rejects.toMatchObject({ name: 'MgwError', exitCode: 130 });
    expect(modes).toEqual([true, false]);
  });

  it('returns the text typed so far if the terminal disappears', async () => {
    const { io, stdin } = terminal();
    const line = readHidden(io, '? ');
    stdin.end('sk-2');
    expect(await line).toBe('sk-2');
  });

  it('does not prompt if the input is a pipe', async () => {
    const { io } = terminal();
    await expect(readHidden({ ...io, stdin: new PassThrough() }, '? ')).rejects.toMatchObject({
      code: 'usage',
    });
  });
});

describe('typed text', () => {
  it.each([
    ['abc', { line: 'abc' }],
    ['abc\rdef', { line: 'abc', ending: 'done' }],
    ['abc\n', { line: 'abc', ending: 'done' }],
    ['abc\x04', { line: 'abc', ending: 'done' }],
    ['ab\bc', { line: 'ac' }],
    ['abc\x15d', { line: 'd' }],
    ['\x7f\x7fa', { line: 'a' }],
    ['a\x1b[Db\x1b[3~c', { line: 'abc' }],
    ['\x1b[200~sk-1\x1b[201~\r', { line: 'sk-1', ending: 'done' }],
    ['abc\x03', { line: '', ending: 'interrupted' }],
  ])('is read key by key: %j results in %j', (keys, typed) => {
    expect(applyKeys('', keys)).toEqual(typed);
  });
});
