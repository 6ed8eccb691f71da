import type { Clock } from '../../clock.ts';
import { MgwError } from '../../errors.ts';
import type { Life, Owner } from '../../job.ts';
import type { Lease, UncertainLease } from '../ledger.ts';
import { currentOwner, lifeOf as lifeHere } from '../owner.ts';
import { type Database } from './database.ts';

/**
 * The clocks that determine whether a lease is valid. The monotonic clock is never set back, and the system clock
 * continues while the machine sleeps.
 */
type LeaseClock = Pick<Clock, 'monotonic' | 'now'>;

/** A process's right to write: a row in the database that expires by the database's clock. */
class ProcessLease implements Lease {
  readonly owner: Owner;
  readonly #clock: LeaseClock;
  readonly #validMs: number;
  #renewedAt: { monotonic: number; now: number };

  constructor(owner: Owner, lastsMs: number, clock: LeaseClock, from: ProcessLease['times']) {
    this.owner = owner;
    this.#validMs = lastsMs;
    this.#clock = clock;
    this.#renewedAt = from;
  }

  get times(): { monotonic: number; now: number } {
    return { monotonic: this.#clock.monotonic(), now: this.#clock.now() };
  }

  /** Whether the lease is certainly valid, regardless of how long the last statement took. */
  get isValid(): boolean {
    const { monotonic, now } = this.times;
    const elapsedMs = Math.max(monotonic - this.#renewedAt.monotonic, now - this.#renewedAt.now);
    return elapsedMs < this.#validMs;
  }

  /** Extends the lease after it was renewed by a statement that was sent at `sentAt` or later. */
  extend(sentAt: ProcessLease['times']): void {
    this.#renewedAt = sentAt;
  }

  assertLease(): void {
    if (!this.isValid) throw leaseLostError();
  }
}

/** Returns the error (exit 6) for a process suspended for so long that other processes may have declared it dead. */
export function leaseLostError(): MgwError {
  const text =
    'This process was suspended, or cut off from the ledger, for longer than its lease. Another process may have continued its work, so this process does not send or save anything more. Run the same command again to continue.';
  // Repeating the typed command is enough: a new process has its own lease.
  return new MgwError('unreachable', text, { retry: 'safe', lacks: [] });
}

/**
 * Acquires and renews the lease that allows this process to write, and determines which other processes are alive. A
 * process is declared dead by deleting its lease row. The deletion waits for any statement that is using the row, and
 * the database refuses later writes from that process.
 */
export class LeaseKeeper {
  readonly #database: Database;
  readonly #clock: LeaseClock;
  readonly #leases: string;
  #current: ProcessLease | undefined;
  #acquisition: Promise<ProcessLease> | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #isAlive: (owner: Owner) => Promise<boolean | undefined>;
  #isClosed = false;

  constructor(database: Database, clock: LeaseClock) {
    this.#database = database;
    this.#clock = clock;
    this.#leases = database.table('leases');
    this.#isAlive = database.combine(async (owners: Owner[]) => {
      const aliveOwners = await this.#findAlive(owners);
      return new Map(owners.map((owner) => [owner, aliveOwners.has(keyOf(owner))]));
    });
  }

