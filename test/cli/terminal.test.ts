import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { newShell, type Ran } from '../support/shell.ts';

// util-linux's `script` runs a command on a terminal. These tests are skipped if `script` is missing.
const hasScript = (spawnSync('script', ['--version']).stdout?.toString() ?? '').includes('util-linux');

async function onTerminal(command: string, columns: number, env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const shell = newShell({ TERM: 'xterm', ...env });
  await shell.run('mgw config set sandbox.pace 1500ms');
  writeFileSync(join(shell.home, 'run.sh'), `stty cols ${columns} rows 24\n${command}\n`);
  const ran = await shell.run(`script -qec 'sh run.sh' /dev/null < /dev/null`);
  shell.close();
  return ran;
}

// Returns the terminal's last lines after all control sequences have been applied.
function afterwards(text: string): string[] {
  const kept = text
    .split('\n')
    .map((line) => line.replace(/\r$/, '').replace(/^[^]*\x1b\[1G\x1b\[0K/, ''))
    .map((line) => line.replace(/\x1b\[[?\d;]*[A-Za-z]/g, ''));
  return kept.filter((line) => line !== '');
}

const submit = 'mgw --sandbox video c submit "a boat" --model vendor-h3-mini --duration 5 -o boat.mp4';

describe.runIf(hasScript)('on a terminal,', { concurrent: true }, () => {
  it('a spinner displays the state and the seconds, then a bar, and finally clears its line', async () => {
    const { stdout, code } = await onTerminal(`${submit} && ${submit} --force`, 100);
    expect(code, stdout).toBe(0);
    const frames = new Set(stdout.match(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]/g));
    expect(frames.size).toBeGreaterThan(3);
    expect(stdout).toContain('⠋\x1b[39m');
    expect(stdout).toMatch(/job_\w{14} running \(IN_PROGRESS\) \d+% after \d+s/);
    expect(stdout).toMatch(/, about \d+s left/);
    expect(stdout).toMatch(/downloading \[#{24}\] [\d.]+ kB of [\d.]+ kB/);
    expect(afterwards(stdout).at(-1)).toMatch(/\/boat\.mp4$/);
    expect(stdout.match(/\x1b\[\?25l/g)?.length).toBeLessThanOrEqual(
      stdout.match(/\x1b\[\?25h/g)?.length ?? 0,
    );
  });

  it('a spinner at 40 columns omits the id and the bar, but not the state, the percentage or the bytes, and has no colour if colour is disabled', async () => {
    const { stdout, code } = await onTerminal(submit, 40, { NO_COLOR: '1' });
    expect(code, stdout).toBe(0);
    expect(stdout).toMatch(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] running( \(IN_PROGRESS\))? \d+% after \d+s/);
    expect(stdout).toMatch(/downloading \d+% [\d.]+ kB of [\d.]+ kB/);
    expect(stdout).not.toMatch(/\x1b\[\d*m/);
  });
});
