import { AsyncLocalStorage } from 'node:async_hooks';
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import { removeJob } from '../../src/jobs/remove.ts';
import { beforeEachStep } from '../../src/ledger/durable-file.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { freshFolder as lastingFolder } from '../support/fresh-folder.ts';
import { freshFolder } from '../support/servers.ts';
import { deadOwner, depsFor, jobsOf, orderOf, run, type TestDeps } from '../jobs/harness.ts';

// Simulates processes that share one ledger, interleaved at each change that one of them makes to the disk. A process
// is a chain of calls with its own context. A killed process makes no further changes.

class Killed extends Error {}

interface Actor {
  steps: number;
  /** The process's step before which `act` runs, counted from 1. */
  at: number;
  /** Runs before the step `at`. */
  act: () => Promise<void> | void;
}

const actors = new AsyncLocalStorage<Actor>();

beforeEachStep(async () => {
  const actor = actors.getStore();
  if (actor === undefined) return;
  actor.steps += 1;
  if (actor.steps === actor.at) await actors.exit(actor.act);
  if (actor.steps > actor.at && actor.act === kill) kill();
});

function kill(): never {
  throw new Killed();
}

/** The exit code of a process, and the number of changes that the process made to the disk. */
interface Ended {
  steps: number;
  exit: number | 'killed';
}

interface World {
  state: string;
  /** The handles that the gateway has returned. */
  created: string[];
  /** The number of submissions without a key. Each may be a second take. */
  takes: number;
}

async function process_(
  world: World,
  command: Command,
  { at = Infinity, act = (): void => undefined }: Partial<Actor> = {},
): Promise<Ended> {
  const isKilled = act === kill;
  const actor: Actor = { steps: 0, at, act };
  const deps = await depsOf(world, isKilled ? deadOwner() : currentOwner());
  const exit = await actors.run(actor, async () =>
    command(deps, world).catch((error: unknown) => {
      if (isKilled) return 10;
      throw error;
    }),
  );
  return { steps: actor.steps, exit: isKilled && actor.steps >= at ? 'killed' : exit };
}

async function depsOf({ state, created }: World, owner = deadOwner()): Promise<TestDeps> {
  const deps = await depsFor('http://127.0.0.1:9', state, { owner, retries: 0 });
  const exchange: GatewayClient['exchange'] = async (_, options) => {
    await options.onConnected?.();
    created.push(`task_${created.length + 1}`);
    return { status: 200, headers: {}, text: JSON.stringify({ task_id: created.at(-1) }), complete: true };
  };
  return { ...deps, client: { ...deps.client, exchange } };
}

type Command = (deps: TestDeps, world: World) => Promise<number>;

const submits =
  (key: string | undefined): Command =>
  async (deps, world) => {
    if (key === undefined) world.takes += 1;
    const ran = await run(deps, orderOf({ key, deadline: deadlineIn(500, deps.clock) }));
    return ran.exit;
  };

/** Completes the index: looks up a job after the index was lost. */
const completes: Command = async ({ ledger }, { state }) => {
  for (const name of ['index.log', 'handles.log']) rmSync(join(state, name), { force: true });
  await ledger.lookup('handle', 'task_1');
  return 0;
};

const removes: Command = async ({ ledger }) => {
  for (const job of await jobsOf(ledger)) await removeJob(ledger, job, false, () => Promise.resolve([]));
  return 0;
};

const commands = {
  submits: submits('boat'),
  'submits without a key': submits(undefined),
  'completes the index': completes,
  'removes the job': removes,
};
type Name = keyof typeof commands;

const unsent = { key: 'other', body: { model: 'm', prompt: 'p' } };

/** A state folder with a job that was never sent, for the commands that find or remove jobs. */
let template: string;
beforeAll(async () => {
  template = lastingFolder();
  const deps = await depsOf({ state: template, created: [], takes: 0 });
  const client = { ...deps.client, exchange: () => Promise.reject(new Error('nothing is sent')) };
  await run({ ...deps, client }, orderOf(unsent)).catch(() => undefined);
});

function newWorld(): World {
  const state = freshFolder();
  cpSync(template, state, { recursive: true });
  return { state, created: [], takes: 0 };
}

