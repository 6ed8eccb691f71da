import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import { MgwError } from '../../src/errors.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { findJob } from '../../src/jobs/ref.ts';
import { holderText, names, newJobId } from '../../src/ledger/names.ts';
import type { Owner } from '../../src/job.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { fingerprintOf, type Order } from '../../src/jobs/order.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { resolveJob } from '../../src/flows/resolve.ts';
import { freshFolder, httpServer, says, tcpServer, type Answer } from '../support/servers.ts';
import { deadOwner, depsFor, jobsOf, orderOf, run, type TestDeps } from './harness.ts';

const alive = { owner: currentOwner() };

/**
 * Delays the first record of each run until all runs have found their job. A run that finds another run alive
 * would make a second take.
 */
function meetBeforeBeginning(runs: readonly TestDeps[]): void {
  let missing = runs.length;
  let open = (): void => undefined;
  const allHaveMet = new Promise<void>((resolve) => (open = resolve));
  for (const { ledger } of runs) {
    const append = ledger.append.bind(ledger);
    ledger.append = async (id, event) => {
      if (event.type === 'began' && (missing -= 1) === 0) open();
      if (event.type === 'began') await allHaveMet;
      return append(id, event);
    };
  }
}

describe('a key', () => {
  it('leads to one submission if two runs use it at once, and both runs receive its job', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const order = orderOf({ key: 'boat' });
    const both = await Promise.all(
      [1, 2].map(async () => run(await depsFor(server.url, state, alive), order)),
    );
    expect(both.map(({ exit }) => exit)).toEqual([0, 0]);
    expect(new Set(both.map(({ job }) => job?.id)).size).toBe(1);
    expect(both.filter(({ isResumed }) => isResumed === true)).toHaveLength(1);
    expect(server.requests).toHaveLength(1);
  });

  it.each([
    ['is accepted', 0],
    ['fails', 6],
  ])('belongs to the process that started first until its submission %s', async (_, exit) => {
    const [server, state] = [await httpServer(), freshFolder()];
    const order = orderOf({ key: 'boat' });
    const first = await depsFor(server.url, state, alive);
    let connections = 0;
    const second = await depsFor(server.url, state, {
      owner: { ...currentOwner(), instance: 'another process' },
      onWaitForOther: () => void (goOn ??= endFirst()),
    });
    const exchange = second.client.exchange.bind(second.client);
    second.client.exchange = (...call) => exchange(...call).finally(() => (connections += 1));
    let goOn: Promise<void> | undefined;
    let endFirst = (): Promise<void> => Promise.resolve();
    second.clock.onSleep = () => goOn;
    let others: Promise<Awaited<ReturnType<typeof run>>> | undefined;
    first.priceOf = async () => {
      const answered = new Promise<void>((resolve, reject) => {
        endFirst = () => {
          if (exit === 0) resolve();
          else reject(new MgwError('unreachable', 'not sent', { retry: 'safe' }));
          return Promise.resolve();
        };
      });
      others = run(second, order);
      await answered;
      return { subject: 'a test' };
    };
    expect((await run(first, order)).exit).toBe(exit);
    expect((await others)?.exit).toBe(0);
    expect(goOn).toBeDefined();
    expect(connections).toBe(exit === 0 ? 0 : 1);
    expect(server.requests).toHaveLength(1);
  });

  // Extends the pauses until the other run has created its job, because the test clock skips pauses.
  function patient(deps: TestDeps): TestDeps {
    const sleep = async (): Promise<void> => {
      while ((await deps.ledger.ids()).length === 0) await new Promise((resolve) => setImmediate(resolve));
    };
    deps.clock.sleep = sleep;
    return deps;
  }

  it('leads to one submission if two runs use it at once with different bodies, and the other run reports the difference', async () => {
    for (let round = 0; round < 2; round += 1) {
      const [server, state] = [await httpServer(), freshFolder()];
      const orders = ['a boat', 'a ship'].map((prompt) =>
        orderOf({ key: 'k', body: { model: 'vendor-h3', prompt } }),
      );
      const both = await Promise.all(
        orders.map(async (order) => run(patient(await depsFor(server.url, state, alive)), order)),
      );
      expect(both.map(({ exit }) => exit).sort()).toEqual([0, 2]);
      expect(both.find(({ exit }) => exit === 2)?.error?.message).toMatch(/prompt was "a (boat|ship)"/);
      expect(server.created).toBe(1);
      expect(await jobsOf((await depsFor(server.url, state)).ledger)).toHaveLength(1);
    }
  });

  it('is refused with exit 2 for a different body, and nothing is sent', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    await run(await depsFor(server.url, state), orderOf({ key: 'k' }));
    const other = orderOf({ key: 'k', body: { model: 'vendor-h3', prompt: 'b' } });
    expect(await run(await depsFor(server.url, state), other)).toMatchObject({
      exit: 2,
      error: { code: 'conflict' },
    });
    expect(server.requests).toHaveLength(1);
  });

  it('is refused with exit 2 if its job was removed and then imported with a different body, and nothing is sent', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const { ledger, gateway } = await depsFor(server.url, state);
    const { job } = await run(await depsFor(server.url, state), orderOf({ key: 'k' }));
    const id = job?.id ?? '';
    await ledger.remove(id);
    const imported = { protocol: 'c', base_url: gateway, fingerprint: 'other', account: 'test', key: 'k' };
    await ledger.create(id, [{ type: 'prepared', ...imported }], true);
    expect(await run(await depsFor(server.url, state), orderOf({ key: 'k' }))).toMatchObject({
      exit: 2,
      error: { code: 'conflict' },
    });
    expect(server.requests).toHaveLength(1);
  });

  it("is refused with exit 7 if its job's record is lost, until the user resolves the job", async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    const { job } = await run(deps, orderOf({ key: 'k' }));
    const id = job?.id ?? '';
    rmSync(join(state, 'jobs', `${id}.jsonl`));
    const lost = await run(await depsFor(server.url, state), orderOf({ key: 'k' }));
    expect(lost).toMatchObject({
      exit: 7,
      error: { next: ['mgw', 'jobs', 'resolve', id] },
    });
    expect((await run(deps, orderOf({ key: 'k', fresh: true }))).exit).toBe(7);
    expect(existsSync(join(state, 'jobs', `${id}.jsonl`))).toBe(false);
    expect(server.requests).toHaveLength(1);
    const found = await findJob(deps.ledger, id);
    expect(found).toMatchObject({ id, state: 'unknown' });
    if (found === undefined) throw new Error('no job');
    await resolveJob(deps.ledger, found, { how: 'not-created' });
    expect(await run(await depsFor(server.url, state), orderOf({ key: 'k' }))).toMatchObject({
      exit: 0,
      job: { id },
    });
    expect(server.created).toBe(2);
  });

  it('belongs to its job even if the record has lost the line that contains the request', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const order = orderOf({ key: 'k', variant: 'wav' });
    const { job } = await run(await depsFor(server.url, state), order);
    const path = join(state, 'jobs', `${job?.id}.jsonl`);
    writeFileSync(path, readFileSync(path, 'utf8').replace(/^.*/, 'damaged'));
    const again = await run(await depsFor(server.url, state), order);
    expect(again).toMatchObject({ exit: 0, isResumed: true, job: { id: job?.id, handle: 'task_0001' } });
  });

  it.each<[string, Owner, number]>([
    ['a dead process', deadOwner(), 0],
    ['a living process', currentOwner(), 2],
    ['a process on another machine', { ...deadOwner(), host: 'elsewhere' }, 2],
  ])(
    'is free only if the process that claimed it for another submission is known to be dead: %s',
    async (_, owner, exit) => {
      const [server, state] = [await httpServer(), freshFolder()];
      const deps = await depsFor(server.url, state);
      const claimed = newJobId(1);
      await deps.ledger.claim('key.k', holderText({ job: claimed, fingerprint: 'another', owner }));
      const ran = await run(deps, orderOf({ key: 'k' }));
      expect(ran.exit).toBe(exit);
      expect(server.created).toBe(exit === 0 ? 1 : 0);
      if (exit > 0) return;
      expect(await deps.ledger.create(claimed, [])).toBe(false);
      expect(deps.clock.pauses).toEqual([]);
    },
  );
});

