import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { version } from '../../src/installation.ts';
import { onEnd } from '../support/clean-ups.ts';
import { writeRelease } from '../support/local-release.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { newShell } from '../support/shell.ts';
import { Runners } from './workflow.ts';

const read = (name: string): string =>
  readFileSync(fileURLToPath(new URL(`../../${name}`, import.meta.url)), 'utf8');
const page = read('docs/ci.md');
const workflows = new Map(
  Array.from(`${page}${read('docs/fleet.md')}`.matchAll(/```yaml\n(name: (\w+)\n[^]*?)```/g), ([, text = '', name = '']) => [name, text]),
);

let release: string;
let bill: string;
let sandbox: Sandbox;
let runners: Runners;

beforeEach(async () => {
  release = freshFolder();
  writeRelease(release);
  bill = freshFolder();
  sandbox = await startSandbox({ stateDir: bill, paceMs: 300 });
  onEnd(() => sandbox.close());
  const prefix = `/OWNER/mgw/releases/download/v${version}/`;
  const github = await httpServer(({ path }, response) => {
    const file = join(release, path.slice(prefix.length));
    const isThere = path.startsWith(prefix) && existsSync(file);
    response.writeHead(isThere ? 200 : 404).end(isThere ? readFileSync(file) : '');
  });
  runners = new Runners({
    'github.server_url': github.url,
    'secrets.MGW_API_KEY': sandbox.key,
    'vars.MGW_BASE_URL': sandbox.url,
  });
});

function workflow(name: string): string {
  return workflows.get(name) ?? '';
}

function charges(): number {
  return readBill(bill, Date.now()).length;
}

describe('docs/ci.md', () => {
  it('contains only recipes that these tests run', () =>
    expect([...workflows.keys()]).toEqual(['clip', 'later', 'resume', 'batch', 'clips']));

  it('contains a one-step recipe that saves a video', async () => {
    const { code, log, summary } = await runners.run(workflow('clip'));
    expect(code, log).toBe(0);
    expect(log).toMatch(/-rw\S* .*boat\.mp4$/m);
    expect(summary).toContain('succeeded');
  });

  it('contains a recipe that submits in one job and fetches in another without paying again', async () => {
    const { code, log, workspace } = await runners.run(workflow('later'));
    expect(code, log).toBe(0);
    expect(existsSync(join(workspace, 'out/intro-4711.mp4'))).toBe(true);
    expect(charges()).toBe(1);
  });

  it('contains a recipe that resumes after a cancelled run without paying again', async () => {
    let isCancelled = false;
    const first = await runners.run(workflow('resume'), (log, interrupt) => {
      if (isCancelled || !log.includes('Accepted as')) return;
      isCancelled = true;
      interrupt();
    });
    expect(first.code, first.log).toBe(130);
    expect(first.log).toMatch(/Interrupted; job job_\w{14} continues at the gateway\./);
    const second = await runners.run(workflow('resume'));
    expect(second.code, second.log).toBe(0);
    expect(second.log).toContain('nothing is submitted again');
    expect(charges()).toBe(1);
  });

  it('contains a recipe for a batch, and repeating the recipe costs nothing', async () => {
    for (let runs = 0; runs < 2; runs += 1) {
      const { code, log, summary, workspace } = await runners.run(workflow('batch'));
      expect(code, log).toBe(0);
      expect(summary).toContain('### mgw batch');
      expect(existsSync(join(workspace, 'clips/harbour.mp4'))).toBe(true);
    }
    expect(charges()).toBe(2);
  });

  it('contains a script for other CI systems that refuses a tampered file', async () => {
    const shell = newShell({ MGW_RELEASE: `file://${release}`, MGW_BASE_URL: sandbox.url, MGW_API_KEY: sandbox.key });
    onEnd(() => shell.close());
    const [, script = ''] = /```sh\n([^]*?)```/.exec(page) ?? [];
    const ran = await shell.run(script);
    expect(ran.stdout, ran.stderr).toMatch(/ .*intro\.mp4\n$/);
    writeFileSync(join(release, `mgw-${version}-linux-${process.arch}`), '#!/bin/sh\necho tampered\n');
    const refused = await shell.run(script);
    expect(refused).toMatchObject({ code: 1, stdout: expect.stringContaining('FAILED') as string });
  });
});