/** Checks that no task is lost, and that the same command succeeds without paying again. */
async function expectSound(world: World, name: Name, what: string, isDoubtful = false): Promise<void> {
  const rerun = (key?: string): Promise<Ended> => process_(world, submits(key));
  for (const key of name === 'submits without a key' ? [undefined] : ['boat']) {
    const { exit } = await rerun(key);
    expect(isDoubtful ? [0, 7] : [0], `${what}: exit of the rerun`).toContain(exit);
    if (exit === 0) expect((await rerun(key)).exit, what).toBe(0);
  }
  expect(world.created.length, `${what}: tasks`).toBeLessThanOrEqual(1 + world.takes);
  const { ledger } = await depsOf(world);
  const jobs = await jobsOf(ledger);
  const handles = jobs.map(({ handle }) => handle);
  expect(jobs.filter(({ key }) => key === 'boat').length, `${what}: jobs of the key`).toBeLessThanOrEqual(1);
  if (!isDoubtful)
    expect(
      world.created.filter((handle) => !handles.includes(handle)),
      `${what}: lost`,
    ).toEqual([]);
  const listed = (await ledger.listed()).slice().filter((id) => jobs.some((job) => job.id === id));
  expect(listed, `${what}: listed`).toEqual(jobs.map(({ id }) => id));
}

// Pairs in which a submission or the index is involved. Submissions under different names share no claim, and
// submissions without a key complete the index like submissions with a key.
const overtaken: [Name, Name][] = [
  ['submits', 'submits'],
  ['submits', 'completes the index'],
  ['submits', 'removes the job'],
  ['submits without a key', 'submits without a key'],
  ['submits without a key', 'removes the job'],
  ['completes the index', 'submits'],
  ['completes the index', 'removes the job'],
  ['removes the job', 'submits'],
];
// The same command always runs again at the end.
const killed: [Name, Name][] = [
  ['submits', 'completes the index'],
  ['submits', 'removes the job'],
  ['submits without a key', 'submits without a key'],
  ['completes the index', 'submits'],
  ['removes the job', 'submits'],
];

describe('at any change to the disk,', () => {
  it.each(overtaken)(
    'a process that %s can be overtaken by a process that %s, and no task is lost or paid for twice',
    async (one, other) => {
      for (let at = 1, steps = 1; at <= steps; at += 1) {
        const world = newWorld();
        let passed: Ended | undefined;
        const act = async (): Promise<void> => void (passed = await process_(world, commands[other]));
        const ended = await process_(world, commands[one], { at, act });
        steps = ended.steps;
        const what = `passed before change ${at}`;
        expect([0, 8], what).toContain(ended.exit);
        expect([0, 8, undefined], what).toContain(passed?.exit);
        await expectSound(world, one.startsWith('submits') ? one : other, what);
      }
    },
  );

  it.each(killed)(
    'a process that %s can be killed before another process %s, and no task is paid for twice',
    async (one, other) => {
      for (let at = 1, isKilled = true; isKilled; at += 1) {
        const world = newWorld();
        const ended = await process_(world, commands[one], { at, act: kill });
        isKilled = ended.exit === 'killed';
        const what = `killed before change ${at}`;
        const next = await process_(world, commands[other]);
        expect([0, 7], what).toContain(next.exit);
        await expectSound(world, one.startsWith('submits') ? one : other, what, true);
      }
    },
  );
});

it('a job removed while another process is about to send it either still exists or is not paid for', async () => {
  const sends: Command = async (deps) =>
    (await run(deps, orderOf({ ...unsent, deadline: deadlineIn(500, deps.clock) }))).exit;
  let [at, steps] = [0, 0];
  do {
    at += 1;
    const world = newWorld();
    const act = async (): Promise<void> => {
      await process_(world, sends);
    };
    ({ steps } = await process_(world, removes, { at, act }));
    const handles = (await jobsOf((await depsOf(world)).ledger)).map(({ handle }) => handle);
    expect(
      world.created.filter((handle) => !handles.includes(handle)),
      `sent before change ${at} of ${steps}`,
    ).toEqual([]);
  } while (at < steps);
  expect(at).toBeGreaterThan(1);
});
