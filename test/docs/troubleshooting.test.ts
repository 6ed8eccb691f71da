import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { allCommands, loadAll } from '../../src/cli/command-tree.ts';
import { createProgram } from '../../src/cli/program.ts';
import { exitCodes } from '../../src/errors.ts';

const read = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');
const page = read('docs/troubleshooting.md');

it('docs/troubleshooting.md lists every error code, and every exit code except success', () => {
  const codes = Object.values(exitCodes).filter((code) => code !== 0);
  const missing = codes.filter((code) => !new RegExp(`(exit|or) ${code}\\b`, 'i').test(page));
  const [union = ''] = /export type ErrorCode =[^;]+;/.exec(read('src/errors.ts')) ?? [];
  const words = Array.from(union.matchAll(/'(\w+)'/g), ([, word = '']) => word);
  expect(words.length).toBeGreaterThan(15);
  expect([...missing, ...words.filter((word) => !page.includes(`\`${word}\``))]).toEqual([]);
});

it('docs/troubleshooting.md contains only existing commands', async () => {
  const { root } = createProgram([], () => Promise.resolve());
await loadAll(root);
  const commands = new Set(allCommands(root).map((command) => pathOf(command)));
  const mentioned = Array.from(page.matchAll(/(?:`|^)mgw ((?:(?:video c|[a-z]+) )?[a-z]+)\b/gm), ([, path = '']) => path);
  const isKnown = (path: string): boolean => {
    const words = path.split(' ');
    return words.some((_, index) => commands.has(['mgw', ...words.slice(0, index + 1)].join(' ')));
  };
  expect(mentioned.length).toBeGreaterThan(10);
  expect(mentioned.filter((path) => !isKnown(path))).toEqual([]);
});

function pathOf(command: { name(): string; parent: unknown }): string {
  const parent = command.parent as Parameters<typeof pathOf>[0] | null;
  return parent === null ? command.name() : `${pathOf(parent)} ${command.name()}`;
}
