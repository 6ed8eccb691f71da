import { MgwError } from '../../errors.ts';
import type { Row } from '../manifest/row.ts';
import { asking, type Ask, type Database, type Hold } from './database.ts';

/** How an enqueued batch is carried out, on whichever machine. */
export interface QueuedHead {
  /** What `base_url` says in the records: a worker takes only rows that were meant for its gateway. */
  gateway: string;
  /** Tasks under way at the gateway at most, over all workers. */
  concurrency: number;
  perMinute?: number;
  /** An amount in plain digits. */
  budget?: string;
  /** A template for workers that have none of their own. */
  output?: string;
  sidecar?: boolean;
}

/** A batch in the queue. */
export interface QueuedBatch {
  name: string;
  head: QueuedHead;
}

/** A row as it is put into the queue: everything that it needs is in it. */
export interface NewRow {
  id: string;
  /** Of what it asks for. */
  hash: string;
  row: Row;
}

/** A row that was handed out to this process. */
export interface TakenRow {
  batch: string;
  id: string;
  row: Row;
}

/** What became of a chunk of rows that were put into the queue. */
export interface Added {
  added: number;
  /** Those that were there before, asking for something else: they are left as they were. */
  changed: string[];
}

/**
 * The rows of batches that were enqueued, handed out to workers one by one. A row is with its worker for as long as that
 * renews it; a worker that is gone loses it to another one, and who has lost it writes nothing to it any more. A row that
 * two workers did not survive is set aside. That a row may be handed out twice costs nothing: the ledger pays once.
 */
export class RowQueue {
  readonly #ask: Ask;
  readonly #hold: Hold;
  readonly #taken = new Set<TakenRow>();

  constructor(database: Database, hold: Hold) {
    this.#ask = asking(database);
    this.#hold = hold;
  }

  /** How many rows are in this process's hands. */
  get taken(): number {
    return this.#taken.size;
  }

  /** The batches of a gateway of which rows may be taken now, those that were enqueued first at the top. */
  async waiting(gateway: string): Promise<QueuedBatch[]> {
    const found = await this.#ask<{ name: string; head: string }>(waiting, [gateway]);
    return found.map(({ name, head }) => ({ name, head: JSON.parse(head) as QueuedHead }));
  }

