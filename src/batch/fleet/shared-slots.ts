import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import { isLive, type FleetState } from './fleet-state.ts';

/** Options for {@link SharedSlots}. */
export interface SharedSlotsOptions {
  batch: string;
  /** The number of slots. */
  concurrency: number;
  fleet: FleetState;
  clock: Pick<Clock, 'sleep'>;
  /** Called with the error message before a retry. */
  note: (text: string) => void;
}

/** The pause before retrying to release a slot, in ms. */
const retryReturnMs = 1000;

/**
 * A batch's slots across all machines: one database row for each task that may be in progress at the gateway. A slot
 * belongs to a process's lease, and becomes free when the lease ends.
 */
export class SharedSlots {
  readonly #options: SharedSlotsOptions;
  /** The numbers that identify this process's slots. */
  readonly #slotNumbers = new Set<number>();
  readonly #closing = new AbortController();
  #isReturning = false;
  // Runs one statement at a time, so that `#slotNumbers` is exact for each statement. Each statement also releases the
  // slots that this process no longer uses.
  readonly #exchange: (request: {
    max: number;
  }) => Promise<{ slotCount: number; maxSlots: number } | undefined>;

  constructor(options: SharedSlotsOptions) {
    this.#options = options;
    this.#exchange = options.fleet.combine((requests: { max: number }[]) => this.#exchangeAll(requests));
  }

  /**
   * Acquires up to `max` free slots. Also returns the current limit on tasks in progress.
   * @throws MgwError('unreachable').
   */
  async acquire(max: number): Promise<{ slotCount: number; maxSlots: number }> {
    return (await this.#exchange({ max })) ?? { slotCount: 0, maxSlots: this.#options.concurrency };
  }

  /** Releases one of this process's slots. */
  leave(): void {
    const [number] = this.#slotNumbers;
    if (number === undefined) return;
    this.#slotNumbers.delete(number);
    void this.#return();
  }

  /** Releases all slots. */
  async close(): Promise<void> {
    this.#slotNumbers.clear();
    this.#closing.abort();
    // If this fails, the slots become free when the lease ends.
    await this.#exchange({ max: 0 }).catch(() => undefined);
  }

  async #exchangeAll(
    requests: { max: number }[],
  ): Promise<Map<{ max: number }, { slotCount: number; maxSlots: number }>> {
    const { batch, fleet, concurrency } = this.#options;
    const slotNumbers = [...this.#slotNumbers];
    const requestedCount = Math.min(
      concurrency,
      requests.reduce((sum, { max }) => sum + max, 0),
    );
    const [row] = await fleet.query<{ numbers: number[]; most: number }>(exchangeSlots, [
      ...[batch, await fleet.lease(), slotNumbers, concurrency, requestedCount],
    ]);
    const { numbers = [], most: maxSlots = concurrency } = row ?? {};
    for (const number of numbers) this.#slotNumbers.add(number);
    let remaining = numbers.length;
    return new Map(
      requests.map((request) => {
        const slotCount = Math.min(remaining, request.max);
        remaining -= slotCount;
        return [request, { slotCount, maxSlots }];
      }),
    );
  }

  // Releases every slot that this process does not use. Retries until the database has recorded the release.
  async #return(): Promise<void> {
    const { clock, note } = this.#options;
    try {
      await this.#exchange({ max: 0 });
    } catch (error) {
      if (this.#isReturning) return;
      this.#isReturning = true;
      note(`Could not release a slot of the batch: ${messageOf(error)} Retrying.`);
      await clock.sleep(retryReturnMs, this.#closing.signal).catch(() => undefined);
      this.#isReturning = false;
      if (!this.#closing.signal.aborted) await this.#return();
    }
  }
}

// Slots that this process holds but does not use come first: their tasks have ended, or an earlier statement's response
// was lost. The slots that the process does not need are released. Free slots follow, up to the limit. The statement
// locks the free slots, and other processes skip locked slots. A free slot must still have its expired lease after it
// is locked. A process whose lease has ended acquires no slots.
const exchangeSlots = `
with pace as (select least(most, $4::int) as most from {paces} where batch = $1),
  mine as (
    select number, row_number() over (order by number) as place from {places}
    where batch = $1 and lease = $2::bigint and number <> all($3::int[])),
  ended as materialized (select number, lease from {places} place where batch = $1 and not ${isLive('place')}),
  free as (
    select place.number from {places} place join ended on ended.number = place.number
    where batch = $1 and place.number <= (select most from pace) and place.number <> all($3::int[])
      and place.lease is not distinct from ended.lease
      and exists (select from {leases} where id = $2::bigint and until > clock_timestamp())
    order by place.number
    limit (select greatest(0, least($5::int - (select count(*) from mine),
      (select most from pace) - (select count(*) from {places} place where batch = $1 and ${isLive('place')}))))
    for update of place skip locked
  ),
  changed as (
    update {places} set lease = case when number in (select number from mine where place > $5::int) then null else $2::bigint end
    where batch = $1 and number in (select number from mine union all select number from free) returning number, lease
  )
select {paces}.most, array(select number from changed where lease is not null) as numbers from {paces} where batch = $1`;
