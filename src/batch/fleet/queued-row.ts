import { z } from 'zod';
import { parseDecimal } from '../../decimal.ts';
import { MgwError, messageOf } from '../../errors.ts';
import { isObject, tryParseJson, type JsonObject } from '../../json.ts';
import { isKeyName } from '../../jobs/ref.ts';
import { printableLine } from '../../printable.ts';
import { findProtocol, protocolNames } from '../../protocols/registry.ts';
import type { Row } from '../manifest/row.ts';
import type { Item, IsSkipped, Manifest } from '../manifest/manifest.ts';
import { planRow, type Batch, type PlanDeps } from '../plan.ts';
import type { FlowDeps } from '../../flows/settings.ts';
import type { RunOptions } from '../row-runner.ts';
import type { Query } from './fleet-state.ts';

const headSchema = z.strictObject({
  /** The `base_url` in the job records. A worker claims only rows for its own gateway. */
  gateway: z.string(),
  /** The maximum number of tasks in progress at the gateway, for all workers together. */
  concurrency: z.number().int().min(1).max(10_000),
  perMinute: z.number().int().min(1).max(1_000_000).optional(),
  /** The amount of the batch's budget, in plain digits. */
  budget: z.string().refine(isDecimal).optional(),
  sidecar: z.boolean().optional(),
});

/** The options of an enqueued batch, which are the same on every machine. */
export type QueuedHead = z.infer<typeof headSchema>;

/** An open batch. `withNeededLimit` adds to a budget's error the limit that the rest of the batch needs. */
export interface OpenedBatch {
  batch: Batch;
  plan: PlanDeps;
  job: FlowDeps;
  options: RunOptions;
  withNeededLimit: (error: MgwError) => Promise<MgwError>;
}

const common = {
  index: z.number().int().positive(),
  line: z.number().int().nonnegative(),
  id: z.string().refine(isKeyName),
  /** A path relative to the folder that the worker's `-o` specifies. */
  output: z.string().optional(),
  tags: z.array(z.string().refine(isKeyName)).max(32),
};

const voice = z.strictObject({
  speaker: z.string().optional(),
  format: z.string().optional(),
  'sample-rate': z.string().optional(),
});

// No field refers to a file, because the row contains the content of its files.
const rowSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    ...common,
    kind: z.enum(protocolNames),
    body: z.custom<JsonObject>(isObject),
    defaults: z.record(z.string(), z.unknown()).optional(),
    endpoint: z.string().optional(),
  }),
  z.strictObject({
    ...common,
    kind: z.literal('tts'),
    text: z.string(),
    over: z.string().optional(),
    flags: voice,
    defaults: voice.optional(),
    set: z.array(z.string()),
  }),
]);

/** A row as stored in the queue. */
export type QueuedRow = z.infer<typeof rowSchema>;

function isDecimal(text: string): boolean {
  try {
    return parseDecimal(text) !== undefined;
  } catch {
    return false;
  }
}

/** Parses an enqueued batch's options. @throws MgwError('local_io') if the options are damaged. */
export function parseHead(batch: string, text: string): QueuedHead {
  const parsed = headSchema.safeParse(tryParseJson(text));
  if (parsed.success && isKeyName(batch)) return parsed.data;
  throw new MgwError(
    'local_io',
    `The queue's entry for the batch ${printableLine(batch, 100)} is damaged. Enqueue its file again.`,
  );
}

/** Parses a row from the queue. @throws MgwError('usage') if it is damaged. */
export function parseRow(id: string, text: string): Row {
  const { data: row } = rowSchema.safeParse(tryParseJson(text));
  const isKnownEndpoint = (queued: QueuedRow & { endpoint?: string | undefined }): boolean =>
    queued.endpoint === undefined || findProtocol(queued.kind)?.endpoints?.includes(queued.endpoint) === true;
  if (row?.id === id && isKnownEndpoint(row)) return { flags: {}, set: [], ...row };
  throw new MgwError('usage', `The row ${printableLine(id, 100)} in the queue is damaged.`);
}

/**
 * Whether an invalid row in the queue would be valid with a different `-o`. If so, the worker's own template is the
 * problem, and another worker may run the row.
 */
export async function isValidElsewhere(
  { id, content }: { id: string; content: string },
  batch: Batch,
  deps: PlanDeps,
): Promise<boolean> {
  try {
    const row = parseRow(id, content);
    if (row.output !== undefined) return false;
    await planRow({ ...row, output: '{id}.{ext}' }, batch, deps);
    return true;
  } catch (error) {
    if (error instanceof MgwError && error.code === 'usage') return false;
    throw error;
  }
}

interface QueuedReason {
  id: string;
  why: string | null;
}

/** A batch's rows in the queue that are not done, by state. */
export interface QueueCounts {
  waiting: number;
  taken: number;
  /** Rows quarantined because too many workers died while running them. */
  quarantined: QueuedReason[];
  /** Waiting rows that a worker has returned to the queue, with the reasons. */
  returned: QueuedReason[];
  /** Rows that have ended but were not paid for. */
  unpaid: QueuedReason[];
}

const isUnpaid = `state = 'ended' and outcome in ('bad', 'new', 'rejected')`;

/** The maximum number of rows per query. */
const pageSize = 500;