it('each of 20 keys leads to only one submission in 100 parallel runs', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const processes = await Promise.all(Array.from({ length: 20 }, () => depsFor(server.url, state, alive)));
  const all = await Promise.all(
    Array.from({ length: 5 }, (_, round) =>
      processes.map((deps, at) => run(deps, orderOf({ key: `key-${(at + round) % 20}` }))),
    ).flat(),
  );
  expect(all.map(({ exit }) => exit)).toEqual(Array(100).fill(0));
  expect(server.created).toBe(20);
  expect(server.requests).toHaveLength(20);
  const deps = await depsFor(server.url, state);
  expect((await jobsOf(deps.ledger)).map(({ key }) => key).sort()).toEqual(
    Array.from({ length: 20 }, (_, index) => `key-${index}`).sort(),
  );
});

it('an interruption while another process claims a key leads to exit 130, and nothing is sent', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state);
  const holder = { job: newJobId(1), fingerprint: 'another', owner: currentOwner() };
  await deps.ledger.claim('key.k', holderText(holder));
  deps.clock.onSleep = () => deps.soft.abort('SIGINT');
  expect(await run(deps, orderOf({ key: 'k' }))).toMatchObject({ exit: 130, error: { charged: 'no' } });
  expect(server.requests).toHaveLength(0);
});

