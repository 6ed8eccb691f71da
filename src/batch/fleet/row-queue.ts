import { exitCodes, messageOf, MgwError } from '../../errors.ts';
import { isLive, type Query, type FleetState } from './fleet-state.ts';
import { parseHead, type QueuedHead, type QueuedRow } from './queued-row.ts';

/** A batch in the queue. */
export interface QueuedBatch {
  name: string;
  head: QueuedHead;
  /** The time until a row can be tried again, ms, if no row is available now. */
  retryMs?: number;
}

/** A row to add to the queue, with everything that a worker needs to run it. */
export interface NewRow {
  id: string;
  /** The hash of its request. */
  hash: string;
  row: QueuedRow;
}

/** A row that this process has taken. */
export interface ClaimedRow {
  batch: string;
  id: string;
  /** The lease under which it was taken. */
  lease: string;
  /** The row as JSON text, for {@link parseRow}. */
  content: string;
}

/** A row that this process no longer holds: it has ended, or returns to the queue after `delayMs`. */
interface Released {
  row: ClaimedRow;
  outcome?: string;
  delayMs?: number;
  why: string | undefined;
}

/** The result of putting rows into the queue. */
export interface Added {
  added: number;
  /** Rows that were already queued with different content. The queue keeps the earlier content. */
  changed: string[];
}

/**
 * The rows of enqueued batches, handed out to workers one by one. A row belongs to its worker's lease: when the lease
 * ends, another worker takes the row, and the first one can no longer write to it. A row is quarantined if five workers
 * died while running it. Handing out a row twice costs nothing, because the ledger prevents a second payment.
 */
export class RowQueue {
  readonly #fleet: FleetState;
  readonly #note: (text: string) => void;
  readonly #taken = new Set<ClaimedRow>();
  readonly #damaged = new Set<string>();
  readonly #release: (released: Released) => Promise<undefined>;

  /** @param note receives a note for each batch whose entry is damaged, once */
  constructor(fleet: FleetState, note: (text: string) => void = () => undefined) {
    this.#fleet = fleet;
    this.#note = note;
    this.#release = fleet.combine((released: Released[]) => this.#releaseAll(released));
  }

  /** The number of rows that this process has taken. */
  get taken(): number {
    return this.#taken.size;
  }

  /** Returns the batches of a gateway with rows that are available or wait for a retry, in the order of enqueueing. */
  async waiting(gateway: string): Promise<QueuedBatch[]> {
    const own = [...this.#taken];
    const lease = await this.#fleet.lease();
    const values = [gateway, lease, own.map(({ batch }) => batch), own.map(({ id }) => id)];
    const found = await this.#fleet.query<{ name: string; head: string; retry_ms: number | null }>(
      waiting,
      values,
    );
    return found.flatMap(({ name, head, retry_ms: retryMs }) => {
      const queued = this.#queuedBatch(name, head);
      return queued === undefined ? [] : [retryMs === null ? queued : { ...queued, retryMs }];
    });
  }

  // Reports a damaged entry once, and leaves it out, so that the other batches continue.
  #queuedBatch(name: string, head: string): QueuedBatch | undefined {
    try {
      return { name, head: parseHead(name, head) };
    } catch (error) {
      if (!this.#damaged.has(name)) this.#note(messageOf(error));
      this.#damaged.add(name);
      return undefined;
    }
  }

