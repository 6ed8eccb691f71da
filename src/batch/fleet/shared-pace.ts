import { messageOf } from '../../errors.ts';
import type { Gate } from '../gate.ts';
import { gapOf, gateOfPolls, turnAt, type Pace, type PaceOptions, type Turn } from '../pace.ts';
import { asking, type Ask, type Database, type Hold } from './database.ts';
import { Renewal } from './renewal.ts';

/** A pace that several machines keep together. */
export interface SharedPaceOptions extends PaceOptions {
  batch: string;
  database: Database;
  hold: Hold;
  /** Told of what went wrong and is tried again. */
  note: (text: string) => void;
}

type Turned = Record<'wait' | 'held' | 'epoch' | 'most', number>;

// A free place is looked for at these times: there is nobody who could tell of it through a pool of connections.
const [leastLookMs, mostLookMs] = [100, 1000];

/**
 * The pace of a batch over all machines that carry it out, by the database's clock. A place is a row with a holder and an
 * end, so that those of a process that died come free when they end. The halving, the hold and the next turn are
 * one row of the batch. Polls keep to a pace in each process by itself.
 */
export class SharedPace implements Pace {
  readonly #options: SharedPaceOptions;
  readonly #ask: Ask;
  readonly #polls: Gate;
  readonly #renewal: Renewal;
  /** Numbers of the places that are held. */
  readonly #places = new Set<number>();
  #taking = 0;
  #renewing: Promise<void> = Promise.resolve();
  /** What is being written down. */
  readonly #writes = new Set<Promise<void>>();
  #limit: number;
  /** Monotonic ms. */
  #heldUntil = 0;

  private constructor(options: SharedPaceOptions) {
    this.#options = options;
    this.#ask = asking(options.database);
    this.#limit = options.concurrency;
    this.#polls = gateOfPolls(options);
    this.#renewal = new Renewal(options.hold.leaseMs, options, () => this.#renew());
  }

  /** Begins to keep to the pace of a batch. @throws MgwError('unreachable'). */
  static async open(options: SharedPaceOptions): Promise<SharedPace> {
    const { database, batch, concurrency } = options;
    const ask = asking(database);
    await ask(begin, [batch, concurrency]);
    await ask(
      `insert into {places} (batch, number) select $1, n from generate_series(1, $2::int) n on conflict do nothing`,
      [batch, concurrency],
    );
    return new SharedPace(options);
  }

  get limit(): number {
    return this.#limit;
  }