  /** Returns this process's lease, acquiring one if needed. */
  async lease(): Promise<Lease> {
    if (this.#current?.isValid) return this.#current;
    return (this.#acquisition ??= this.#acquire().finally(() => (this.#acquisition = undefined)));
  }

  /** Determines which processes are alive from their leases, and deletes expired leases. */
  async livesOf(owners: readonly Owner[]): Promise<(owner: Owner) => Life> {
    const isOwn = ({ lease, instance }: Owner): boolean =>
      this.#current?.isValid === true &&
      this.#current.owner.lease === lease &&
      this.#current.owner.instance === instance;
    const queried = owners.filter((owner) => owner.lease !== undefined && !isOwn(owner));
    const aliveOwners = new Set<string>();
    const lives = await Promise.all(queried.map((owner) => this.#isAlive(owner)));
    for (const [index, owner] of queried.entries()) if (lives[index] === true) aliveOwners.add(keyOf(owner));
    const queriedKeys = new Set(queried.map(keyOf));
    return (owner) => {
      if (owner.lease === undefined) return lifeHere(owner) === 'dead' ? 'dead' : 'unknown';
      if (isOwn(owner) || aliveOwners.has(keyOf(owner))) return 'alive';
      return queriedKeys.has(keyOf(owner)) ? 'dead' : 'unknown';
    };
  }

  /** Implements {@link Ledger.uncertainLease}. */
  async uncertainLease({ lease, instance, ...owner }: Owner): Promise<UncertainLease | undefined> {
    if (lease === undefined || lifeHere({ ...owner, instance }) !== 'unknown') return undefined;
    const [row] = await this.#database.query<{ until: string; left: number }>(
      `SELECT until::text, extract(epoch FROM until - clock_timestamp())::float * 1000 AS left
       FROM ${this.#leases} WHERE id = $1 AND instance = $2 AND until > clock_timestamp()`,
      [lease, instance],
    );
    return row && { until: row.until, leftMs: row.left };
  }

  /** Ends the lease, so that other processes see immediately that this process has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const lease = this.#current;
    this.#current = undefined;
    if (lease !== undefined) await this.#deleteLeases([lease.owner]).catch(() => undefined);
  }

  async #findAlive(queried: readonly Owner[]): Promise<Set<string>> {
    // A process on this machine that is known to be dead has no writes in progress, except those that the database has
    // received.
    const dead = queried.filter((owner) => lifeHere(owner) === 'dead');
    const ids = idsOf(queried);
    await this.#database.query(
      `DELETE FROM ${this.#leases}
       WHERE id = ANY($1::bigint[]) AND (until <= clock_timestamp() OR id = ANY($2::bigint[]))`,
      [ids, idsOf(dead)],
    );
    const rows = await this.#database.query<{ id: string; instance: string }>(
      `SELECT id::text, instance FROM ${this.#leases} WHERE id = ANY($1::bigint[])`,
      [ids],
    );
    return new Set(rows.map(({ id, instance }) => keyOf({ lease: id, instance })));
  }

  async #deleteLeases(owners: readonly Owner[]): Promise<void> {
    await this.#database.query(`DELETE FROM ${this.#leases} WHERE id = ANY($1::bigint[])`, [idsOf(owners)]);
  }

  async #acquire(): Promise<ProcessLease> {
    const { leaseMs } = this.#database.url;
    const owner = currentOwner();
    for (;;) {
      const sentAt = { monotonic: this.#clock.monotonic(), now: this.#clock.now() };
      // If the response is lost, the new lease row expires.
      const [row] = await this.#database.query<{ id: string }>(
        `INSERT INTO ${this.#leases} (instance, host, pid, until)
         VALUES ($1, $2, $3, clock_timestamp() + $4 * interval '1 millisecond') RETURNING id::text`,
        [owner.instance, owner.host, owner.pid, leaseMs],
      );
      const lease = new ProcessLease(
        { ...owner, lease: row?.id ?? '' },
        trustedFraction * leaseMs,
        this.#clock,
        sentAt,
      );
      if (!lease.isValid) continue;
      this.#current = lease;
      this.#renewLater(lease);
      return lease;
    }
  }

  #renewLater(lease: ProcessLease): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#renew(lease), this.#database.url.leaseMs / 4);
    // The timer must not keep the process running.
    this.#timer.unref();
  }

  async #renew(lease: ProcessLease): Promise<void> {
    const sentAt = lease.times;
    const rows = await this.#database
      .query(
        `UPDATE ${this.#leases} SET until = clock_timestamp() + $3 * interval '1 millisecond'
         WHERE id = $1 AND instance = $2 AND until > clock_timestamp() RETURNING id`,
        [lease.owner.lease, lease.owner.instance, this.#database.url.leaseMs],
      )
      // A failed renewal is tried again later. Until then, nothing is sent under a lease that may have expired.
      .catch(() => undefined);
    if (rows?.[0]) lease.extend(sentAt);
    const hasEnded = rows?.length === 0 || this.#current !== lease;
    if (!hasEnded) this.#renewLater(lease);
  }
}

/** The fraction of a lease that this process relies on, because clocks differ and messages take time. */
const trustedFraction = 0.8;

function idsOf(owners: readonly Owner[]): string[] {
  return [...new Set(owners.map(({ lease = '' }) => lease))].filter((id) => /^\d{1,18}$/.test(id));
}

function keyOf({ lease, instance }: Pick<Owner, 'lease' | 'instance'>): string {
  return `${lease ?? ''} ${instance ?? ''}`;
}
