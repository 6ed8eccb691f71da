import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { runAtNewHome, wordsOf } from '../support/one-process.ts';
import { newShell, type Ran } from '../support/shell.ts';
import { patternOf, readTranscript, withoutBlankLines, type Step } from '../support/transcript.ts';

const folder = fileURLToPath(new URL('transcripts/', import.meta.url));
const hasFullDisk = existsSync('/dev/full');

function transcripts(of: string): { name: string; steps: Step[] }[] {
  const names = readdirSync(of).filter((name) => name.endsWith('.txt'));
  return names.map((name) => ({ name, steps: readTranscript(readFileSync(`${of}/${name}`, 'utf8')) }));
}

function hold(step: Step, ran: Ran): void {
  const about = `$ ${step.command}\n${ran.stdout}\n2> ${ran.stderr}\n`;
  expect(withoutBlankLines(ran.stdout), about).toMatch(patternOf(step.stdout));
  expect(withoutBlankLines(ran.stderr), about).toMatch(patternOf(step.stderr));
  expect(ran.code, about).toBe(step.code);
}

/**
 * Starts the sandbox with the fault that a command line specifies, if any. Returns the command line
 * with the sandbox's address.
 */
async function served(command: string): Promise<string> {
  const [named, fault = ''] = /<sandbox with ([\w-]+)>/.exec(command) ?? [];
  if (named === undefined) return command;
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir, paceMs: 1, faults: [fault] });
  onEnd(() => sandbox.close());
  return command.replace(named, `${sandbox.url} MGW_STATE_DIR=${stateDir}`);
}

describe('the output on a terminal', () => {
  const shells = transcripts(folder).filter(({ name }) => hasFullDisk || name !== 'full-disk.txt');
  it.each(shells)('matches the transcript $name', async ({ steps }) => {
    const shell = newShell();
    expect(steps).not.toHaveLength(0);
    try {
      for (const step of steps) hold(step, await shell.run(await served(step.command)));
    } finally {
      shell.close();
    }
  });
});

describe.each(transcripts(`${folder}one-process`))('the transcript $name', ({ steps }) => {
  it.each(steps)('matches the output of `$command`', async (step) => {
    const [mgw, ...argv] = wordsOf(step.command);
    expect(mgw).toBe('mgw');
    hold(step, await runAtNewHome(argv));
  });
});
