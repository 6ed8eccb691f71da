import { messageOf, MgwError } from '../../errors.ts';
import { isSameGateway } from '../../jobs/order.ts';
import { printableLine } from '../../printable.ts';
import { claimFileName, names } from '../../ledger/names.ts';
import { isLive, type Query, type FleetState } from './fleet-state.ts';
import { isDelayed, parseHead, type QueuedHead, type QueuedRow } from './queued-row.ts';

/** A batch in the queue. */
export interface QueuedBatch {
  name: string;
  head: QueuedHead;
  /** The time until a row can be retried, in ms; absent if a row is available now. */
  retryMs?: number;
}

type BatchEntry = Record<'name' | 'gateway' | 'head', string>;

/** A row to add to the queue, with everything that a worker needs to run it. */
export interface NewRow {
  id: string;
  /** The hash of the row's request. */
  hash: string;
  row: QueuedRow;
}

/** A row that this process has claimed. */
export interface ClaimedRow {
  batch: string;
  id: string;
  /** The lease under which the row was claimed. */
  lease: string;
  /** The row as JSON text, for {@link parseRow}. */
  content: string;
}

/** A row that this process has released. The row has ended, or returns to the queue after `delayMs`. */
interface Released {
  row: ClaimedRow;
  outcome?: string;
  delayMs?: number;
  why: string | undefined;
}

/**
 * The rows of enqueued batches, assigned to workers one by one. A row belongs to its worker's lease. When the lease
 * ends, another worker claims the row, and the earlier worker can no longer change it. A row is quarantined after five
 * workers have died while running it. Assigning a row twice costs nothing, because the ledger prevents a second
 * payment.
 */
export class RowQueue {
  readonly #fleet: FleetState;
  readonly #note: (text: string) => void;
  readonly #claimed = new Set<ClaimedRow>();
  readonly #damaged = new Set<string>();
  readonly #release: (released: Released) => Promise<undefined>;

  /** @param note called once for each batch with a damaged entry */
  constructor(fleet: FleetState, note: (text: string) => void = () => undefined) {
    this.#fleet = fleet;
    this.#note = note;
    this.#release = fleet.combine((released: Released[]) => this.#releaseAll(released));
  }

  /**
   * Returns a gateway's batches with rows that are available or wait for a retry, in the order in which they were
   * enqueued.
   */
  async availableBatches(gateway: string): Promise<QueuedBatch[]> {
    const claimed = [...this.#claimed];
    const lease = await this.#fleet.lease();
    const values = [lease, claimed.map(({ batch }) => batch), claimed.map(({ id }) => id)];
    const entries = await this.#fleet.query<BatchEntry & { retry_ms: number | null }>(selectBatches, values);
    return entries.flatMap(({ name, gateway: own, head, retry_ms: retryMs }) => {
      const queued = isSameGateway(own, gateway) ? this.#queuedBatch(name, head) : undefined;
      return queued === undefined ? [] : [retryMs === null ? queued : { ...queued, retryMs }];
    });
  }

  // Reports a damaged entry once and skips it, so that the other batches continue.
  #queuedBatch(name: string, head: string): QueuedBatch | undefined {
    try {
      return { name, head: parseHead(name, head) };
    } catch (error) {
      if (!this.#damaged.has(name)) this.#note(messageOf(error));
      this.#damaged.add(name);
      return undefined;
    }
  }

  /** Claims up to `max` rows, of those in `ids` if given. Calls for the same batch must not overlap. */
  async claim(batch: string, max: number, ids?: readonly string[]): Promise<ClaimedRow[]> {
    const lease = await this.#fleet.lease();
    const claimedIds = [...this.#claimed].filter((row) => row.batch === batch).map(({ id }) => id);
    // If a server crash undoes the claim, another worker may claim the same row. That is safe, because the ledger
    // prevents a second payment.
    const values = [batch, lease, claimedIds, max, ids];
    const rows = await this.#fleet.query<{ id: string; content: string }>(claimRows, values, 'soon');
    const claimed = rows.map(({ id, content }) => ({ batch, id, lease, content }));
    for (const row of claimed) this.#claimed.add(row);
    return claimed;
  }

  /** Returns the ids of a batch's available rows that have a job. Only these rows may have been paid for. */
  async idsWithJob(batch: string): Promise<string[]> {
    const { query } = this.#fleet;
    const rows = await query<{ id: string }>(
      `select id from {batch_rows} where batch = $1 and ${isAvailable}`,
      [batch],
    );
    const nameOf = (id: string): string =>
      claimFileName(names.first({ key: `${batch}/${id}`, fingerprint: '' }));
    const ids = new Map(rows.map(({ id }) => [nameOf(id), id]));
    const claims = await query<{ name: string }>('select name from {claims} where name = any($1::text[])', [
      [...ids.keys()],
    ]);
    return claims.flatMap(({ name }) => ids.get(name) ?? []);
  }

  /** Whether this process still has the lease under which it claimed a row. @throws MgwError('unreachable'). */
  async isOwn({ lease }: ClaimedRow): Promise<boolean> {
    return lease === (await this.#fleet.lease());
  }

  /** Reclaims rows whose lease has ended. Returns the rows that were quarantined as a result. */
  async recover(): Promise<{ batch: string; id: string }[]> {
    await this.#fleet.flush();
    const rows = await this.#fleet.query<{ batch: string; id: string; state: string }>(recoverRows);
    return rows.filter(({ state }) => state === 'quarantined');
  }

  /** Returns a row to the queue. It can be claimed again after `delayMs`. */
  async returnToQueue(row: ClaimedRow, delayMs: number, why?: string): Promise<void> {
    await this.#release({ row, delayMs, why });
  }

  /** Records that a row has ended, successfully or not. */
  async recordEnd(row: ClaimedRow, outcome: string, why?: string): Promise<void> {
    await this.#release({ row, outcome, why });
  }

  async #releaseAll(released: Released[]): Promise<Map<Released, undefined>> {
    await this.#fleet.query(releaseRows, [
      released.map(({ row }) => row.batch),
      released.map(({ row }) => row.id),
      released.map(({ row }) => row.lease),
      released.map(({ outcome }) => outcome ?? null),
      released.map(({ delayMs }) => delayMs ?? null),
      released.map(({ why }) => why ?? null),
    ]);
    for (const { row } of released) this.#claimed.delete(row);
    return new Map();
  }