/**
 * Reads an enqueued batch's options from the queue; returns undefined if no batch has this name.
 * @throws MgwError('local_io') if the options are damaged; MgwError('unreachable').
 */
export async function queuedHeadOf(query: Query, name: string): Promise<QueuedHead | undefined> {
  const [entry] = await query<{ head: string }>('select head from {batches} where name = $1', [name]);
  return entry && parseHead(name, entry.head);
}

/** Reads an enqueued batch's manifest from the queue; returns undefined if no batch has this name. */
export async function queuedManifest(query: Query, name: string): Promise<Manifest | undefined> {
  const queuedHead = await queuedHeadOf(query, name);
  if (queuedHead === undefined) return undefined;
  const head = { name, budget: queuedHead.budget };
  const items = async function* (isSkipped?: IsSkipped): AsyncGenerator<Item> {
    let after = '0';
    let index = 0;
    for (;;) {
      const rows = await query<{ id: string; content: string; place: string }>(
        `select id, content, position::text as place from {batch_rows} where batch = $1 and position > $2::bigint order by position limit ${pageSize}`,
        [name, after],
      );
      for (const { id, content } of rows) {
        index += 1;
        // Renumbers the rows, because two files that were enqueued under the same name both have a row 1.
        const item = itemOf(id, content, index);
        if ('problems' in item || (await isSkipped?.(item.record, index)) !== true) yield item;
      }
      const last = rows.at(-1);
      if (last === undefined) return;
      after = last.place;
    }
  };
  return { path: name, head, defaults: [], items };
}

function itemOf(id: string, content: string, index: number): Item {
  try {
    const row = { ...parseRow(id, content), index };
    return { row, record: { line: row.line, fields: [] } };
  } catch (error) {
    return { problems: [{ line: index, message: messageOf(error) }], isRow: true };
  }
}

/** Returns the names of uploaded files that unfinished rows in the queue need. */
export async function queuedUploads(query: Query): Promise<string[]> {
  const rows = await query<{ name: string }>(
    `select distinct (regexp_matches(content, 'sha256:[0-9a-f]+(?:[.][a-z0-9]+)?', 'g'))[1] as name from {batch_rows} where state <> 'ended'`,
  );
  return rows.map(({ name }) => name);
}

/** Counts a batch's rows by their state in the queue; returns undefined if the batch was never enqueued. */
export async function queueCounts(query: Query, name: string): Promise<QueueCounts | undefined> {
  const counts = await query<{ state: string; count: number }>(
    'select state, count(*)::int as count from {batch_rows} where batch = $1 group by state',
    [name],
  );
  if (counts.length === 0) return undefined;
  const count = (state: string): number => counts.find((each) => each.state === state)?.count ?? 0;
  const reasons = (condition: string): Promise<QueuedReason[]> =>
    query<QueuedReason & Record<string, unknown>>(
      `select id, why from {batch_rows} where batch = $1 and ${condition} order by position limit 1000`,
      [name],
    );
  return {
    waiting: count('waiting'),
    taken: count('taken'),
    quarantined: await reasons(`state = 'quarantined'`),
    returned: await reasons(`state = 'waiting' and why is not null`),
    unpaid: await reasons(isUnpaid),
  };
}

/** An SQL condition that is true if a row waits for its retry. */
export const isDelayed = `state = 'waiting' and not_before > clock_timestamp()`;

/**
 * Requeues the batch's rows that are quarantined, wait for their retry, have ended unpaid or without a result, or have
 * ended and are in `rows`. Returns the number of requeued rows.
 */
export async function requeueRows(
  query: Query,
  batch: string,
  rows: readonly RowVersion[] = [],
): Promise<number> {
  const requeued = await query<{ id: string }>(
    `update {batch_rows} set state = 'waiting', lost = 0, why = null, not_before = null where batch = $1
      and (state = 'quarantined' or (${isDelayed}) or (${isUnpaid})
        or (state = 'ended' and (outcome = 'running' or id = any($2::text[])))) returning id`,
    [batch, rows.map(({ id }) => id)],
  );
  return requeued.length;
}

/** A row in the queue. Every change of the row in the queue changes its version. */
export interface RowVersion {
  id: string;
  version: string;
}

/** Returns a batch's rows in the given state, except those with the given ids. */
export function rowsInState(
  query: Query,
  batch: string,
  state: 'waiting' | 'ended',
  except: readonly string[] = [],
): Promise<RowVersion[]> {
  return query<RowVersion & Record<string, unknown>>(
    `select id, xmin::text as version from {batch_rows} queued where batch = $1 and state = $2
      and not exists (select from unnest($3::text[]) listed (id) where listed.id = queued.id) order by position`,
    [batch, state, except],
  );
}

/**
 * Removes waiting rows from the queue. Keeps a row that was claimed or changed after it was read, because it may have
 * been sent. Returns the number of removed rows.
 */
export async function removeRows(query: Query, batch: string, rows: readonly RowVersion[]): Promise<number> {
  const removed = await query<{ id: string }>(
    `delete from {batch_rows} queued using unnest($2::text[], $3::text[]) listed (id, version)
      where queued.batch = $1 and queued.id = listed.id and queued.xmin::text = listed.version
        and queued.state = 'waiting' returning queued.id`,
    [batch, rows.map(({ id }) => id), rows.map(({ version }) => version)],
  );
  return removed.length;
}