it.each([{ key: 'k' }, {}])(
  'a submission takes over the job id that a dead run claimed for the same submission: %j',
  async (key) => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    const [id, fingerprint] = [newJobId(1), fingerprintOf(orderOf(), deps.gateway)];
    const name = names.first({ ...key, fingerprint });
    await deps.ledger.claim(name, holderText({ job: id, fingerprint, owner: deadOwner() }));
    expect(await run(deps, orderOf(key))).toMatchObject({ exit: 0, job: { id, ...key } });
    expect(server.created).toBe(1);
  },
);

it('a submission whose job another process creates first begins its own run on that job', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state);
  const create: Ledger['create'] = async (id, events) => {
    await deps.ledger.create(
      id,
      events.filter((event) => event?.type === 'prepared'),
    );
    return deps.ledger.create(id, events);
  };
  const { job } = await run({ ...deps, ledger: { ...deps.ledger, create } });
  const events = await deps.ledger.events(job?.id ?? '');
  expect(events.filter((event) => event?.type === 'began')).toHaveLength(1);
  expect(server.created).toBe(1);
});

describe('one job', () => {
  it('is sent only once by two reruns if its process is dead', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(says({}, 429), says({}, 429));
    await run(await depsFor(server.url, state, { retries: 1 }));
    const depsOfBoth = await Promise.all([
      depsFor(server.url, state, alive),
      depsFor(server.url, state, alive),
    ]);
    meetBeforeBeginning(depsOfBoth);
    const both = await Promise.all(depsOfBoth.map((deps) => run(deps)));
    expect(both.map(({ exit }) => exit)).toEqual([0, 0]);
    expect(server.created).toBe(1);
  });

  it('keeps a second run waiting while the first run sends it, at most until the deadline', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const responses: (() => void)[] = [];
    server.answers.push((_, response) => {
      responses.push(() => says({ task_id: server.create() })({} as never, response));
    });
    const order = orderOf({ key: 'k' });
    const first = run(await depsFor(server.url, state, alive), order);
    await expect.poll(() => server.requests.length).toBe(1);
    const impatient = await depsFor(server.url, state, alive);
    const pending = await run(impatient, { ...order, deadline: deadlineIn(1000, impatient.clock) });
    expect(pending).toMatchObject({ exit: 8, error: { charged: 'maybe', retry: 'resume' } });
    const patient = run(await depsFor(server.url, state, alive), order);
    responses.forEach((answer) => answer());
    expect((await first).exit).toBe(0);
    expect(await patient).toMatchObject({ exit: 0, isResumed: true });
    expect(server.created).toBe(1);
  });

  it('is reported as rejected by the sending run and by a waiting run if the gateway refuses it', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const responses: (() => void)[] = [];
    server.answers.push((_, response) => {
      responses.push(() => says({ error: { message: 'no such thing' } }, 422)({} as never, response));
    });
    const order = orderOf({ key: 'k' });
    const first = run(await depsFor(server.url, state, alive), order);
    await expect.poll(() => server.requests.length).toBe(1);
    const second = await depsFor(server.url, state, alive);
    second.clock.onSleep = () => responses.splice(0).forEach((answer) => answer());
    expect(await run(second, order)).toMatchObject({ exit: 4 });
    expect((await first).exit).toBe(4);
    expect(server.requests).toHaveLength(1);
  });

  it('is sent immediately by a second run after a temporary refusal, even if another live run has begun it', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(says({}, 429));
    const order = orderOf({ key: 'k' });
    const { job } = await run(await depsFor(server.url, state, { retries: 0 }), order);
    const deps = await depsFor(server.url, state, { owner: { ...currentOwner(), instance: 'this process' } });
    const other = { run: 'other', ...alive, command: 'submit', ask: 'accept' } as const;
    await deps.ledger.append(job?.id ?? '', { type: 'began', ...other });
    expect(await run(deps, { ...order, deadline: deadlineIn(10_000, deps.clock) })).toMatchObject({
      exit: 0,
    });
    expect(deps.clock.pauses).toEqual([]);
  });

  it('is sent by a rerun after a refusal, even if the first connection of the rerun fails', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const order = orderOf({ key: 'k' });
    server.answers.push(says({ error: { message: 'no' } }, 422));
    expect((await run(await depsFor(server.url, state), order)).exit).toBe(4);
    const deps = await depsFor(server.url, state);
    let tries = 0;
    const client: GatewayClient = {
      ...deps.client,
      exchange: (request, options) => {
        if ((tries += 1) > 1) return deps.client.exchange(request, options);
        throw new TransportError('unsent', 'unreachable', 'unavailable');
      },
    };
    expect((await run({ ...deps, client }, order)).exit).toBe(0);
    expect(server.created).toBe(1);
  });
});

