import { messageOf } from '../../errors.ts';
import {
  CallQueue,
  type RateLimiter,
  gapOf,
  pollLimiter,
  sendWindowAt,
  type Pace,
  type PaceOptions,
  type SendWindow,
} from '../pace.ts';
import { isLive, type Query } from './fleet-state.ts';
import { SharedSlots, type SharedSlotsOptions } from './shared-slots.ts';

/** Options for a pace that several machines share. */
export type SharedPaceOptions = PaceOptions & SharedSlotsOptions;

type SendWindowRow = Record<'wait' | 'held' | 'epoch' | 'most', number>;

// The minimum and maximum interval between checks for a free slot, in ms. Polling is needed because a connection
// pooler does not forward notifications.
const [minCheckMs, maxCheckMs] = [100, 1000];

/**
 * The pace of a batch across all machines that run it, measured by the database's clock. One database row per batch
 * stores the limit, the delay that the gateway requested, and the time of the next submission. Each process limits its
 * own polls.
 */
export class SharedPace implements Pace {
  readonly isShared = true;
  readonly #options: SharedPaceOptions;
  readonly #query: Query;
  readonly #submissions = new CallQueue();
  readonly #polls: RateLimiter;
  readonly #slots: SharedSlots;
  readonly #readPace: () => Promise<SendWindowRow | undefined>;
  /** The writes that have not finished. */
  readonly #writes = new Set<Promise<void>>();
  #limit: number;
  /** The end of the delay that the gateway requested, in monotonic ms. */
  #delayedUntil = 0;

  private constructor(options: SharedPaceOptions) {
    this.#options = options;
    this.#query = options.fleet.query;
    this.#limit = options.concurrency;
    this.#slots = new SharedSlots(options);
    this.#polls = pollLimiter(options);
    const readOnce = options.fleet.combine(async () => {
      const [row] = await this.#query<SendWindowRow>(selectPace, [options.batch]);
      return new Map(row && [[undefined, row]]);
    });
    this.#readPace = () => readOnce(undefined);
  }

  /** Opens a batch's pace. @throws MgwError('unreachable'). */
  static async open(options: SharedPaceOptions): Promise<SharedPace> {
    const { batch, concurrency } = options;
    const { query } = options.fleet;
    await query(resetPace, [batch, concurrency]);
    await query(
      `insert into {places} (batch, number) select $1, n from generate_series(1, $2::int) n on conflict do nothing`,
      [batch, concurrency],
    );
    return new SharedPace(options);
  }

  get limit(): number {
    return this.#limit;
  }

