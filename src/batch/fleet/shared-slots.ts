import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import { isLive, type FleetState } from './fleet-state.ts';

/** The slots of a batch, as one process uses them. */
export interface SharedSlotsOptions {
  batch: string;
  fleet: FleetState;
  clock: Pick<Clock, 'sleep'>;
  /** Called with the error before a retry. */
  note: (text: string) => void;
}

/** The pause before returning a slot is retried, ms. */
const returnAgainMs = 1000;

/**
 * The slots of a batch over all machines: one row for each task that may be in progress at the gateway. A slot belongs to
 * a process's lease, and is free when the lease has ended.
 */
export class SharedSlots {
  readonly #options: SharedSlotsOptions;
  /** The numbers of this process's slots. */
  readonly #own = new Set<number>();
  /** Statements run one by one, so that `#own` is exact at each. */
  #last: Promise<unknown> = Promise.resolve();
  readonly #closing = new AbortController();
  #isReturning = false;

  constructor(options: SharedSlotsOptions) {
    this.#options = options;
  }

  /** Takes a slot if one is free; also returns how many tasks the gateway allows now. @throws MgwError('unreachable'). */
  async take(concurrency: number): Promise<{ isTaken: boolean; most: number }> {
    const [found] = await this.#ask<{ number: number | null; most: number }>(
      take,
      [concurrency],
      ([slot]) => {
        if (slot?.number != null) this.#own.add(slot.number);
      },
    );
    return { isTaken: found?.number != null, most: found?.most ?? concurrency };
  }

  /** Returns one of this process's slots. */
  leave(): void {
    const [number] = this.#own;
    if (number === undefined) return;
    this.#own.delete(number);
    void this.#return();
  }

  /** Returns all slots. */
  async close(): Promise<void> {
    this.#own.clear();
    this.#closing.abort();
    // If it fails, they are free when the lease ends.
    await this.#ask(free).catch(() => undefined);
  }

  // Runs a statement with the batch, the lease and the slots of this process, after the one before.
  #ask<T extends Record<string, unknown>>(
    text: string,
    more: readonly unknown[] = [],
    then?: (rows: T[]) => void,
  ): Promise<T[]> {
    const { batch, fleet } = this.#options;
    const next = this.#last.then(async () => {
      const rows = await fleet.ask<T>(text, [batch, await fleet.lease(), [...this.#own], ...more]);
      then?.(rows);
      return rows;
    });
    this.#last = next.catch(() => undefined);
    return next;
  }

  // Returns every slot that this process does not use, until the database has recorded it.
  async #return(): Promise<void> {
    const { clock, note } = this.#options;
    try {
      await this.#ask(free);
    } catch (error) {
      note(`A slot of the batch could not be returned: ${messageOf(error)} It is tried again.`);
      if (this.#isReturning) return;
      this.#isReturning = true;
      await clock.sleep(returnAgainMs, this.#closing.signal).catch(() => undefined);
      this.#isReturning = false;
      if (!this.#closing.signal.aborted) await this.#return();
    }
  }
}

// A slot that this process has without knowing it comes first: the response of an earlier statement was lost. Else a free
// slot up to the limit: the taker locks it, and others pass it over. Under the lock, the slot must still have the lease
// that was found to have ended. A lease that has ended takes nothing.
const take = `
with pace as (select least(most, $4::int) as most from {paces} where batch = $1),
  alive as (select from {leases} where id = $2::bigint and until > clock_timestamp()),
  mine as (
    select number from {places}
    where batch = $1 and lease = $2::bigint and number <> all($3::int[]) limit 1),
  held as (select count(*) as count from {places} place where batch = $1 and ${isLive('place')}),
  ended as materialized (select number, lease from {places} place where batch = $1 and not ${isLive('place')}),
  free as (
    select place.number from {places} place join ended on ended.number = place.number, pace, held
    where batch = $1 and place.number <= most and held.count < most and place.number <> all($3::int[])
      and place.lease is not distinct from ended.lease
      and not exists (select from mine) and exists (select from alive)
    order by place.number limit 1 for update of place skip locked
  ),
  taken as (
    update {places} set lease = $2::bigint
    where batch = $1 and number in (select number from mine union all select number from free) returning number
  )
select {paces}.most, (select number from taken) as number from {paces} where batch = $1`;

const free = `update {places} set lease = null where batch = $1 and lease = $2::bigint and number <> all($3::int[])`;
