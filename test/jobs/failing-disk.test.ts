import { closeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import type { JobEvent } from '../../src/job.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk, type Watcher } from '../support/disk-operations.ts';
import { freshFolder, httpServer, says, type Answer, type HttpServer } from '../support/servers.ts';
import { depsFor, jobsOf, jobText, orderOf, run, type Ran } from './harness.ts';

// A process that dies at an operation, or loses its power: test/storm/power-cut.test.ts.

/** How an operation fails: it does nothing, it takes effect all the same, half of it is written, all do from then on. */
const failures = ['ENOSPC', 'EIO after', 'short write', 'full'] as const;
type Failure = (typeof failures)[number];

const fail = (code: string): never => {
  throw Object.assign(new Error(`${code}: made to fail`), { code });
};

const takesRoom = new Set(['open', 'mkdir', 'link', 'rename', 'write']);

/** Lets the n-th operation below a folder fail, and tells of each by name. */
function failingAt(fatal: number, failure: Failure, folder: string, operations: string[]): Watcher {
  return ({ name, path = '', half }, run) => {
    if (!path.startsWith(folder)) return run();
    operations.push(`${name} ${basename(path)}`);
    if (failure === 'full' && operations.length >= fatal && takesRoom.has(name)) return fail('ENOSPC');
    if (operations.length !== fatal || failure === 'full') return run();
    if (failure === 'short write' && half !== undefined) return half();
    if (failure !== 'EIO after') return fail('ENOSPC');
    const result = run();
    if (name === 'open' && typeof result === 'number') closeSync(result);
    return result instanceof Promise ? result.then(closed).then(() => fail('EIO')) : fail('EIO');
  };
}

// Whoever is told that a file could not be opened will not close it.
async function closed(result: unknown): Promise<void> {
  if (typeof result === 'object' && result !== null && 'close' in result)
    await (result as FileHandle).close();
}

const creating =
  (answer: Answer) =>
  (server: HttpServer): Answer =>
  (seen, response) => {
    server.create();
    answer(seen, response);
  };

// How the gateway answers first; then it accepts. A disk that fails once meets each of them.
const days: [string, (server: HttpServer) => Answer[]][] = [
  ['accepts', () => []],
  ['is busy once', () => [says({}, 429)]],
  ['refuses', () => [says({ error: { message: 'no' } }, 422)]],
  ['creates and breaks off', (server) => [creating((_, response) => response.destroy())(server)]],
  ['creates and answers nonsense', (server) => [creating(says('<html>'))(server)]],
];

interface Faulty {
  server: HttpServer;
  state: string;
  first: Ran;
  operations: string[];
}

interface Options {
  day?: (server: HttpServer) => Answer[];
  key?: string;
}

/** A run whose n-th operation on the disk fails; the disk is well again after it. */
async function faultyRun(fatal: number, failure: Failure, { day = () => [], key }: Options): Promise<Faulty> {
  const [server, state, operations] = [await httpServer(), freshFolder(), [] as string[]];
  server.answers.push(...day(server));
  const deps = await depsFor(server.url, state);
  onEnd(() => watchDisk(undefined));
  await watchDisk(failingAt(fatal, failure, state, operations));
  const first = await run(deps, orderOf({ key }));
  await watchDisk(undefined);
  return { server, state, first, operations };
}

describe('an operation on the disk that fails', () => {
  it.each([
    ...days.map(([name, day], index) => ({ name, day, key: undefined, tried: index === 0 ? 4 : 1 })),
    { name: 'accepts a --key', day: () => [], key: 'boat', tried: 1 },
  ])('while the gateway $name: pays at most once, and tells the truth', async ({ day, key, tried }) => {
    const whole = await faultyRun(0, 'EIO after', { day, key });
    expect(whole.operations.length).toBeGreaterThan(15);
    const usual = { key, exit: whole.first.exit };
    for (let fatal = 1; fatal <= whole.operations.length; fatal += 1) {
      // All of them, or the next one at each operation.
      for (const failure of [...failures, ...failures].slice(fatal % 4).slice(0, tried)) {
        const faulty = await faultyRun(fatal, failure, { day, key });
        await check(faulty, `${failure} at ${fatal}: ${faulty.operations[fatal - 1] ?? 'nothing'}`, usual);
      }
    }
  });
});

/** What a run comes to where the disk is well. */
interface Usual {
  key?: string | undefined;
  exit: number;
}

async function check({ server, state, first }: Faulty, where: string, { key, exit }: Usual): Promise<void> {
  const order = orderOf({ key });
  const { ledger } = await depsFor(server.url, state);
  const attempts = Math.max(0, ...(await jobsOf(ledger)).map(({ record }) => record.attempts));
  expect(server.requests.length, where).toBeLessThanOrEqual(attempts);
  if (server.requests.length === 0) expectUnsent(first, where);
  const shown = first.error?.handle === undefined ? '' : first.error.message;
  const again = await run(await depsFor(server.url, state), order);
  expect(server.created, where).toBeLessThanOrEqual(1);
  expect(attempts > 0 ? [0, 4, 7] : [exit], `${where}: ${again.error?.message ?? ''}`).toContain(again.exit);
  if (again.exit === 7)
    expect(await run(await depsFor(server.url, state), order), where).toMatchObject({ exit: 7 });
  const kept = (await jobsOf(ledger)).map((job) => job.handle ?? job.state).join();
  if (server.created === 1) expect(`${kept} ${shown}`, where).toMatch(/task_0001|unknown/);
}

function expectUnsent(first: Ran, where: string): void {
  expect(first, where).toMatchObject({
    exit: 10,
    error: { code: 'local_io', charged: 'no', retry: 'safe' },
  });
}

describe('an event that cannot be recorded', () => {
  /** A run whose ledger takes everything but one type of event. */
  async function without(type: JobEvent['type'], ...answers: Answer[]): Promise<Faulty> {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(...answers);
    const { ledger, ...deps } = await depsFor(server.url, state);
    const append: typeof ledger.append = (id, event) =>
      event.type === type
        ? Promise.reject(new MgwError('local_io', 'the disk is full'))
        : ledger.append(id, event);
    const first = await run({ ...deps, ledger: { ...ledger, append } });
    return { server, state, first, operations: [] };
  }

  it('of the acceptance: exit 10 with the handle, which the rerun reads from the answer', async () => {
    const { first, server, state } = await without('accepted');
    expect(first).toMatchObject({ exit: 10, error: { charged: 'yes', retry: 'never' } });
    expect(first.error?.handle).toBe('task_0001');
    expect(first.error?.message).toContain('task_0001');
    const again = await run(await depsFor(server.url, state));
    expect(again).toMatchObject({ exit: 0, job: { handle: 'task_0001' } });
    expect(server.created).toBe(1);
  });

  it('of the answer as it came: the handle is recorded all the same', async () => {
    const { first, state } = await without('reply');
    expect(first).toMatchObject({ exit: 0, job: { handle: 'task_0001' } });
    expect(jobText(state)).toContain('"type":"accepted"');
  });

  it.each<[JobEvent['type'], Answer, number, string]>([
    ['rejected', says({ error: { message: 'no' } }, 422), 4, 'no'],
    ['unknown', says('<html>'), 7, 'maybe'],
  ])('of what was %s: the exit code is that of the answer', async (type, answer, exit, charged) => {
    const { first } = await without(type, answer);
    expect(first).toMatchObject({ exit, error: { charged } });
  });
});
