import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Owner } from '../../../src/job.ts';
import { Database } from '../../../src/ledger/postgres/database.ts';
import { LeaseKeeper } from '../../../src/ledger/postgres/lease-keeper.ts';
import { currentOwner } from '../../../src/ledger/owner.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { deadOwner } from '../../jobs/harness.ts';

const leaseMs = 30_000;
const afar = (lease: string): Owner => ({ pid: 7, start: '1', host: 'afar', lease, instance: `i${lease}` });

/** Opens a lease keeper on a database that responds immediately and records its statements. */
function open(): {
  keeper: LeaseKeeper;
  statements: string[];
  clock: { now: number; monotonic: number };
  /** The response to each kind of statement, such as `INSERT`. A test can replace a response. */
  answers: Record<string, (values: readonly unknown[]) => object[] | Promise<object[]>>;
} {
  const [database, statements] = [new Database(parseStateUrl('postgres://127.0.0.1/d')), [] as string[]];
  const answers: ReturnType<typeof open>['answers'] = {
    INSERT: () => [{ id: '1' }],
    UPDATE: () => [{ id: '1' }],
    SELECT: () => [{ id: '2', instance: 'i2' }],
    DELETE: () => [],
  };
  vi.spyOn(database, 'query').mockImplementation((text, values = []) => {
    const [kind = ''] = text.split(' ');
    statements.push(kind);
    return Promise.resolve().then(() => (answers[kind]?.(values) ?? []) as never[]);
  });
  const clock = { now: 0, monotonic: 0 };
  const times = { now: () => clock.now, monotonic: () => clock.monotonic };
  return { keeper: new LeaseKeeper(database, times), statements, clock, answers };
}

describe('checking whether processes are alive', () => {
  it('needs two statements for any number of processes checked at once', async () => {
    const { keeper, statements } = open();
    const owners = [afar('2'), afar('3'), { ...afar('9'), instance: 'i2' }];
    const lives = await Promise.all([keeper.livesOf(owners), keeper.livesOf([afar('4')])]);
    expect(owners.map((owner) => lives[0](owner))).toEqual(['alive', 'dead', 'dead']);
    expect(lives[1](afar('4'))).toBe('dead');
    expect(statements).toEqual(['DELETE', 'SELECT']);
  });

  it('ends the lease of a process proven dead on this machine, and of no other', async () => {
    const { keeper, answers } = open();
    const deletions: unknown[] = [];
    answers['DELETE'] = (values) => (deletions.push(values), []);
    const dead: Owner = { ...deadOwner(), lease: '5', instance: 'i5' };
    expect((await keeper.livesOf([dead, afar('2')]))(dead)).toBe('dead');
    expect(deletions).toEqual([[['5', '2'], ['5']]]);
  });

  it('needs no statement for the current process or for processes without a lease', async () => {
    const { keeper, statements, clock } = open();
    const { owner } = await keeper.lease();
    statements.length = 0;
    const { pid, start, host } = currentOwner();
    const [here, elsewhere, dead] = [{ pid, start, host }, { pid: 7, start: '1', host: 'afar' }, deadOwner()];
    const lifeOf = await keeper.livesOf([owner, here, elsewhere, dead]);
    expect([owner, here, elsewhere, dead, afar('2')].map(lifeOf)).toEqual([
      ...['alive', 'unknown', 'unknown', 'dead', 'unknown'],
    ]);
    expect(statements).toEqual([]);
    for (const other of [
      { ...owner, instance: 'other' },
      { ...owner, lease: '9' },
    ])
      expect((await keeper.livesOf([other]))(other)).toBe('dead');
    // Other processes may have declared this process dead.
    clock.monotonic = leaseMs;
    expect((await keeper.livesOf([owner]))(owner)).toBe('dead');
    await keeper.close();
  });
});