  /** Drops a row whose outcome could not be recorded. This worker or another will claim the row again. */
  drop(row: ClaimedRow): void {
    this.#claimed.delete(row);
  }
}

/**
 * Adds a batch to the queue, unless it is already there. Replaces damaged options. Returns the options of the batch in
 * the queue.
 * @throws MgwError('usage') if a batch with this name is enqueued for a different gateway.
 */
export async function addBatch(query: Query, { name, head }: QueuedBatch): Promise<QueuedHead> {
  const values = [name, head.gateway, JSON.stringify(head)];
  const [queued] = await query<BatchEntry>(insertBatch, values);
  const { gateway = '', head: text = '' } = queued ?? {};
  if (!isSameGateway(gateway, head.gateway))
    throw new MgwError(
      'usage',
      `A batch named ${name} is already enqueued for a different gateway, ${printableLine(gateway, 200)}. Use a different --name for this batch.`,
    );
  try {
    return parseHead(name, text);
  } catch {
    await query('update {batches} set head = $2 where name = $1', [name, JSON.stringify(head)]);
    return head;
  }
}

/** Changes options of an enqueued batch. Workers reopen it once their rows in progress have ended. */
export async function changeBatch(query: Query, name: string, overrides: Partial<QueuedHead>): Promise<void> {
  await query(updateBatch, [name, JSON.stringify(overrides)]);
}

/**
 * Adds rows to the queue in the given order. Leaves existing rows unchanged, but requeues rows that wait for their
 * retry, paid rows without a result, and rows in doubt, because the ledger may now contain their handles.
 * @returns the number of rows added, and the ids of rows that were already queued with different content
 */
export async function addRows(
  query: Query,
  batch: string,
  rows: readonly NewRow[],
): Promise<{ added: number; changed: string[] }> {
  const contents = rows.map(({ row }) => JSON.stringify(row));
  const values = [batch, rows.map(({ id }) => id), rows.map(({ hash }) => hash), contents];
  const before = await query<{ id: string; is_same: boolean }>(insertRows, values);
  const changed = before.filter(({ is_same: isSame }) => !isSame).map(({ id }) => id);
  return { added: rows.length - before.length, changed };
}

/** The number of worker deaths after which a row is quarantined. A worker that dies may have held many other rows. */
const maxDeaths = 5;

const isAvailable = `state = 'waiting' and (not_before is null or not_before <= clock_timestamp())`;