it('a job that is accepted just before its next attempt is claimed is not sent again', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state);
  const ledger: Ledger = {
    ...deps.ledger,
    claim: async (name, content) => {
      const [id] = await deps.ledger.ids();
      if (id !== undefined) await deps.ledger.append(id, { type: 'accepted', handle: 'late' });
      return deps.ledger.claim(name, content);
    },
  };
  const ran = await run({ ...deps, ledger });
  expect(ran).toMatchObject({ exit: 0, isResumed: true, job: { handle: 'late' } });
  expect(server.requests).toHaveLength(0);
  const types = (await deps.ledger.events(ran.job?.id ?? '')).map((event) => event?.type);
  expect(types).not.toContain('unavailable');
});

it('a job that was accepted twice continues with the handle that was recorded first, and a note contains the other handle', async () => {
  const server = await httpServer();
  const deps = await depsFor(server.url, freshFolder());
  const read: Order['read'] = () => ({ kind: 'accepted', handle: 'task_2' });
  const { ledger } = deps;
  const append: Ledger['append'] = async (id, event) => {
    if (event.type === 'accepted') await ledger.append(id, { ...event, handle: 'task_1' });
    await ledger.append(id, event);
  };
  const ran = await run({ ...deps, ledger: { ...ledger, append } }, orderOf({ read }));
  expect(ran).toMatchObject({ exit: 0, job: { handle: 'task_1' } });
  expect(deps.notes).toEqual([`Job ${ran.job?.id} continues as task_1; the gateway also accepted task_2.`]);
});

