import { describe, expect, it } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import type { JobEvent, Life, Owner } from '../../src/job.ts';
import { removeJob } from '../../src/jobs/remove.ts';
import { inRun, onExisting } from '../../src/jobs/run.ts';
import type { Order } from '../../src/jobs/order.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { type Answer, freshFolder, httpServer, says } from '../support/servers.ts';
import { depsFor, fakeClock, orderOf, run, type FakeClock, type TestDeps } from './harness.ts';

const elsewhere: Owner = { pid: 7, start: '1', host: 'elsewhere', lease: '1', instance: 'other' };
const leaseMs = 30_000;

/**
 * Returns a ledger that knows a process on another machine only by its lease. The lease is renewed once,
 * at `renewedAt` (ms).
 */
function withLease(ledger: Ledger, clock: FakeClock, renewedAt: number): Ledger {
  const until = (): number => (clock.monotonic() >= renewedAt ? renewedAt : 0) + leaseMs;
  const lifeOf = (owner: Owner): Life =>
    owner.host === 'elsewhere' && until() > clock.monotonic() ? 'alive' : 'dead';
  return {
    ...ledger,
    read: async (id) => {
      const job = await ledger.read(id);
      return job && { ...job, record: { ...job.record, lifeOf } };
    },
    uncertainLease: (owner) => {
      const leftMs = until() - clock.monotonic();
      return Promise.resolve(lifeOf(owner) === 'alive' ? { until: String(until()), leftMs } : undefined);
    },
  };
}

async function second(renewedAt: number): Promise<{ deps: TestDeps; created: () => number; first: string }> {
  const [server, state, clock] = [await httpServer(), freshFolder(), fakeClock()];
  const first = await run(await depsFor(server.url, state, { owner: elsewhere }));
  const deps = await depsFor(server.url, state, { clock });
  deps.ledger = withLease(deps.ledger, clock, renewedAt);
  return { deps, created: () => server.created, first: first.job?.id ?? '' };
}

it("a job of a dead process on another machine is resumed as soon as the process's lease ends", async () => {
  const { deps, created, first } = await second(Infinity);
  expect(await run(deps)).toMatchObject({ exit: 0, isResumed: true, job: { id: first } });
  expect(created()).toBe(1);
  expect(deps.clock.monotonic()).toBeGreaterThanOrEqual(leaseMs);
  expect(deps.clock.monotonic()).toBeLessThan(leaseMs + 1000);
  expect(deps.notes).toEqual([expect.stringMatching(`${first} was started on another machine.*up to 30 s`)]);
});

it('a repeated command makes a second take, with a note, if a process on another machine renews its lease', async () => {
  const { deps, created, first } = await second(7500);
  expect(await run(deps)).toMatchObject({ exit: 0, isResumed: false });
  expect(created()).toBe(2);
  expect(deps.clock.monotonic()).toBeLessThan(8500);
  expect(deps.notes.at(-1)).toContain(`second take of ${first}`);
});

it('a wait for the end of a lease stops at the deadline with exit 8, and nothing is sent', async () => {
  const { deps, created } = await second(Infinity);
  const ran = await run(deps, orderOf({ deadline: deadlineIn(5000, deps.clock) }));
  expect(ran).toMatchObject({ exit: 8, error: { code: 'pending' } });
  expect(created()).toBe(1);
});

it("a second take with --new does not wait for the end of the first process's lease", async () => {
  const { deps, created } = await second(Infinity);
  expect(await run(deps, orderOf({ fresh: true }))).toMatchObject({ exit: 0, isResumed: false });
  expect([created(), deps.clock.monotonic()]).toEqual([2, 0]);
});

it.each([
  ['under the key of another submission', 'k', 7],
  ['of another batch', 'other/1', 7],
  ['of the same batch', 'clips/1', 0],
])(
  "a job in doubt blocks a row of an agent's batch with the same request unless it belongs to that batch: a job %s",
  async (_, key, exit) => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push((_, response) => response.destroy());
    const deps = await depsFor(server.url, state);
    expect(await run(deps, orderOf({ key }))).toMatchObject({ exit: 7 });
    const blockedByAnyDoubt = deadlineIn(0, deps.clock);
    expect(await run(deps, orderOf({ key: 'clips/2', blockedByAnyDoubt }))).toMatchObject({ exit });
    expect(server.created).toBe(exit === 0 ? 1 : 0);
    expect(await run(deps, orderOf({ key: 'people/2' }))).toMatchObject({ exit: 0 });
  },
);

it.each<[string, Answer, object, number]>([
  ['accepted', says({ task_id: 'task_1' }), { exit: 2, error: { code: 'conflict' } }, 1],
  ['refused', says({ error: { message: 'no' } }, 400), { exit: 0 }, 2],
])(
  'a job whose process died before it recorded the response blocks an agent with a different key only if the job was accepted: %s',
  async (_, answer, ran, posts) => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(answer);
    const agent = { blockedByAnyDoubt: { remainingMs: () => 0 } };
    const dying = await depsFor(server.url, state);
    const { ledger } = dying;
    const isLost = ({ type }: JobEvent): boolean => ['accepted', 'rejected', 'detached'].includes(type);
    dying.ledger = {
      ...ledger,
      append: (id, event) => (isLost(event) ? Promise.reject(new Error('dead')) : ledger.append(id, event)),
    };
    const first = await run(dying, orderOf({ ...agent, key: 'one' }));
    expect(await ledger.read(first.job?.id ?? '')).toMatchObject({ state: 'sending' });
    const deps = await depsFor(server.url, state);
    const order = orderOf({ blockedByAnyDoubt: deadlineIn(5000, deps.clock), key: 'two' });
    expect(await run(deps, order)).toMatchObject(ran);
    expect([server.requests.length, deps.clock.pauses]).toEqual([posts, []]);
  },
);