  /** Takes up to `max` rows. Calls for the same batch must not overlap. */
  async take(batch: string, max: number): Promise<ClaimedRow[]> {
    const lease = await this.#fleet.lease();
    const known = [...this.#taken].filter((row) => row.batch === batch).map(({ id }) => id);
    // If a crash of the server undoes this, another worker takes the row too, which is safe.
    const values = [batch, lease, known, max];
    const found = await this.#fleet.query<{ id: string; content: string }>(take, values, 'soon');
    const taken = found.map(({ id, content }) => ({ batch, id, lease, content }));
    for (const row of taken) this.#taken.add(row);
    return taken;
  }

  /** Takes rows back from leases that have ended. Returns those that it quarantines. */
  async recover(): Promise<{ batch: string; id: string }[]> {
    await this.#fleet.flush();
    const found = await this.#fleet.query<{ batch: string; id: string; state: string }>(recover);
    return found.filter(({ state }) => state === 'quarantined');
  }

  /** Returns a row to the queue; it can be taken again after `delayMs`. */
  async giveBack(row: ClaimedRow, delayMs: number, why?: string): Promise<void> {
    await this.#release({ row, delayMs, why });
  }

  /** Records that a row has ended, with success or failure. */
  async end(row: ClaimedRow, outcome: string, why?: string): Promise<void> {
    await this.#release({ row, outcome, why });
  }

  async #releaseAll(released: Released[]): Promise<Map<Released, undefined>> {
    await this.#fleet.query(release, [
      released.map(({ row }) => row.batch),
      released.map(({ row }) => row.id),
      released.map(({ row }) => row.lease),
      released.map(({ outcome }) => outcome ?? null),
      released.map(({ delayMs }) => delayMs ?? null),
      released.map(({ why }) => why ?? null),
    ]);
    for (const { row } of released) this.#taken.delete(row);
    return new Map();
  }

  /** Forgets a row whose end could not be recorded. It is taken again, by this worker or by another. */
  drop(row: ClaimedRow): void {
    this.#taken.delete(row);
  }
}

/**
 * Puts a batch into the queue, or changes its options.
 * @throws MgwError('usage') if a batch of that name is enqueued for another gateway.
 */
export async function addBatch(query: Query, { name, head }: QueuedBatch): Promise<void> {
  const [kept] = await query<{ gateway: string }>(addBatchText, [name, head.gateway, JSON.stringify(head)]);
  if (kept?.gateway === head.gateway) return;
  throw new MgwError(
    'usage',
    `A batch ${name} is already enqueued for another gateway. Give this one another --name.`,
  );
}

/**
 * Puts rows into the queue, in their order. Existing rows stay as they are; those that were in doubt are handed out
 * again, since the ledger may know their handle by now.
 */
export async function addRows(query: Query, batch: string, rows: readonly NewRow[]): Promise<Added> {
  const contents = rows.map(({ row }) => JSON.stringify(row));
  const values = [batch, rows.map(({ id }) => id), rows.map(({ hash }) => hash), contents];
  const before = await query<{ id: string; is_same: boolean }>(addRowsText, values);
  const changed = before.filter(({ is_same: isSame }) => !isSame).map(({ id }) => id);
  return { added: rows.length - before.length, changed };
}

/** The number of worker deaths after which a row is quarantined. A worker that dies may have held many other rows. */
const maxDeaths = 5;

/**
 * The pause before a row or batch is tried again that needs a change first (a higher budget, a free output), and the
 * usual pause before a row is tried again, ms.
 */
export const heldMs = 60_000;
export const shortDelayMs = 15_000;

/**
 * Returns the pause before a row is given to a worker again, ms; undefined if the row has ended. A local error of one
 * machine, or its store's refusal, never ends a row: the gateway may have accepted the row, and another worker can save
 * its result.
 */
export function retryDelayMs(error: MgwError): number | undefined {
  switch (error.exitCode) {
    case exitCodes.interrupted:
    case exitCodes.terminated:
      return 0;
    case exitCodes.unavailable:
    case exitCodes.pending:
      return shortDelayMs;
    case exitCodes.budget:
      return heldMs;
    case exitCodes.auth:
      return error.charged === 'no' ? shortDelayMs : undefined;
    default:
      if (error.code === 'output_exists') return heldMs;
      return ['balance', 'local_io', 'store'].includes(error.code) ? shortDelayMs : undefined;
  }
}

const mayBeTaken = `state = 'waiting' and (not_before is null or not_before <= clock_timestamp())`;

