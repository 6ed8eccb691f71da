import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import type { CliResult, Running } from '../support/cli.ts';
import { runHereAs } from '../support/one-process.ts';
import type { Deed } from './gateway.ts';
import { openScene, type BatchJson, type Scene } from './scene.ts';

const rows = 24;
const lost = new Set(['prompt 12', 'prompt 17']);
const failedAfter = 'prompt 18';
const doomed = 'prompt 22';

let scene: Scene;
/**
 * The number of submissions that the gateway has accepted; once it reaches `max`, new prompts are refused with 429.
 */
let folderCount = 0;
let max = 0;

function manifest(): string {
  const lines = Array.from({ length: rows }, (_, n) => {
    const prompt = `prompt ${n}`;
    return [
      `row-${n},a,video-a,5,${prompt},,`,
      `row-${n},b,Kling,5,${prompt},,2.0`,
      `row-${n},c,vendor-h3-mini,5,${prompt},,`,
      `row-${n},tts,,,,${prompt},`,
    ][n % 4];
  });
  return ['id,protocol,model,duration,prompt,text,model-version', ...lines, ''].join('\n');
}

function judge(prompt: string): Deed | undefined {
  const isFirst = !scene.gateway.charges.has(prompt);
  // The delay is shorter than the batch's time limit, so no process ends before the test stops it.
  if (isFirst && folderCount >= max) return { kind: 'limit', seconds: 900 };
  folderCount += 1;
  if (isFirst && folderCount % 9 === 0) return { kind: 'limit' };
  if (lost.has(prompt)) return { kind: 'lose' };
  if (prompt === failedAfter) return { kind: 'fail-after' };
  return prompt === doomed && isFirst ? { kind: 'doom' } : undefined;
}

function start(): Running {
  return scene.user.start(argsOf('run'));
}

function argsOf(command: string, ...more: string[]): string[] {
  const files = ['-o', scene.at('out/{id}.{ext}'), '--poll-interval', '10ms', '--concurrency', '8'];
  return ['batch', command, scene.at('clips.csv'), ...files, ...more];
}

// Runs a command that is not killed in this process.
function run(command = 'run', ...more: string[]): Promise<CliResult> {
  return runHereAs(scene.user, argsOf(command, ...more));
}

// Stops the processes at a moment when no submission is in progress, so killing them puts no row in doubt.
async function stopped(processes: Running[]): Promise<void> {
  const ledger = await openFileLedger(scene.user.env['MGW_STATE_DIR'] ?? '', () => Date.now());
  const signal = (name: NodeJS.Signals): void => processes.forEach(({ child }) => void child.kill(name));
  for (;;) {
    await expect.poll(() => folderCount).toBeGreaterThanOrEqual(max);
    signal('SIGSTOP');
    await expect.poll(() => processes.every(({ child }) => isStopped(child.pid))).toBe(true);
    if (!(await isOneOpen(ledger))) return;
    signal('SIGCONT');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Whether each thread of the process is stopped. */
function isStopped(pid = 0): boolean {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.every((thread) => /\) T /.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8')));
}

async function isOneOpen(ledger: Ledger): Promise<boolean> {
  for (const id of await ledger.ids()) {
    const job = await ledger.read(id);
    if (job?.state === 'sending' || (job?.protocol === 'tts' && job.state === 'queued')) return true;
    const isClaimed =
      job?.state === 'prepared' &&
      (await ledger.claimed(`send.${id}.${job.record.attempts + 1}`)) !== undefined;
    if (isClaimed) return true;
  }
  return false;
}

async function killed(processes: Running[], after: number): Promise<void> {
  max = folderCount + after;
  await stopped(processes);
  for (const { child, result } of processes) {
    child.kill('SIGKILL');
    await result;
  }
}

beforeAll(async () => {
  scene = await openScene();
  scene.file('clips.csv', manifest());
  scene.gateway.judge = judge;
});
afterAll(() => scene.gateway.close());

// Only /proc shows whether a process is stopped.
describe.skipIf(!existsSync('/proc/self/stat'))(
  'a batch whose processes are killed and whose responses are lost',
  () => {
    it('pays for each row once, and reports unfinished rows', async () => {
      await killed([start()], 7);
      await killed([start(), start()], 8);
      max = Number.POSITIVE_INFINITY;
      const ends = await Promise.all([run('run', '--json'), run()]);
      expect(ends.map(({ code }) => code)).toEqual([11, 11]);
      const batchJson = ends[0]?.json as unknown as BatchJson;
      expect([...scene.gateway.charges.values()].filter((count) => count !== 1)).toEqual([]);
      expect(scene.gateway.charges.size).toBe(rows);
      expect(batchJson.batch.states).toMatchObject({ done: rows - 4, unknown: 3, failed: 1 });
      expect(
        batchJson.rows.map(({ state, next }) => `${state}: ${next.slice(0, 3).join(' ')}`).sort(),
      ).toEqual([
        'failed: mgw batch retry',
        'unknown: mgw jobs resolve',
        'unknown: mgw jobs resolve',
        'unknown: mgw jobs resolve',
      ]);
      const bad = new Set(batchJson.rows.map(({ id }) => id));
      for (let n = 0; n < rows; n += 1) {
        if (bad.has(`row-${n}`)) continue;
        const [name, whole] = n % 4 === 3 ? ['mp3', scene.gateway.audio] : ['mp4', scene.gateway.video];
        expect(readFileSync(scene.at(`out/row-${n}.${name}`)).equals(whole), `row-${n}`).toBe(true);
      }
      await resolveAll(batchJson);
    });

    it('is completed by a retry of failed rows, and later runs send no POST', async () => {
      expect((await run()).code).toBe(11);
      expect(scene.gateway.charges.get(doomed)).toBe(1);
      expect((await run('retry', '--failed')).code).toBe(0);
      expect(scene.gateway.charges.get(doomed)).toBe(2);
      scene.gateway.requests.splice(0);
      expect((await run()).code).toBe(0);
      expect(scene.gateway.posts()).toEqual([]);
      expect(readdirSync(scene.at('out')).filter((name) => name.includes('.part'))).toEqual([]);
    });
  },
);

// Resolves the rows in doubt with the gateway's task ids. Each response was lost after the gateway had created the
// task.
async function resolveAll({ rows: told }: BatchJson): Promise<void> {
  for (const { id, state } of told) {
    if (state !== 'unknown') continue;
    const number = Number(id.slice('row-'.length));
    const task = scene.gateway.taskOf(`prompt ${number}`);
    const handle = number % 4 === 0 ? `models/video-a/operations/${task}` : task;
    const resolved = await runHereAs(scene.user, ['jobs', 'resolve', `@clips/${id}`, '--adopt', handle]);
    expect(resolved.code, resolved.stderr).toBe(0);
  }
}
