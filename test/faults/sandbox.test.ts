import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { allFaults } from '../../src/sandbox/faults.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { listTasks } from '../../src/sandbox/tasks.ts';
import { verify } from '../../src/sandbox/verify.ts';
import { videoOf } from '../../src/sandbox/files.ts';
import { canaryKey, newUser, type CliResult, type User } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';
import { type Area, dialects } from './dialects.ts';
import { expectInvariants } from './invariants.ts';

/**
 * Sandbox faults, the protocol to test them with, the exit codes of the first run and of the rerun, and the maximum
 * number of created tasks.
 */
type Row = [faults: string, area: Area, code: number, again: number, creations: number];

// submission.test.ts, waiting.test.ts and results.test.ts test the faults themselves. Here, each of the sandbox's
// faults is tested with one protocol, and faults that do not end a command are tested together.
const rows: Row[] = [
  ['auth-401', 'a', 3, 3, 0],
  ['balance-403', 'c', 4, 4, 0],
  ['submit-429x1,submit-429-retry-afterx1,submit-503x1,submit-slow', 'c', 0, 0, 1],
  ['submit-500', 'b', 7, 7, 0],
  ['submit-reset', 'b', 7, 7, 0],
  ['submit-reply-lost', 'a', 7, 7, 1],
  ['submit-500-after-accept', 'c', 7, 7, 1],
  ['submit-502-after-accept', 'b', 7, 7, 1],
  ['client-gives-up', 'tts', 0, 0, 1],
  ['submit-garbled', 'b', 7, 7, 1],
  ['submit-empty', 'a', 7, 7, 1],
  ['submit-cut@10%', 'c', 7, 7, 1],
  ['b-submit-limitedx2', 'b', 0, 0, 1],
  ['b-submit-internal-error', 'b', 7, 7, 1],
  ['task-fails', 'a', 5, 5, 1],
  ['never-finishes', 'b', 8, 8, 1],
  ['short-video,small-video,silent-video,extra-charge', 'a', 0, 0, 1],
  ['a-filtered', 'a', 5, 5, 1],
  ['a-partly-filtered', 'a', 5, 5, 1],
  ['b-finish-errcode', 'b', 5, 5, 1],
  ['b-finish-errcodeext', 'b', 5, 5, 1],
  ['poll-429x1,poll-500x1,poll-502x1,poll-503x1', 'a', 0, 0, 1],
  ['poll-resetx1,poll-garbledx1,poll-cutx1,poll-notfoundx1', 'b', 0, 0, 1],
  ['download-cutx1@40%,download-502x1,url-expiredx1', 'a', 0, 0, 1],
  ['download-html', 'c', 9, 9, 1],
  ['download-json', 'a', 9, 9, 1],
  ['download-gone', 'b', 9, 9, 1],
  ['download-no-range', 'c', 0, 0, 1],
  ['url-expired', 'b', 9, 9, 1],
  ['tts-429x2', 'tts', 0, 0, 1],
  ['tts-500', 'tts', 7, 7, 0],
  ['tts-cut', 'tts', 9, 9, 1],
  ['tts-reset', 'tts', 9, 9, 1],
  ['tts-error-frame', 'tts', 5, 5, 1],
];
// Faults that do not affect a single job, and `download-stall`, which results.test.ts tests with a fake clock
// because it stalls for a minute.
const elsewhere = [
  ...['models-502', 'responses-429', 'responses-cut', 'chaos', 'download-stall'],
  // test/store/sandbox-store.test.ts tests the faults of the store.
  ...['store-500', 'store-slow-down', 'store-expired', 'store-reset', 'store-bad-digest'],
];

interface Bench {
  user: User;
  stateDir: string;
}

const it = test.extend<{ bench: (faults: string) => Promise<Bench> }>({
  // eslint-disable-next-line no-empty-pattern -- vitest requires a pattern, even for no other fixtures
  bench: async ({}, use) => {
    const endings: (() => Promise<void> | void)[] = [];
    await use(async (faults) => {
      const folder = mkdtempSync(join(tmpdir(), 'mgw-faults-'));
      const stateDir = join(folder, 'gateway');
      const sandbox = await startSandbox({ stateDir, paceMs: 60, keys: [canaryKey], faults: [faults] });
      const user = newUser(sandbox.url);
      endings.push(
        () => sandbox.close(),
        () => {
          for (const path of [folder, user.cwd]) rmSync(path, { recursive: true, force: true });
        },
      );
      return { user, stateDir };
    });
    for (const ending of endings) await ending();
  },
});

describe.concurrent('every sandbox fault', () => {
  it.for(rows)(
    'leads to the documented exit codes: %s (%s), exit %i, and exit %i in the rerun',
    async ([faults, area, code, again, creations], { bench }) => {
      const { user, stateDir } = await bench(faults);
      const { command, fast, extension } = dialects[area];
      const out = join(user.cwd, `out.${extension}`);
      const limits = ['--timeout', code === 8 ? '500ms' : '40s', ...(code === 0 ? [] : ['--retries', '1'])];
      const submit = [...command, '--key', 'boat', '-o', out, ...fast, ...limits];
      const runs: CliResult[] = [];
      // On a busy machine, the submission may take longer than the timeout in `command`.
      if (code === 8) runs.push(await runHere(['--json', ...command, '--key', 'boat', ...fast], user.env));
      for (const expected of [code, again]) {
        const run = await runHere(['--json', ...submit], user.env);
        expect(run.code, run.stdout).toBe(expected);
        runs.push(run);
      }
      const charged = readBill(stateDir);
      expect(verify(stateDir, { succeeded: again === 0 })).toEqual([]);
      const tasks = area === 'tts' ? [] : listTasks(stateDir);
      const jobs = await expectInvariants(
        {
          created: tasks.map((task) => handleOf(area, task)),
          runs,
          env: user.env,
          folders: [user.cwd],
          keyFiles: [],
          outputs: area === 'tts' ? [] : [out],
          sources: tasks.map((task) => Buffer.from(videoOf(task))),
          key: canaryKey,
          strangers: [],
        },
        creations,
      );
      // The sandbox's bill contains no handle for a speech call, so the test counts the charges.
      expect(charged.length).toBeLessThanOrEqual(creations);
      const paid = jobs.filter(({ handle, state }) => handle !== undefined || state === 'unknown');
      expect(paid.length).toBeGreaterThanOrEqual(charged.length);
      expect(readdirSync(user.cwd).includes(`out.${extension}`)).toBe(code === 0);
    },
  );
});

function handleOf(area: Area, { id, model }: { id: string; model: string }): string {
  return area === 'a' ? `models/${model}/operations/${id}` : id;
}

describe('the list of sandbox faults', () => {
  it('contains every fault that the sandbox supports', () => {
    const named = [
      ...rows.flatMap(([faults]) => faults.split(',').map((fault) => fault.replace(/(x\d+)?(@\d+%)?$/, ''))),
      ...elsewhere,
    ];
    expect(allFaults.map(({ name }) => name).filter((name) => !named.includes(name))).toEqual([]);
  });
});