  /** Takes a row that nobody has in hand; undefined where there is none. One call for each batch at a time. */
  async take(batch: string): Promise<TakenRow | undefined> {
    const { holder, leaseMs } = this.#hold;
    const known = [...this.#taken].filter((row) => row.batch === batch).map(({ id }) => id);
    const values = [batch, holder, leaseMs, known];
    const [found] = await this.#ask<{ id: string; content: string }>(take, values);
    if (found === undefined) return undefined;
    const taken = { batch, id: found.id, row: JSON.parse(found.content) as Row };
    this.#taken.add(taken);
    return taken;
  }

  /** Renews what this process has in hand. */
  async renew(): Promise<void> {
    const { holder, leaseMs } = this.#hold;
    const rows = [...this.#taken];
    if (rows.length === 0) return;
    const values = [rows.map(({ batch }) => batch), rows.map(({ id }) => id), holder, leaseMs];
    await this.#ask(renew, values);
  }

  /** Takes rows back from workers that are gone, and sets aside what two of them did not survive. Returns the latter. */
  async recover(): Promise<{ batch: string; id: string }[]> {
    const found = await this.#ask<{ batch: string; id: string; state: string }>(recover);
    return found.filter(({ state }) => state === 'aside');
  }

  /** Leaves a row to others, no sooner than `delayMs` from now. */
  async giveBack(row: TakenRow, delayMs: number, why?: string): Promise<void> {
    await this.#ask(giveBack, [row.batch, row.id, this.#hold.holder, delayMs, why ?? null]);
    this.#taken.delete(row);
  }

  /** A row has come to its end, well or badly. */
  async end(row: TakenRow, state: string, why?: string): Promise<void> {
    await this.#ask(end, [row.batch, row.id, this.#hold.holder, state, why ?? null]);
    this.#taken.delete(row);
  }

  /** A row is not to be renewed any more; whoever comes upon its end takes it. */
  drop(row: TakenRow): void {
    this.#taken.delete(row);
  }
}

/**
 * Puts a batch into the queue, or changes how it is carried out.
 * @throws MgwError('usage') where a batch of that name is meant for another gateway.
 */
export async function addBatch(ask: Ask, { name, head }: QueuedBatch): Promise<void> {
  const [kept] = await ask<{ gateway: string }>(addBatchText, [name, head.gateway, JSON.stringify(head)]);
  if (kept?.gateway === head.gateway) return;
  throw new MgwError(
    'usage',
    `A batch ${name} is enqueued for another gateway: give this one another --name.`,
  );
}

/** Puts rows into the queue, in their order; those that are there stay as they are. */
export async function addRows(ask: Ask, batch: string, rows: readonly NewRow[]): Promise<Added> {
  const contents = rows.map(({ row }) => JSON.stringify(row));
  const values = [batch, rows.map(({ id }) => id), rows.map(({ hash }) => hash), contents];
  const before = await ask<{ id: string; is_same: boolean }>(addRowsText, values);
  const changed = before.filter(({ is_same: isSame }) => !isSame).map(({ id }) => id);
  return { added: rows.length - before.length, changed };
}

/** Hands out again what was set aside. Returns how many rows that are. */
export async function handOutAgain(ask: Ask, batch: string): Promise<number> {
  const found = await ask<{ id: string }>(
    `update {batch_rows} set state = 'waiting', lost = 0 where batch = $1 and state = 'aside' returning id`,
    [batch],
  );
  return found.length;
}

const later = (parameter: string): string =>
  `clock_timestamp() + ${parameter}::float * interval '1 millisecond'`;
const mayBeTaken = `state = 'waiting' and (not_before is null or not_before <= clock_timestamp())`;
const isMine = `batch = $1 and id = $2 and holder = $3 and state = 'taken'`;

const waiting = `
select name, head from {batches} batch
where gateway = $1 and exists (select from {batch_rows} kept where kept.batch = name and ${mayBeTaken})
order by created_at`;

// A row that this process was given without coming to know of it, since the answer was lost, comes first.
const take = `
with mine as (
    select id from {batch_rows} where batch = $1 and state = 'taken' and holder = $2 and id <> all($4::text[]) limit 1),
  free as (
    select id from {batch_rows} where batch = $1 and ${mayBeTaken} and not exists (select from mine)
    order by position limit 1 for update skip locked)
update {batch_rows} set state = 'taken', holder = $2, ends = ${later('$3')}
where batch = $1 and id in (select id from mine union all select id from free)
returning id, content`;

const renew = `
update {batch_rows} kept set ends = ${later('$4')}
from unnest($1::text[], $2::text[]) as mine (batch, id)
where kept.batch = mine.batch and kept.id = mine.id and holder = $3 and state = 'taken'`;

const recover = `
update {batch_rows} set
  state = case when lost >= 1 then 'aside' else 'waiting' end,
  lost = lost + 1, not_before = null, holder = null, ends = null
where (batch, id) in (
  select batch, id from {batch_rows} where state = 'taken' and ends <= clock_timestamp() for update skip locked)
returning batch, id, state`;

const giveBack = `
update {batch_rows} set state = 'waiting', holder = null, ends = null, not_before = ${later('$4')}, why = $5
where ${isMine}`;

const end = `
update {batch_rows} set state = 'ended', holder = null, ends = null, outcome = $4, why = $5
where ${isMine}`;

const addBatchText = `
insert into {batches} as kept (name, gateway, head) values ($1, $2, $3)
on conflict (name) do update set head = case when kept.gateway = $2 then $3 else kept.head end
returning gateway`;

// What the insertion adds is not seen by the rest of the statement: it gives the rows that were there before.
const addRowsText = `
with given as (
    select * from unnest($2::text[], $3::text[], $4::text[]) with ordinality as given (id, hash, content, place)),
  added as (
    insert into {batch_rows} (batch, id, hash, content) select $1, id, hash, content from given order by place
    on conflict (batch, id) do nothing)
select given.id, kept.hash = given.hash as is_same
from given join {batch_rows} kept on kept.batch = $1 and kept.id = given.id order by place`;