  get heldMs(): number {
    return Math.max(0, this.#heldUntil - this.#options.clock.monotonic());
  }

  async enter(signal: AbortSignal): Promise<void> {
    for (let lookMs = leastLookMs; ; lookMs = Math.min(mostLookMs, lookMs * 1.5)) {
      signal.throwIfAborted();
      if ((await this.#take()) !== undefined) return;
      await this.#options.clock.sleep(lookMs * (0.5 + Math.random() / 2), signal);
    }
  }

  leave(): void {
    const [number] = this.#places;
    if (number === undefined) return;
    this.#places.delete(number);
    const { batch, hold } = this.#options;
    this.#write(() =>
      this.#ask(
        `update {places} set holder = null, ends = null where batch = $1 and number = $2 and holder = $3`,
        [batch, number, hold.holder],
      ),
    );
  }

  async submission(signal: AbortSignal): Promise<Turn> {
    const { clock } = this.#options;
    await Promise.all(this.#writes);
    for (;;) {
      while (this.heldMs > 0) await clock.sleep(this.heldMs, signal);
      const asked = clock.monotonic();
      const turn = await this.#turn(true);
      if (turn.held > 0) continue;
      const at = asked + Math.max(0, turn.wait);
      if (turn.wait < 1) return turnAt(at, turn.epoch, this.#options);
      await clock.sleep(turn.wait, signal);
      const now = await this.#turn(false);
      if (now.held <= 0) return turnAt(at, now.epoch, this.#options);
    }
  }

  poll(signal: AbortSignal): Promise<unknown> {
    return this.#polls.pass(signal);
  }

  // Where no 429 came lately there is nothing to be told.
  accepted(): void {
    const { concurrency, batch } = this.#options;
    if (this.#limit >= concurrency) return;
    this.#write(() => this.#ask(grow, [batch, concurrency]));
  }

  limited({ epoch }: Turn, retryAfterMs = 0): void {
    const { clock, batch } = this.#options;
    this.#heldUntil = Math.max(this.#heldUntil, clock.monotonic() + retryAfterMs);
    this.#write(() => this.#ask(shrink, [batch, epoch, retryAfterMs]));
  }

  holdPolls(retryAfterMs = 0): void {
    this.#polls.hold(Math.min(retryAfterMs, 60_000));
  }

  async close(): Promise<void> {
    this.#places.clear();
    await this.#renewal.close();
    await Promise.all(this.#writes);
    const { batch, hold } = this.#options;
    // They come free by themselves.
    await this.#ask(free, [batch, hold.holder, []]).catch(() => undefined);
  }

  async #take(): Promise<number | undefined> {
    const { batch, concurrency, hold } = this.#options;
    await this.#renewing;
    this.#taking += 1;
    try {
      const values = [batch, hold.holder, hold.leaseMs, concurrency];
      const [found] = await this.#ask<{ number: number | null; most: number }>(take, values);
      if (found !== undefined) this.#noteLimit(found.most);
      const number = found?.number ?? undefined;
      if (number !== undefined) this.#places.add(number);
      return number;
    } finally {
      this.#taking -= 1;
    }
  }

  async #turn(isTaken: boolean): Promise<Turned> {
    const { batch, perMinute } = this.#options;
    const gapMs = isTaken ? gapOf(perMinute) : 0;
    const [turn] = await this.#ask<Turned>(gapMs > 0 ? nextTurn : look, [
      batch,
      ...(gapMs > 0 ? [gapMs] : []),
    ]);
    const { wait = 0, held = 0, epoch = 0, most = this.#limit } = turn ?? {};
    if (held > 0) this.#heldUntil = this.#options.clock.monotonic() + held;
    this.#noteLimit(most);
    return { wait, held, epoch, most };
  }

  #noteLimit(most: number): void {
    const limit = Math.min(most, this.#options.concurrency);
    if (limit === this.#limit) return;
    this.#limit = limit;
    this.#options.onLimit?.(limit);
  }

  // A place that this process does not know of is one that it could not give back, or was given without being told;
  // or one that it is just taking.
  #renew(): Promise<void> {
    const { batch, hold } = this.#options;
    const places = [...this.#places];
    const isSure = this.#taking === 0;
    const renewed = this.#ask(renew, [batch, hold.holder, places, hold.leaseMs]).then(() =>
      isSure ? this.#ask(free, [batch, hold.holder, places]) : [],
    );
    this.#renewing = renewed.then(
      () => undefined,
      () => undefined,
    );
    return renewed.then(() => undefined);
  }

  // What cannot be written now is made good: places by the next renewal, the rest by the gateway's next answer.
  #write(statement: () => Promise<unknown>): void {
    const written = statement().then(
      () => undefined,
      (error: unknown) =>
        this.#options.note(`The pace of the batch could not be recorded: ${messageOf(error)}`),
    );
    this.#writes.add(written);
    void written.finally(() => this.#writes.delete(written));
  }
}

// Where nobody holds a place, the limit that a gateway set in an earlier run is forgotten.
const begin = `
insert into {paces} as pace (batch, most) values ($1, $2)
on conflict (batch) do update set most = excluded.most, accepted = 0
where not exists (select from {places} place where place.batch = $1 and ends > clock_timestamp())`;

const later = (parameter: string): string => `clock_timestamp() + ${parameter} * interval '1 millisecond'`;

// One place of those up to the limit that nobody holds. Each is locked by whoever takes it, and passed over by the others.
const take = `
with pace as (select most from {paces} where batch = $1),
  held as (select count(*) as count from {places} where batch = $1 and ends > clock_timestamp()),
  free as (
    select number from {places} place, pace, held
    where batch = $1 and number <= least(most, $4::int) and held.count < least(most, $4::int)
      and (ends is null or ends <= clock_timestamp())
    order by number limit 1 for update of place skip locked
  ),
  taken as (
    update {places} place set holder = $2, ends = ${later('$3::float')}
    from free where batch = $1 and place.number = free.number returning place.number
  )
select most, (select number from taken) as number from pace`;

const renew = `
update {places} set ends = ${later('$4::float')} where batch = $1 and holder = $2 and number = any($3::int[])`;

const free = `update {places} set holder = null, ends = null where batch = $1 and holder = $2 and number <> all($3::int[])`;

const milliseconds = (time: string): string =>
  `(extract(epoch from ${time} - clock_timestamp()) * 1000)::float`;

// The turn is reckoned on the row as it is when its lock is had: no two get one.
const nextTurn = `
update {paces} set next_turn = case
    when held_until > clock_timestamp() then next_turn
    else greatest(next_turn, clock_timestamp()) + $2::float * interval '1 millisecond' end
where batch = $1
returning ${milliseconds(`next_turn - $2::float * interval '1 millisecond'`)} as wait,
  ${milliseconds('held_until')} as held, epoch::int as epoch, most`;

const look = `select ${milliseconds('held_until')} as held, epoch::int as epoch, most from {paces} where batch = $1`;

const grow = `
update {paces} set
  most = case when accepted + 1 >= most then least(most + 1, $2::int) else most end,
  accepted = case when accepted + 1 >= most then 0 else accepted + 1 end
where batch = $1 and most < $2::int`;

// A 429 to what was sent before the last halving says nothing new.
const shrink = `
update {paces} set
  held_until = greatest(held_until, ${later('$3::float')}),
  most = case when epoch = $2 then greatest(1, least(most, (
    select count(*) from {places} where batch = $1 and ends > clock_timestamp())) / 2) else most end,
  accepted = case when epoch = $2 then 0 else accepted end,
  epoch = case when epoch = $2 then epoch + 1 else epoch end
where batch = $1`;