it('an agent waits while another process is sending the same request under a different key', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const [first, second] = [
    await depsFor(server.url, state, { owner: currentOwner() }),
    await depsFor(server.url, state, { owner: currentOwner() }),
  ];
  let looksLeft = 100;
  const blockedByAnyDoubt = { remainingMs: () => (looksLeft -= 1) };
  let waiting: Promise<unknown> | undefined;
  first.priceOf = () =>
    new Promise((_, reject) => {
      second.clock.onSleep = () => reject(new Error('it gives up'));
      waiting = run(second, orderOf({ key: 'two', blockedByAnyDoubt }));
    });
  await expect(run(first, orderOf({ key: 'one' }))).rejects.toThrow('it gives up');
  expect(await waiting).toMatchObject({ exit: 0 });
  expect(server.created).toBe(1);
});

it('a run that fails because its job cannot be read is recorded as ended, even though its process is alive', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const { job } = await run(await depsFor(server.url, state));
  if (job === undefined) throw new Error('there is no job');
  const deps = await depsFor(server.url, state, { owner: currentOwner() });
  const { ledger } = deps;
  deps.ledger = { ...ledger, read: () => Promise.reject(new Error('the database is gone')) };
  const waiting = inRun({ command: 'wait', ask: 'finish' }, deps, onExisting(job, deps), () =>
    Promise.resolve(),
  );
  await expect(waiting).rejects.toThrow('the database is gone');
  const events = await ledger.events(job.id);
  expect(events.slice(-2).map((event) => event?.type)).toEqual(['began', 'detached']);
});

it.each<[string, keyof Ledger, Partial<Order>]>([
  ['sends the same job', 'confirm', {}],
  ['has claimed the key for another body', 'create', { body: { model: 'vendor-h3', prompt: 'a kite' } }],
])(
  'a process records its pending events before it waits for another process that %s',
  async (_, step, differing) => {
    const server = await httpServer();
    const deps = await depsFor(server.url, freshFolder(), { owner: currentOwner() });
    const { ledger } = deps;
    await new Promise<void>((reached) => {
      const stopped = (): Promise<never> => (reached(), new Promise(() => undefined));
      void run({ ...deps, ledger: { ...ledger, [step]: stopped } }, orderOf({ key: 'boat' }));
    });
    const flush = (): Promise<never> => Promise.reject(new Error('flushed'));
    const second = run({ ...deps, ledger: { ...ledger, flush } }, orderOf({ key: 'boat', ...differing }));
    await expect(second).rejects.toThrow('flushed');
    expect(server.requests).toHaveLength(0);
  },
);

describe('the removal of a job while another command begins to use the job', () => {
  type Moment = 'before the removal' | 'during the removal' | 'after the last look at the job';

  /**
   * Removes a finished job, and starts a wait for the job at the given moment of the removal. Returns both outcomes,
   * and the commands of the runs that have not ended.
   */
  async function removedAndWaitedFor(
    moment: Moment,
  ): Promise<{ removed: unknown; waited: unknown; runs: string[] | undefined }> {
    const [server, state] = [await httpServer(), freshFolder()];
    const { job, delivered } = await run(await depsFor(server.url, state));
    if (job === undefined) throw new Error('there is no job');
    await delivered?.();
    const deps = await depsFor(server.url, state, { owner: currentOwner() });
    const { ledger } = deps;
    await ledger.append(job.id, { type: 'finished', state: 'succeeded', native_status: 'completed' });
    const found = await ledger.read(job.id);
    let waited: Promise<unknown> | undefined;
    const wait = (now: Moment): Promise<void> =>
      new Promise((begun) => {
        if (now !== moment) {
          begun();
          return;
        }
        const append = async (id: string, event: JobEvent): Promise<void> => {
          await ledger.append(id, event);
          begun();
        };
        const own = { ...deps, ledger: { ...ledger, append } };
        waited = inRun({ command: 'wait', ask: 'finish' }, own, onExisting(job, own), () =>
          Promise.resolve('worked'),
        ).then(
          ({ value }) => value,
          (error: unknown) => error,
        );
      });
    const append = async (id: string, event: JobEvent): Promise<void> => {
      if (event.type === 'began') await wait('before the removal');
      await ledger.append(id, event);
      if (event.type === 'began') await wait('during the removal');
    };
    const removal = removeJob({ ...ledger, append }, found ?? job, false, async () => {
      await wait('after the last look at the job');
      return [];
    });
    // Sleeps on this clock end immediately, so each sleep waits for the removal instead.
    deps.clock.onSleep = () => removal.then(() => undefined);
    const ended = { removed: await removal, waited: await waited };
    return { ...ended, runs: (await ledger.read(job.id))?.record.runs.map(({ command }) => command) };
  }

  it.each<Moment>(['before the removal', 'during the removal'])(
    'is refused if the command begins %s',
    async (moment) => {
      expect(await removedAndWaitedFor(moment)).toEqual({
        removed: 'in_use',
        waited: 'worked',
        runs: ['wait'],
      });
    },
  );

  it('succeeds if the command begins after the last read of the job, and the command reports that there is no such job', async () => {
    const { removed, waited } = await removedAndWaitedFor('after the last look at the job');
    expect(removed).toBeUndefined();
    expect(waited).toMatchObject({ exitCode: 2, message: expect.stringMatching(/^No such job/) as string });
  });
});
