import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import type { Order } from '../../src/jobs/order.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { depsFor, jobsOf, orderOf, run } from './harness.ts';

const alive = { owner: currentOwner() };
const exists = new MgwError('output_exists', 'boat.mp4 exists');

it("a run delivers its key's job if another process has saved the result in the meantime", async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const other = await depsFor(server.url, state, alive);
  const checkBeforePaying = async (): Promise<void> => {
    await run(other, orderOf({ key: 'boat' }));
    throw exists;
  };
  const ran = await run(await depsFor(server.url, state, alive), orderOf({ key: 'boat', checkBeforePaying }));
  expect(ran).toMatchObject({ exit: 0, isResumed: true });
  expect(server.requests).toHaveLength(1);
  expect(await jobsOf(other.ledger)).toHaveLength(1);
});

it.each([
  ['before this run checks the output', true],
  ['after this run has checked the output', false],
])(
  'a run joins another run with the same output, and nothing more is paid: the other run saves it %s',
  async (_, isSeen) => {
    const [server, state] = [await httpServer(), freshFolder()];
    const other = await depsFor(server.url, state, alive);
    const goal = { command: 'submit', ask: 'file', output: '/videos/boat.mp4' } as const;
    const checkBeforePaying = async (): Promise<void> => {
      await (await run(other, orderOf({ goal }))).delivered?.();
      if (isSeen) throw exists;
    };
    const ran = await run(await depsFor(server.url, state, alive), orderOf({ goal, checkBeforePaying }));
    const [job] = await jobsOf(other.ledger);
    expect(ran).toMatchObject({ exit: 0, isResumed: true, job: { id: job?.id } });
    expect(server.requests).toHaveLength(1);
    await ran.delivered?.();
    expect(await run(other, orderOf({ goal }))).toMatchObject({ exit: 0, isResumed: false });
  },
);

it.each([
  ['saved after the command began', 1, undefined, 1],
  ['saved before the command began', -1, undefined, 2],
  ['of another variant', 1, 'wav', 2],
])(
  'a run reuses a result that another run saved to the same output only if the result is of the same variant and was saved after the command began: %s',
  async (_, ms, variant, requests) => {
    const [server, state] = [await httpServer(), freshFolder()];
    const goal = { command: 'submit', ask: 'file', output: '/videos/boat.mp4' } as const;
    const other = await depsFor(server.url, state, alive);
    await (await run(other, orderOf({ goal, variant }))).delivered?.();
    const startedAt = other.clock.now() - ms;
    const ran = await run(await depsFor(server.url, state, { ...alive, startedAt }), orderOf({ goal }));
    expect(ran).toMatchObject({ exit: 0, isResumed: requests === 1 });
    expect(server.requests).toHaveLength(requests);
  },
);

it.each([
  ['is still running', false],
  ['has saved the file', true],
])(
  'a run joins another run that saves to the same file through a symbolic link and that %s',
  async (_, isDelivered) => {
    const [server, state] = [await httpServer(), freshFolder()];
    mkdirSync(join(state, 'real'));
    symlinkSync('real', join(state, 'link'));
    const to = (folder: string): Partial<Order> => ({
      goal: { command: 'submit', ask: 'file', output: join(state, folder, 'boat.mp4') },
    });
    const other = await depsFor(server.url, state, alive);
    const deps = await depsFor(server.url, state, { ...alive, startedAt: other.clock.now() - 1 });
    const first = await run(other, orderOf(to('real')));
    if (isDelivered) await first.delivered?.();
    expect(await run(deps, orderOf(to('link')))).toMatchObject({ exit: 0, isResumed: true });
    expect([server.created, deps.notes]).toEqual([1, []]);
  },
);

it('a run is refused without a record if another file exists at its output', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state);
  const order = orderOf({ key: 'boat', checkBeforePaying: () => Promise.reject(exists) });
  expect(await run(deps, order)).toMatchObject({ exit: 10, error: { code: 'output_exists' } });
  expect(server.requests).toHaveLength(0);
  expect(await jobsOf(deps.ledger)).toEqual([]);
});

it('a run does not join another run with the same output and a different key', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const other = await depsFor(server.url, state, alive);
  const goal = { command: 'submit', ask: 'file', output: '/videos/boat.mp4' } as const;
  const checkBeforePaying = async (): Promise<void> => {
    await (await run(other, orderOf({ goal, key: 'one' }))).delivered?.();
    throw exists;
  };
  const order = orderOf({ goal, key: 'two', checkBeforePaying });
  expect(await run(await depsFor(server.url, state, alive), order)).toMatchObject({
    exit: 10,
    error: { code: 'output_exists' },
  });
  expect(server.requests).toHaveLength(1);
});

it('a run that joins an unaccepted run does not check the output, because the other run uses it', async () => {
  const [server, state] = [await httpServer(), freshFolder()];
  const goal = { command: 'submit', ask: 'file', output: '/videos/boat.mp4' } as const;
  const [first, second] = [await depsFor(server.url, state, alive), await depsFor(server.url, state, alive)];
  const joined: number[] = [];
  first.priceOf = async () => {
    const order = orderOf({ goal, checkBeforePaying: () => Promise.reject(exists) });
    joined.push((await run(second, order)).exit);
    return { subject: 'a test' };
  };
  expect([(await run(first, orderOf({ goal }))).exit, joined]).toEqual([0, [0]]);
  expect(server.created).toBe(1);
});
