import { afterEach, expect, it } from 'vitest';
import { SharedPace, type SharedPaceOptions } from '../../../src/batch/fleet/shared-pace.ts';
import { systemClock } from '../../../src/clock.ts';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import { hasPgBouncer } from '../../support/pgbouncer.ts';
import { describeFleet } from './place.ts';
import { openDatabase, processIn } from './processes.ts';

const never = new AbortController().signal;

// Connects through a pool if PgBouncer is installed.
describeFleet('on PostgreSQL,', { isPooled: hasPgBouncer }, (place) => {
  const open: SharedPace[] = [];
  const notes: string[] = [];
  afterEach(async () => {
    for (const one of open.splice(0)) await one.close();
    notes.length = 0;
  });

  // Each process has its own connections.
  async function machine(options: Partial<SharedPaceOptions> = {}): Promise<SharedPace> {
    const one = await SharedPace.open({
      batch: 'clips',
      fleet: await processIn(await openDatabase(place.url())),
      concurrency: 4,
      intervalMs: 5000,
      clock: systemClock,
      note: (text) => notes.push(text),
      ...options,
    });
    open.push(one);
    return one;
  }

  async function enter(one: SharedPace, times: number): Promise<void> {
    for (let at = 0; at < times; at += 1) await one.enter(never);
  }

  async function heldSlots(): Promise<number> {
    return Number(
      await place.query(
        `select count(*) from mgw.places join mgw.leases on leases.id = lease and until > clock_timestamp()`,
      ),
    );
  }

  // Whether no slot becomes free within 400 ms.
  async function isFull(one: SharedPace): Promise<boolean> {
    const stop = new AbortController();
    const waiting = one.enter(stop.signal).then(
      () => false,
      () => true,
    );
    await systemClock.sleep(400);
    stop.abort(new Error('enough'));
    return waiting;
  }

  it('a shared pace limits the total slots of all processes, and passes a free slot to another process', async () => {
    const [one, other] = await Promise.all([machine(), machine()]);
    await Promise.all([enter(one, 2), enter(other, 2)]);
    expect(await isFull(one)).toBe(true);
    const waiting = one.enter(never);
    other.leave();
    await waiting;
    expect(await heldSlots()).toBe(4);
  });

  it('a shared pace never exceeds its limit if many processes request slots at once', async () => {
    const machines = await Promise.all([1, 2, 3, 4, 5, 6].map(() => machine()));
    const stop = new AbortController();
    let entered = 0;
    const all = machines.flatMap((one) =>
      [1, 2].map(() => one.enter(stop.signal).then(() => (entered += 1))),
    );
    await expect.poll(() => entered).toBeGreaterThanOrEqual(4);
    stop.abort(new Error('enough'));
    await Promise.allSettled(all);
    expect(entered).toBe(4);
    expect(await heldSlots()).toBe(4);
  });

  it("a shared pace frees a process's slots once the process's lease has ended, and refuses this process another slot", async () => {
    const fleet = await processIn(await openDatabase(place.url()));
    const deadMachine = await machine({ fleet });
    await enter(deadMachine, 2);
    const other = await machine();
    await fleet.die();
    expect(await isFull(deadMachine)).toBe(true);
    await enter(other, 4);
    await deadMachine.close();
    expect(await heldSlots()).toBe(4);
  });

  it('a shared pace is halved once for all processes after a 429, and grows again as submissions are accepted', async () => {
    const limits: number[] = [];
    const [one, other] = await Promise.all([machine(), machine({ onLimit: (limit) => limits.push(limit) })]);
    await Promise.all([enter(one, 2), enter(other, 2)]);
    const [first, second] = await Promise.all([one.waitToSubmit(never), other.waitToSubmit(never)]);
    one.reportLimited(first);
    other.reportLimited(second);
    await Promise.all([one.waitToSubmit(never), other.waitToSubmit(never)]);
    expect(other.limit).toBe(2);
    for (let at = 0; at < 5; at += 1) {
      other.reportAccepted();
      await other.waitToSubmit(never);
    }
    expect(limits).toEqual([2, 3, 4]);
  });

  it('a shared pace pauses all processes if the gateway delays one of them', async () => {
    const [one, other] = await Promise.all([machine(), machine()]);
    const began = systemClock.monotonic();
    one.reportLimited(await one.waitToSubmit(never), 700);
    await one.waitToSubmit(never);
    await other.waitToSubmit(never);
    expect(systemClock.monotonic() - began).toBeGreaterThanOrEqual(690);
  });

  it('a shared pace limits the submissions of all processes together to the configured number per minute', async () => {
    const machines = await Promise.all([1, 2].map(() => machine({ perMinute: 600 })));
    const began = systemClock.monotonic();
    await Promise.all(machines.flatMap((one) => [1, 2, 3, 4].map(() => one.waitToSubmit(never))));
    expect(systemClock.monotonic() - began).toBeGreaterThanOrEqual(690);
  });

  it('a process reserves a send window for one row at a time, because the window of a row that gives up is lost', async () => {
    const fleet = await processIn(await openDatabase(place.url()));
    let reserved = 0;
    const query: typeof fleet.query = (text, values) => {
      if (text.includes('set next_turn')) reserved += 1;
      return fleet.query(text, values);
    };
    const one = await machine({ fleet: { ...fleet, query }, perMinute: 1 });
    await one.waitToSubmit(never);
    const stop = new AbortController();
    const waiting = [1, 2, 3].map(() => one.waitToSubmit(stop.signal));
    await expect.poll(() => reserved).toBe(2);
    stop.abort(new Error('enough'));
    for (const each of await Promise.allSettled(waiting)) expect(each.status).toBe('rejected');
    expect(reserved).toBe(2);
  });

  it('a shared pace releases a slot once the database responds again', async () => {
    const proxy = await CuttingProxy.open(place.port);
    const fleet = await processIn(await openDatabase(place.url('connect_timeout=1', proxy.port)));
    const one = await machine({ fleet });
    await enter(one, 4);
    proxy.down();
    one.leave();
    await expect.poll(() => notes.length).toBeGreaterThan(0);
    proxy.up();
    await expect.poll(heldSlots).toBe(3);
    await enter(await machine(), 1);
  });
});
