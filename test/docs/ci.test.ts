import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { newShell, type Shell } from '../support/shell.ts';
import { runWorkflow } from './workflow.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/ci.md', import.meta.url)), 'utf8');
const workflows = new Map(
  Array.from(page.matchAll(/```yaml\n(name: (\w+)\n[^]*?)```/g), ([, text = '', name = '']) => [name, text]),
);

let shell: Shell;

beforeEach(async () => {
  shell = newShell();
  await shell.run('mgw config set sandbox.pace 300ms');
});

afterEach(() => shell.close());

function workflow(name: string): string {
  return workflows.get(name) ?? '';
}

async function charges(): Promise<number> {
  const { stdout } = await shell.run('mgw sandbox bill --json');
  return (JSON.parse(stdout) as { bill: unknown[] }).bill.length;
}

describe('a recipe of docs/ci.md:', () => {
  it('there are four', () => expect([...workflows.keys()]).toEqual(['clip', 'later', 'resume', 'batch']));

  it('one step', async () => {
    const { code, log, summary } = await runWorkflow(workflow('clip'), shell);
    expect(code, log).toBe(0);
    expect(log).toMatch(/-rw\S* .*boat\.mp4$/m);
    expect(summary).toContain('succeeded');
  });

  it('submit in one job, fetch in another, which pays nothing', async () => {
    const { code, log } = await runWorkflow(workflow('later'), shell);
    expect(code, log).toBe(0);
    expect(existsSync(join(shell.home, 'out/intro.mp4'))).toBe(true);
    expect(await charges()).toBe(1);
  });

  it('resume after a cancelled run, which pays nothing', async () => {
    let isCancelled = false;
    const first = await runWorkflow(workflow('resume'), shell, (log, interrupt) => {
      if (isCancelled || !log.includes('Accepted as')) return;
      isCancelled = true;
      interrupt();
    });
    expect(first.code, first.log).toBe(130);
    expect(first.log).toMatch(/Interrupted; job job_\w{14} goes on\./);
    const second = await runWorkflow(workflow('resume'), shell);
    expect(second.code, second.log).toBe(0);
    expect(second.log).toContain('nothing is submitted again');
    expect(await charges()).toBe(1);
  });

  it('a batch, which pays nothing when it is run again', async () => {
    for (let runs = 0; runs < 2; runs += 1) {
      const { code, log, summary } = await runWorkflow(workflow('batch').replace('steps:', 'steps:\n      - uses: actions/cache/restore@v4'), shell);
      expect(code, log).toBe(0);
      expect(summary).toContain('### mgw batch');
    }
    expect(existsSync(join(shell.home, 'clips/harbour.mp4'))).toBe(true);
    expect(await charges()).toBe(2);
  });

  it('any other script', async () => {
    const [, script = ''] = /```sh\n([^]*?)```/.exec(page) ?? [];
    const ran = await shell.run(script);
    expect(ran.stdout, ran.stderr).toBe(`${join(shell.home, 'intro.mp4')}\n`);
  });
});