describe('a claim without a `sending` event', () => {
  async function claimedOnly(
    owner: object,
    isConfirmed = false,
  ): Promise<[Awaited<ReturnType<typeof httpServer>>, string, string]> {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state, { retries: 0 });
    server.answers.push(says({}, 429));
    const { job } = await run(deps, orderOf({ key: 'k' }));
    await deps.ledger.claim(`send.${job?.id ?? ''}.2`, JSON.stringify(owner));
    if (isConfirmed) await deps.ledger.confirm(`send.${job?.id ?? ''}.2`);
    return [server, state, job?.id ?? ''];
  }

  it('is skipped if its process is dead, because nothing was sent', async () => {
    const [server, state, id] = await claimedOnly(deadOwner());
    const both = await Promise.all(
      [1, 2].map(async () => run(await depsFor(server.url, state, alive), orderOf({ key: 'k' }))),
    );
    expect(both).toMatchObject([1, 2].map(() => ({ exit: 0, job: { id, record: { attempts: 3 } } })));
    expect(server.created).toBe(1);
  });

  it.each<[string, Owner, boolean]>([
    ['of a process on another machine', { ...deadOwner(), host: 'elsewhere' }, false],
    ['of a process with an unknown start time', { ...currentOwner(), pid: process.ppid, start: '' }, false],
    ['of a dead process whose event is lost', deadOwner(), true],
  ])('puts the job in doubt until the user resolves the job: a claim %s', async (_, owner, isConfirmed) => {
    const [server, state, id] = await claimedOnly(owner, isConfirmed);
    const order = orderOf({ key: 'k' });
    const deps = await depsFor(server.url, state);
    const lost = await run(deps, order);
    expect(lost).toMatchObject({ exit: 7, job: { id, state: 'unknown', record: { attempts: 2 } } });
    expect(server.requests).toHaveLength(1);
    if (lost.job === undefined) throw new Error('no job');
    await resolveJob(deps.ledger, lost.job, { how: 'not-created' });
    expect((await run(await depsFor(server.url, state), order)).exit).toBe(0);
    expect(server.created).toBe(1);
  });

  it('does not put the job in doubt if its process recorded the outcome before it died', async () => {
    const [server, state, id] = await claimedOnly(deadOwner());
    const deps = await depsFor(server.url, state);
    const ledger: Ledger = {
      ...deps.ledger,
      claimed: async (name) => {
        const holder = await deps.ledger.claimed(name);
        if (name === `send.${id}.2`) {
          await deps.ledger.append(id, { type: 'sending', attempt: 2, owner: deadOwner() });
          const error = { code: 'rate_limited', message: 'slow down' };
          await deps.ledger.append(id, { type: 'unavailable', attempt: 2, error });
        }
        return holder;
      },
    };
    const ran = await run({ ...deps, ledger }, orderOf({ key: 'k' }));
    expect(ran).toMatchObject({ exit: 0, job: { record: { attempts: 3 } } });
    expect(server.created).toBe(1);
  });

  it('puts the job in doubt immediately, even if another live run has begun the job', async () => {
    const [server, state, id] = await claimedOnly({ ...deadOwner(), host: 'elsewhere' });
    const onWaitForOther = (): never => expect.unreachable();
    const deps = await depsFor(server.url, state, {
      owner: { ...currentOwner(), instance: 'this process' },
      onWaitForOther,
    });
    const other = { run: 'other', ...alive, command: 'submit', ask: 'accept' } as const;
    await deps.ledger.append(id, { type: 'began', ...other });
    const order = orderOf({ key: 'k', deadline: { remainingMs: () => 0 } });
    expect(await run(deps, order)).toMatchObject({ exit: 7, job: { state: 'unknown' } });
  });

  it('blocks another run if its process is alive', async () => {
    const [server, state] = await claimedOnly(currentOwner());
    const deps = await depsFor(server.url, state);
    const order = orderOf({ key: 'k', deadline: deadlineIn(1000, deps.clock) });
    expect((await run(deps, order)).exit).toBe(8);
    expect(server.requests).toHaveLength(1);
  });

  it('no longer blocks a run that is interrupted, even if the process of the claim is alive', async () => {
    const [server, state, id] = await claimedOnly(currentOwner());
    const deps = await depsFor(server.url, state);
    deps.clock.onSleep = () => deps.soft.abort('SIGINT');
    const ended = { exit: 130, error: { charged: 'maybe' } };
    expect(await run(deps, orderOf({ key: 'k' }))).toMatchObject(ended);
    expect((await deps.ledger.read(id))?.record.runs).toEqual([]);
    expect(server.requests).toHaveLength(1);
  });

  it('no longer blocks other runs if the job is removed by force', async () => {
    const [server, state, id] = await claimedOnly(currentOwner());
    const deps = await depsFor(server.url, state);
    const other = { run: 'other', owner: currentOwner(), command: 'submit', ask: 'accept' } as const;
    await deps.ledger.append(id, { type: 'began', ...other });
    deps.clock.onSleep = () => deps.ledger.remove(id);
    const ended = { exit: 10, error: { charged: 'no', retry: 'safe' } };
    expect(await run(deps, orderOf({ key: 'k' }))).toMatchObject(ended);
    expect(server.requests).toHaveLength(1);
  });

  it.each(['alive', 'dead'] as const)(
    'does not block a new job with the same key if the old job is removed while mgw checks whether the process is alive (result: %s)',
    async (life) => {
      const remover = { ...deadOwner(), host: 'elsewhere' };
      const [server, state, id] = await claimedOnly(remover);
      const deps = await depsFor(server.url, state);
      const ledger: Ledger = {
        ...deps.ledger,
        lifeOf: async (owner) => {
          if (owner.host !== 'elsewhere') return deps.ledger.lifeOf(owner);
          await deps.ledger.remove(id);
          return life;
        },
      };
      const ran = await run({ ...deps, ledger }, orderOf({ key: 'k' }));
      expect(ran).toMatchObject({ exit: 0, job: { record: { attempts: 1 } } });
      expect(server.created).toBe(1);
    },
  );

  it('also puts a job with a key in doubt if it follows a refusal', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(says({ error: { message: 'no' } }, 422));
    const deps = await depsFor(server.url, state);
    const { job } = await run(deps, orderOf({ key: 'k' }));
    await deps.ledger.claim(`send.${job?.id ?? ''}.2`, 'damaged');
    expect(await run(await depsFor(server.url, state), orderOf({ key: 'k' }))).toMatchObject({ exit: 7 });
    expect(server.requests).toHaveLength(1);
  });
});