describe('a lease', () => {
  afterEach(() => vi.useRealTimers());

  it('is renewed every quarter of its duration, even after a failed renewal', async () => {
    vi.useFakeTimers();
    const { keeper, statements, clock, answers } = open();
    const lease = await keeper.lease();
    answers['UPDATE'] = () => {
      throw new Error('gone');
    };
    clock.monotonic = leaseMs / 4;
    await vi.advanceTimersByTimeAsync(leaseMs / 4);
    expect(statements).toEqual(['INSERT', 'UPDATE']);
    clock.monotonic = 0.79 * leaseMs;
    expect(() => lease.assertLease()).not.toThrow();
    clock.monotonic = 0.81 * leaseMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
    // The lease's time is counted from before the renewal was sent.
    answers['UPDATE'] = () => {
      clock.monotonic = 1.5 * leaseMs;
      return [{ id: '1' }];
    };
    await vi.advanceTimersByTimeAsync(leaseMs / 4);
    expect(statements).toEqual(['INSERT', 'UPDATE', 'UPDATE']);
    expect(() => lease.assertLease()).not.toThrow();
    clock.monotonic = 1.62 * leaseMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
    await keeper.close();
  });

  it('is no longer renewed once it has ended or its keeper is closed', async () => {
    vi.useFakeTimers();
    const { keeper, statements, answers } = open();
    await keeper.lease();
    answers['UPDATE'] = () => [];
    await vi.advanceTimersByTimeAsync(leaseMs);
    expect(statements).toEqual(['INSERT', 'UPDATE']);
    const closed = open();
    const taking = closed.keeper.lease();
    await closed.keeper.close();
    await taking;
    await vi.advanceTimersByTimeAsync(leaseMs);
    expect(closed.statements).toEqual(['INSERT']);
    await keeper.close();
    expect(statements).toEqual(['INSERT', 'UPDATE', 'DELETE']);
    await keeper.close();
    expect(statements).toHaveLength(3);
    const renewed = open();
    await renewed.keeper.lease();
    await renewed.keeper.close();
    await vi.advanceTimersByTimeAsync(leaseMs);
    expect(renewed.statements).toEqual(['INSERT', 'DELETE']);
  });

  it('is replaced once it has ended, and only the new lease is renewed', async () => {
    vi.useFakeTimers();
    const { keeper, statements, clock } = open();
    await keeper.lease();
    clock.now = leaseMs;
    await keeper.lease();
    await vi.advanceTimersByTimeAsync(leaseMs / 4);
    expect(statements).toEqual(['INSERT', 'INSERT', 'UPDATE']);
    await keeper.close();
  });

  it('is replaced even while its renewal is in progress, and only the new lease is renewed afterwards', async () => {
    vi.useFakeTimers();
    const { keeper, clock, answers } = open();
    const renewed: unknown[] = [];
    let finish: (rows: object[]) => void = () => undefined;
    const renewal = new Promise<object[]>((resolve) => (finish = resolve));
    answers['UPDATE'] = ([id]) => (renewed.push(id) > 1 ? [{ id }] : renewal);
    await keeper.lease();
    await vi.advanceTimersByTimeAsync(leaseMs / 4);
    clock.now = leaseMs;
    answers['INSERT'] = () => [{ id: '2' }];
    await keeper.lease();
    finish([{ id: '1' }]);
    await vi.advanceTimersByTimeAsync(leaseMs / 4);
    expect(renewed).toEqual(['1', '2']);
    await keeper.close();
  });

  it.each<[string, { now: number; monotonic: number }]>([
    ['the machine slept', { now: 1, monotonic: 0 }],
    ['the time of day was set back', { now: -5, monotonic: 1 }],
  ])('is trusted only for four fifths of its duration, even if %s', async (_, passed) => {
    const { keeper, statements, clock } = open();
    const [lease, same] = await Promise.all([keeper.lease(), keeper.lease()]);
    expect(same).toBe(lease);
    const pass = (ms: number): unknown =>
      Object.assign(clock, { now: passed.now * ms, monotonic: passed.monotonic * ms });
    pass(leaseMs * 0.8 - 1);
    expect(await keeper.lease()).toBe(lease);
    pass(leaseMs * 0.8);
    const error = expect.objectContaining({ code: 'unreachable', retry: 'safe', lacks: [] }) as Error;
    expect(() => lease.assertLease()).toThrow(error);
    expect(await keeper.lease()).not.toBe(lease);
    expect(statements).toEqual(['INSERT', 'INSERT']);
    await keeper.close();
  });

  it('is valid from before its request, and is acquired again if the response arrives too late', async () => {
    const { keeper, statements, clock, answers } = open();
    const delays = [0.8 * leaseMs, 0.3 * leaseMs];
    answers['INSERT'] = () => {
      clock.monotonic += delays.shift() ?? 0;
      return [{ id: '1' }];
    };
    const lease = await keeper.lease();
    expect(statements).toEqual(['INSERT', 'INSERT']);
    clock.monotonic = 1.59 * leaseMs;
    expect(() => lease.assertLease()).not.toThrow();
    clock.monotonic = 1.61 * leaseMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
    await keeper.close();
  });

  it('does not keep its process running, and causes no error if it cannot be released', async () => {
    const { keeper, answers } = open();
    const before = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    await keeper.lease();
    expect(process.getActiveResourcesInfo().filter((name) => name === 'Timeout')).toHaveLength(before);
    answers['DELETE'] = () => {
      throw new Error('gone');
    };
    await keeper.close();
  });

  it('is never uncertain if it belongs to a process on this machine or to no process', async () => {
    const { keeper, statements } = open();
    const { pid, start, host } = currentOwner();
    for (const owner of [
      { pid: 7, start: '1', host: 'afar' },
      { ...deadOwner(), lease: '2', instance: 'i2' },
      { pid, start, host, lease: '2' },
    ])
      expect(await keeper.uncertainLease(owner)).toBeUndefined();
    expect(statements).toEqual([]);
  });
});