  get delayMs(): number {
    return Math.max(0, this.#delayedUntil - this.#options.clock.monotonic());
  }

  async enter(signal: AbortSignal, max = 1): Promise<number> {
    for (let checkMs = minCheckMs; ; checkMs = Math.min(maxCheckMs, checkMs * 1.5)) {
      signal.throwIfAborted();
      const { slotCount, maxSlots } = await this.#slots.acquire(max);
      this.#noteLimit(maxSlots);
      if (slotCount > 0) return slotCount;
      await this.#options.clock.sleep(checkMs * (0.5 + Math.random() / 2), signal);
    }
  }

  leave(): void {
    this.#slots.leave();
  }

  waitToSubmit(signal: AbortSignal): Promise<SendWindow> {
    // A process reserves one window at a time, because no other call can use the window of a row that gave up.
    if (this.#options.perMinute === undefined) return this.#nextWindow(signal);
    return this.#submissions.pass(signal, () => this.#nextWindow(signal));
  }

  async #nextWindow(signal: AbortSignal): Promise<SendWindow> {
    const { clock } = this.#options;
    await Promise.all(this.#writes);
    for (;;) {
      while (this.delayMs > 0) await clock.sleep(this.delayMs, signal);
      const requestedAt = clock.monotonic();
      const window = await this.#reserve(true);
      if (window.held > 0) continue;
      const at = requestedAt + Math.max(0, window.wait);
      if (window.wait < 1) return sendWindowAt(at, window.epoch, this.#options);
      await clock.sleep(window.wait, signal);
      const current = await this.#reserve(false);
      if (current.held <= 0) return sendWindowAt(at, current.epoch, this.#options);
    }
  }

  waitToPoll(signal: AbortSignal): Promise<unknown> {
    return this.#polls.pass(signal);
  }

  // Records nothing if the limit was not lowered.
  reportAccepted(): void {
    const { concurrency, batch } = this.#options;
    if (this.#limit >= concurrency) return;
    this.#write(() => this.#query(raiseLimit, [batch, concurrency]));
  }

  reportLimited({ epoch }: SendWindow, retryAfterMs = 0): void {
    const { clock, batch } = this.#options;
    this.#delayedUntil = Math.max(this.#delayedUntil, clock.monotonic() + retryAfterMs);
    this.#write(() => this.#query(lowerLimit, [batch, epoch, retryAfterMs]));
  }

  delayPolls(ms: number): void {
    this.#polls.delay(ms);
  }

  async close(): Promise<void> {
    await Promise.all(this.#writes);
    await this.#slots.close();
  }

  async #reserve(isReserved: boolean): Promise<SendWindowRow> {
    const { batch, perMinute } = this.#options;
    const gapMs = isReserved ? gapOf(perMinute) : 0;
    const row =
      gapMs > 0
        ? (await this.#query<SendWindowRow>(reserveWindow, [batch, gapMs]))[0]
        : await this.#readPace();
    const { wait = 0, held = 0, epoch = 0, most = this.#limit } = row ?? {};
    if (held > 0) this.#delayedUntil = this.#options.clock.monotonic() + held;
    this.#noteLimit(most);
    return { wait, held, epoch, most };
  }

  #noteLimit(maxTasks: number): void {
    const limit = Math.min(maxTasks, this.#options.concurrency);
    if (limit === this.#limit) return;
    this.#limit = limit;
    this.#options.onLimit?.(limit);
  }

  // A write that fails is not repeated, because the gateway's next response corrects the pace.
  #write(statement: () => Promise<unknown>): void {
    const write = statement().then(
      () => undefined,
      (error: unknown) => this.#options.note(`Could not record the pace of the batch: ${messageOf(error)}`),
    );
    this.#writes.add(write);
    void write.finally(() => this.#writes.delete(write));
  }
}

const afterMs = (parameter: string): string => `clock_timestamp() + ${parameter} * interval '1 millisecond'`;

// If no process has a slot, resets the limit, which an earlier run may have lowered.
const resetPace = `
insert into {paces} as pace (batch, most) values ($1, $2)
on conflict (batch) do update set most = excluded.most, accepted = 0
where not exists (select from {places} place where place.batch = $1 and ${isLive('place')})`;

const milliseconds = (time: string): string =>
  `(extract(epoch from ${time} - clock_timestamp()) * 1000)::float`;

// Computes the send window while the row is locked, so that no two processes get the same window.
const reserveWindow = `
update {paces} set next_turn = case
    when held_until > clock_timestamp() then next_turn
    else greatest(next_turn, clock_timestamp()) + $2::float * interval '1 millisecond' end
where batch = $1
returning ${milliseconds(`next_turn - $2::float * interval '1 millisecond'`)} as wait,
  ${milliseconds('held_until')} as held, epoch::int as epoch, most`;

const selectPace = `select ${milliseconds('held_until')} as held, epoch::int as epoch, most from {paces} where batch = $1`;

const raiseLimit = `
update {paces} set
  most = case when accepted + 1 >= most then least(most + 1, $2::int) else most end,
  accepted = case when accepted + 1 >= most then 0 else accepted + 1 end
where batch = $1 and most < $2::int`;

// A 429 for a submission sent before the last halving does not halve the limit again.
const lowerLimit = `
update {paces} set
  held_until = greatest(held_until, ${afterMs('$3::float')}),
  most = case when epoch = $2 then greatest(1, least(most, (
    select count(*) from {places} place where batch = $1 and ${isLive('place')})) / 2) else most end,
  accepted = case when epoch = $2 then 0 else accepted end,
  epoch = case when epoch = $2 then epoch + 1 else epoch end
where batch = $1`;
