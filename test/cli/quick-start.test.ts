import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { newShell, type Shell } from '../support/shell.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/quick-start.md', import.meta.url)), 'utf8');
const documented = 'https://gateway.example.com';

/** A command on the page, and the output that the page shows for the command. */
interface Step {
  command: string;
  lines: string[];
}

function stepsOf(text: string): Step[] {
  const blocks = [...text.matchAll(/^```console\n(.*?)^```$/gms)].map(([, block = '']) => block);
  const parts = blocks.flatMap((block) => block.split(/^\$ /m).slice(1));
  return parts.map((part) => {
    const [command = '', ...lines] = part.trimEnd().split('\n');
    return { command, lines };
  });
}

// Replaces text that differs between runs, and removes lines about states that a quick task may skip.
function comparable(lines: readonly string[]): string[] {
  return lines
    .filter((line) => line.trim() !== '' && !/^job_\w+ (queued|running)/.test(line))
    .map((line) =>
      line
        .replace(/job_\w{14}/g, 'job_')
        .replace(/task_\w{32}/g, 'task_')
        .replace(/\b\d+(\.\d)? [kM]?B\b/g, 'SIZE')
        .replace(/\b\d+s\b/g, 'SECONDS')
        .replace(/is still (queued|running \(IN_PROGRESS\))/, 'is still STATE')
        .replace(/^account +\w{16}$/, 'account')
        .replace(/127\.0\.0\.1:\d+/g, 'LOOPBACK')
        .replace(/\s+/g, ' ')
        .trim(),
    )
    .sort();
}

let shell: Shell;
let gateway: Sandbox;

beforeAll(async () => {
  shell = newShell();
  gateway = await startSandbox({ stateDir: join(shell.home, '.gateway'), paceMs: 100 });
  writeFileSync(join(shell.home, 'key.txt'), `${gateway.key}\n`);
});

afterAll(async () => {
  await gateway.close();
  shell.close();
});

const steps = stepsOf(page);

it('the quick start contains commands', () => {
  expect(steps.length).toBeGreaterThan(15);
});

it.each(steps)(
  'the output of a quick start command matches the page: $command',
  async ({ command, lines }) => {
    const [, verb, name = '', value] = /^(export|unset) (\w+)(?:=(.*))?$/.exec(command) ?? [];
    if (verb !== undefined) {
      shell.env[name] = value;
      return;
    }
    const own = command.replaceAll(documented, gateway.url);
    // On a terminal, as on the page, stdout and stderr are the same stream, so a batch prints each file only once.
    const line = own.startsWith('mgw batch run') ? `{ ${own}\n} 2>&1` : own;
    const { stdout, stderr } = await shell.run(line);
    const seen = `${stdout}${stderr}`
      .replaceAll(gateway.url, documented)
      .replaceAll(new URL(gateway.url).host, new URL(documented).host)
      .replaceAll(shell.home, '/home/ada');
    expect(comparable(seen.split('\n'))).toEqual(comparable(lines));
  },
);

// A user who follows both the README and the quick start would pay twice for a repeated prompt.
it("the quick start uses none of the README's prompts", () => {
  const prompts = (text: string): string[] =>
    [...text.matchAll(/(?:submit|tts) "([^"]+)"/g)].map(([, prompt = '']) => prompt);
  const readme = readFileSync(fileURLToPath(new URL('../../README.md', import.meta.url)), 'utf8');
  expect(prompts(readme).length).toBeGreaterThan(3);
  expect(prompts(page).filter((prompt) => prompts(readme).includes(prompt))).toEqual([]);
});
