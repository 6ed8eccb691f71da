import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { freshFolder, httpServer, says, type Answer, type HttpServer } from '../support/servers.ts';
import { depsFor, jobsOf, orderOf, run, type Ran } from './harness.ts';

type Fate = 'dies at' | 'fails' | 'fails after';

/** A ledger whose n-th call meets its fate; once a process is dead, none of its calls returns. */
function doomed(
  ledger: Ledger,
  fate: Fate,
  fatal: number,
): { ledger: Ledger; calls: string[]; death: Promise<void> } {
  const calls: string[] = [];
  let die = (): void => undefined;
  let isDead = false;
  const death = new Promise<void>((resolve) => (die = resolve));
  const never = (): Promise<never> => {
    isDead = true;
    die();
    return new Promise(() => undefined);
  };
  const call = async (name: string, action: () => Promise<unknown>): Promise<unknown> => {
    if (isDead) return never();
    calls.push(name);
    if (calls.length !== fatal) return action();
    if (fate === 'dies at') return never();
    if (fate === 'fails after') await action();
    throw new MgwError('local_io', 'the disk is full', { retry: 'safe' });
  };
  const wrapped = Object.entries(ledger).map(([name, method]) => [
    name,
    (...args: unknown[]) =>
      call(name === 'append' ? `append ${(args[1] as { type: string }).type}` : name, () =>
        (method as (...args: unknown[]) => Promise<unknown>)(...args),
      ),
  ]);
  return { ledger: Object.fromEntries(wrapped) as Ledger, calls, death };
}

const order = orderOf();
const keyed = orderOf({ key: 'boat' });
const noAnswer: Answer = (_, response) => response.destroy();

// How the gateway answers first; then it accepts. `fine` is what reruns come to where nothing is in doubt.
const days: [string, (server: HttpServer) => Answer[]][] = [
  ['accepts', () => []],
  ['is busy once', () => [says({}, 429)]],
  ['refuses', () => [says({ error: { message: 'no' } }, 422)]],
  [
    'creates and breaks off',
    (server) => [
      (seen, response) => {
        server.create();
        noAnswer(seen, response);
      },
    ],
  ],
  [
    'creates and answers nonsense',
    (server) => [
      (seen, response) => {
        server.create();
        says('<html>')(seen, response);
      },
    ],
  ],
];

interface Rerun {
  server: HttpServer;
  state: string;
  first?: Ran;
  calls: string[];
}

/** One run that meets its fate at the n-th call; undefined where it ended before. */
async function firstRun(
  day: (server: HttpServer) => Answer[],
  fate: Fate,
  fatal: number,
  withKey: boolean,
): Promise<Rerun> {
  const [server, state] = [await httpServer(), freshFolder()];
  server.answers.push(...day(server));
  const deps = await depsFor(server.url, state);
  const { ledger, calls, death } = doomed(deps.ledger, fate, fatal);
  const first = await Promise.race([run({ ...deps, ledger }, withKey ? keyed : order), death]);
  return { server, state, first: first ?? undefined, calls };
}

async function check({ server, state, first, calls }: Rerun, withKey: boolean): Promise<void> {
  const where = calls.join(', ');
  const { ledger } = await depsFor(server.url, state);
  const attempts = Math.max(0, ...(await jobsOf(ledger)).map(({ record }) => record.attempts));
  expect(server.requests.length, where).toBeLessThanOrEqual(attempts);
  const shown = first?.error?.handle;
  const again = await run(await depsFor(server.url, state), withKey ? keyed : order);
  expect(server.created, where).toBeLessThanOrEqual(1);
  expect([0, 4, 7], where).toContain(again.exit);
  const jobs = await jobsOf(ledger);
  if (server.created === 1 && shown === undefined) {
    const kept = jobs.some(
      ({ handle, state: shownState }) => handle === 'task_0001' || shownState === 'unknown',
    );
    expect(kept, where).toBe(true);
  }
  if (again.exit === 7) {
    expect((await run(await depsFor(server.url, state), withKey ? keyed : order)).exit, where).toBe(7);
    expect(
      jobs.map((job) => job.state),
      where,
    ).toContain('unknown');
  }
}

describe.each<Fate>(['dies at', 'fails', 'fails after'])('a run that %s', (fate) => {
  describe.each(days)('while the gateway %s', (_, day) => {
    it.each([true, false])('any call of the ledger pays at most once (key: %s)', async (withKey) => {
      const whole = await firstRun(day, fate, Infinity, withKey);
      expect(whole.calls.length).toBeGreaterThan(8);
      for (let fatal = 1; fatal <= whole.calls.length; fatal += 1)
        await check(await firstRun(day, fate, fatal, withKey), withKey);
    });
  });
});

describe('where the record fails', () => {
  const at = (calls: string[], name: string): number => calls.indexOf(name) + 1;

  it('before sending: exit 10, nothing sent, and the rerun sends', async () => {
    const { calls } = await firstRun(() => [], 'fails', Infinity, false);
    for (const name of ['create', 'claim', 'append sending']) {
      const { server, state, first } = await firstRun(() => [], 'fails', at(calls, name), false);
      expect(first, name).toMatchObject({ exit: 10, error: { charged: 'no', retry: 'safe' } });
      expect(server.requests, name).toHaveLength(0);
      expect((await run(await depsFor(server.url, state))).exit, name).toBe(0);
    }
  });

  it('after acceptance: exit 10 with the handle', async () => {
    const { calls } = await firstRun(() => [], 'fails', Infinity, false);
    const { first, server, state } = await firstRun(() => [], 'fails', at(calls, 'append accepted'), false);
    expect(first).toMatchObject({ exit: 10, error: { charged: 'yes', retry: 'never' } });
    expect(first?.error?.handle).toBe('task_0001');
    expect(first?.error?.message).toContain('task_0001');
    // The answer as it came is on record: the rerun reads the handle from it.
    expect(await run(await depsFor(server.url, state))).toMatchObject({
      exit: 0,
      job: { handle: 'task_0001' },
    });
    expect(server.created).toBe(1);
  });

  it('for the raw answer alone: the handle is recorded all the same', async () => {
    const { calls } = await firstRun(() => [], 'fails', Infinity, false);
    const { first } = await firstRun(() => [], 'fails', at(calls, 'append reply'), false);
    expect(first).toMatchObject({ exit: 0, job: { handle: 'task_0001' } });
  });

  it.each<[string, Answer, number, string]>([
    ['rejected', says({ error: { message: 'no' } }, 422), 4, 'no'],
    ['lost', says('<html>'), 7, 'maybe'],
  ])(
    'for an answer that is %s: the exit code is that of the answer',
    async (event, answer, exit, charged) => {
      const { calls } = await firstRun(() => [answer], 'fails', Infinity, false);
      const { first } = await firstRun(() => [answer], 'fails', at(calls, `append ${event}`), false);
      expect(first).toMatchObject({ exit, error: { charged } });
    },
  );
});