// A row is treated as available if this process claimed it in a statement whose response was lost.
const selectBatches = `
select name, gateway, head, case when not is_available then retry_ms end as retry_ms from (
  select name, gateway, head, created_at,
    exists (
      select from {batch_rows} queued where queued.batch = name and (${isAvailable} or (state = 'taken' and lease = $1::bigint
        and (queued.batch, queued.id) not in (select * from unnest($2::text[], $3::text[]))))) as is_available,
    (select extract(epoch from min(not_before) - clock_timestamp())::float * 1000 from {batch_rows} queued
      where queued.batch = name and ${isDelayed}) as retry_ms
  from {batches}) batch
where is_available or retry_ms is not null
order by created_at`;

// Rows that this process claimed in a statement whose response was lost come first. A process whose lease has ended
// claims no rows, and a process with a new lease claims no row that it has not released yet.
const claimRows = `
with alive as (select from {leases} where id = $2::bigint and until > clock_timestamp()),
  mine as (
    select id from {batch_rows}
    where batch = $1 and state = 'taken' and lease = $2::bigint and id <> all($3::text[])
    order by position limit $4::int),
  free as (
    select id from {batch_rows}
    where batch = $1 and ${isAvailable} and id <> all($3::text[]) and exists (select from alive)
      and ($5::text[] is null or id = any($5::text[]))
    order by position limit $4::int - (select count(*) from mine) for update skip locked)
update {batch_rows} set state = 'taken', lease = $2::bigint
where batch = $1 and id in (select id from mine union all select id from free)
returning id, content`;

// Checks, after locking a row, that the row still belongs to the expired lease.
const recoverRows = `
with ended as materialized (
  select batch, id, lease from {batch_rows} queued where state = 'taken' and not ${isLive('queued')})
update {batch_rows} set
  state = case when lost >= ${maxDeaths - 1} then 'quarantined' else 'waiting' end,
  lost = lost + 1, not_before = null, lease = null
where (batch, id) in (
  select queued.batch, queued.id from {batch_rows} queued join ended using (batch, id)
  where queued.state = 'taken' and queued.lease = ended.lease for update of queued skip locked)
returning batch, id, state`;

// A worker that releases a row after its lease has ended was disconnected or suspended, but did not die. The death that
// was counted for it is therefore subtracted. If another worker found the row in doubt before the releasing worker
// recorded the handle, the row is requeued (outcome `again`).
const releaseRows = `
with input as (
  select * from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::float[], $6::text[])
    as input (batch, id, lease, outcome, delay, why)),
survived as (
  update {batch_rows} queued set lost = queued.lost - 1,
    outcome = case when input.outcome is null and queued.state = 'taken' then 'again' else queued.outcome end,
    state = case when queued.state = 'quarantined'
      or (queued.state = 'ended' and queued.outcome = 'unknown' and input.outcome is null) then 'waiting' else queued.state end
  from input
  where queued.batch = input.batch and queued.id = input.id and queued.lease is distinct from input.lease and queued.lost > 0)
update {batch_rows} queued set
  state = case when input.outcome is null or (input.outcome = 'unknown' and queued.outcome = 'again')
    then 'waiting' else 'ended' end,
  lease = null, outcome = coalesce(input.outcome, queued.outcome), why = input.why,
  not_before = case when input.outcome is null
    then clock_timestamp() + delay * interval '1 millisecond' else queued.not_before end
from input
where queued.batch = input.batch and queued.id = input.id and queued.lease = input.lease and queued.state = 'taken'`;

const updateBatch = 'update {batches} set head = (head::jsonb || $2::jsonb)::text where name = $1';

const insertBatch = `
insert into {batches} as queued (name, gateway, head) values ($1, $2, $3)
on conflict (name) do update set head = queued.head
returning gateway, head`;

// The final `select` does not see the inserted rows, so it returns only rows that existed before.
const insertRows = `
with input as (
    select * from unnest($2::text[], $3::text[], $4::text[]) with ordinality as input (id, hash, content, place)),
  added as (
    insert into {batch_rows} (batch, id, hash, content) select $1, id, hash, content from input order by place
    on conflict (batch, id) do nothing),
  again as (
    update {batch_rows} queued set state = 'waiting', why = null, not_before = null from input
    where queued.batch = $1 and queued.id = input.id
      and ((${isDelayed}) or (state = 'ended' and outcome in ('unknown', 'running'))))
select input.id, queued.hash = input.hash as is_same
from input join {batch_rows} queued on queued.batch = $1 and queued.id = input.id order by place`;