// A batch with a row that this process holds without knowing it has an available row.
const waiting = `
select name, head, case when not is_available then retry_ms end as retry_ms from (
  select name, head, created_at,
    exists (
      select from {batch_rows} kept where kept.batch = name and (${mayBeTaken} or (state = 'taken' and lease = $2::bigint
        and (kept.batch, kept.id) not in (select * from unnest($3::text[], $4::text[]))))) as is_available,
    (select extract(epoch from min(not_before) - clock_timestamp())::float * 1000 from {batch_rows} kept
      where kept.batch = name and state = 'waiting' and not_before > clock_timestamp()) as retry_ms
  from {batches} where gateway = $1) batch
where is_available or retry_ms is not null
order by created_at`;

// A row that this process holds without knowing it comes first: the response of an earlier statement was lost. A
// process whose lease has ended takes nothing.
const take = `
with alive as (select from {leases} where id = $2::bigint and until > clock_timestamp()),
  mine as (
    select id from {batch_rows}
    where batch = $1 and state = 'taken' and lease = $2::bigint and id <> all($3::text[])
    order by position limit $4::int),
  free as (
    select id from {batch_rows}
    where batch = $1 and ${mayBeTaken} and exists (select from alive)
    order by position limit $4::int - (select count(*) from mine) for update skip locked)
update {batch_rows} set state = 'taken', lease = $2::bigint
where batch = $1 and id in (select id from mine union all select id from free)
returning id, content`;

// Under the lock, a row must still have the lease that was found to have ended.
const recover = `
with ended as materialized (
  select batch, id, lease from {batch_rows} kept where state = 'taken' and not ${isLive('kept')})
update {batch_rows} set
  state = case when lost >= ${maxDeaths - 1} then 'quarantined' else 'waiting' end,
  lost = lost + 1, not_before = null, lease = null
where (batch, id) in (
  select kept.batch, kept.id from {batch_rows} kept join ended using (batch, id)
  where kept.state = 'taken' and kept.lease = ended.lease for update of kept skip locked)
returning batch, id, state`;

// A worker that releases a row after its lease has ended did not die, but was cut off or stopped. So the death that was
// counted for it is subtracted. Another worker may have found the row in doubt before this one recorded the handle: the
// row is handed out `again`.
const release = `
with given as (
  select * from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::float[], $6::text[])
    as given (batch, id, lease, outcome, delay, why)),
survived as (
  update {batch_rows} kept set lost = kept.lost - 1,
    outcome = case when given.outcome is null and kept.state = 'taken' then 'again' else kept.outcome end,
    state = case when kept.state = 'quarantined'
      or (kept.state = 'ended' and kept.outcome = 'unknown' and given.outcome is null) then 'waiting' else kept.state end
  from given
  where kept.batch = given.batch and kept.id = given.id and kept.lease is distinct from given.lease and kept.lost > 0)
update {batch_rows} kept set
  state = case when given.outcome is null or (given.outcome = 'unknown' and kept.outcome = 'again')
    then 'waiting' else 'ended' end,
  lease = null, outcome = coalesce(given.outcome, kept.outcome), why = given.why,
  not_before = case when given.outcome is null
    then clock_timestamp() + delay * interval '1 millisecond' else kept.not_before end
from given
where kept.batch = given.batch and kept.id = given.id and kept.lease = given.lease and kept.state = 'taken'`;

const addBatchText = `
insert into {batches} as kept (name, gateway, head) values ($1, $2, $3)
on conflict (name) do update set head = case when kept.gateway = $2 then $3 else kept.head end
returning gateway`;

// The final `select` does not see the inserted rows: it returns only the rows that existed before.
const addRowsText = `
with given as (
    select * from unnest($2::text[], $3::text[], $4::text[]) with ordinality as given (id, hash, content, place)),
  added as (
    insert into {batch_rows} (batch, id, hash, content) select $1, id, hash, content from given order by place
    on conflict (batch, id) do nothing),
  again as (
    update {batch_rows} kept set state = 'waiting' from given
    where kept.batch = $1 and kept.id = given.id and kept.state = 'ended' and kept.outcome = 'unknown')
select given.id, kept.hash = given.hash as is_same
from given join {batch_rows} kept on kept.batch = $1 and kept.id = given.id order by place`;