describe('interruptions', () => {
  it('lead to exit 130 before a connection is made, and nothing is sent', async () => {
    const server = await tcpServer(() => deps.soft.abort('SIGINT'));
    const deps = await depsFor(`https://127.0.0.1:${server.port}`, freshFolder());
    expect(await run(deps)).toMatchObject({
      exit: 130,
      error: { charged: 'no', retry: 'safe' },
      job: { state: 'prepared' },
    });
    expect(server.connections).toBe(1);
  });

  it('lead to exit 130 after the connection is made and before the attempt is recorded, and nothing is recorded', async () => {
    const deps = await depsFor('http://127.0.0.1:9', freshFolder());
    const send: Order['send'] = async (_, __, options) => {
      deps.soft.abort('SIGINT');
      await options.onConnected?.();
      throw new Error('it was sent');
    };
    expect(await run(deps, orderOf({ send }))).toMatchObject({
      exit: 130,
      error: { charged: 'no' },
      job: { state: 'prepared', record: { attempts: 0 } },
    });
  });

  it('lead to exit 143 if SIGTERM arrives in a pause between attempts', async () => {
    const server = await httpServer(says({}, 429));
    const deps = await depsFor(server.url, freshFolder());
    deps.clock.onSleep = () => deps.soft.abort('SIGTERM');
    expect(await run(deps)).toMatchObject({
      exit: 143,
      error: { charged: 'no' },
      job: { state: 'prepared' },
    });
    expect(server.requests).toHaveLength(1);
  });

  it('take effect only after the response if a response is pending', async () => {
    const server = await httpServer();
    const deps = await depsFor(server.url, freshFolder());
    const later: Answer = (_, response) => {
      deps.soft.abort('SIGINT');
      setImmediate(() => says({ task_id: server.create() })({} as never, response));
    };
    server.answers.push(later);
    expect(await run(deps)).toMatchObject({ exit: 0, job: { handle: 'task_0001' } });
  });

  it('abandon the response and put the job in doubt if they are repeated', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    server.answers.push(() => {
      deps.soft.abort('SIGINT');
      deps.hard.abort('SIGINT');
    });
    expect(await run(deps)).toMatchObject({ exit: 7, job: { state: 'unknown' } });
    expect((await run(await depsFor(server.url, state))).exit).toBe(7);
    expect(server.requests).toHaveLength(1);
  });
});
