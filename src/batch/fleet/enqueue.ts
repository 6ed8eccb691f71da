import { hash } from 'node:crypto';
import { MgwError, usageError } from '../../errors.ts';
import { at, textAt } from '../../json.ts';
import { isSameGateway } from '../../jobs/order.ts';
import { isUnaccepted } from '../../jobs/reconcile.ts';
import type { Row } from '../manifest/row.ts';
import { maxLineBytes } from '../manifest/source.ts';
import { planBatch, type Batch, type Plan, type PlanDeps } from '../plan.ts';
import {
  type NamedRow,
  hashOf,
  isSpeech,
  needsFrame,
  needsUrls,
  type SpeechWork,
  type Work,
} from '../planned-row.ts';
import { payable, retryUnlessLost, rowStatusOf } from '../row-state.ts';
import type { Query } from './fleet-state.ts';
import { removeRows, requeueRows, rowsInState, type QueuedRow, type RowVersion } from './queued-row.ts';
import { addRows, type NewRow } from './row-queue.ts';

/** The result of enqueueing a batch. */
export interface Enqueued {
  plan: Plan;
  added: number;
  /** The number of queued rows whose content was replaced, so that the earlier content is not paid for. */
  replaced: number;
  /** The ids of rows that were already queued with different content. The queue keeps the earlier content. */
  changed: string[];
  /** The ids of waiting rows that are not in the file. A worker will pay for them. */
  missing: string[];
  /** The number of waiting rows that were removed from the queue because they are not in the file. */
  removed: number;
}

/** Dependencies for enqueueing rows. */
export interface EnqueueDeps extends PlanDeps {
  /**
   * Whether the user's own program (`store.command`) uploads the input files. It must run on a machine that has the
   * files.
   */
  usesProgram: boolean;
  /** The command that runs the batch without the queue. */
  runCommand?: string[];
}

/** The maximum numbers of rows and bytes in one statement. */
const [maxRows, maxBytes] = [500, 4 * 1024 * 1024];

/**
 * Checks every row of a batch, as `batch plan` does. Sends nothing and does not read the ledger, because the worker
 * that claims a row checks whether the row was paid for.
 */
export function checkRows(
  batch: Batch,
  deps: EnqueueDeps,
  onRow: (planned: NamedRow) => void,
): Promise<Plan> {
  return planBatch({ ...batch, force: true }, withoutLedger(deps), (planned) => {
    newRow(planned, deps);
    onRow(planned);
  });
}

/**
 * Enqueues the valid rows of a batch, which must be in the queue. Memory use does not grow with their number. Rows that
 * are already queued are not added again, so an interrupted call can be repeated.
 * @param options `ids`: the ids of the file's valid rows; `removesMissing`: whether to remove waiting rows with other
 * ids
 * @throws MgwError('unreachable').
 */
export async function enqueue(
  batch: Batch,
  options: { ids: string[]; removesMissing: boolean },
  deps: EnqueueDeps,
  query: Query,
): Promise<Enqueued> {
  // Removes the missing rows before adding others, so that no worker pays for both versions of a row without an id.
  const waiting = await rowsInState(query, batch.name, 'waiting', options.ids);
  const missing = await unpaidRows(waiting, batch.name, deps);
  const removed = options.removesMissing ? await removeRows(query, batch.name, missing) : 0;
  const chunk: { row: NewRow; planned: NamedRow }[] = [];
  let bytes = 0;
  const result = { added: 0, replaced: 0, changed: [] as string[] };
  const flush = async (): Promise<void> => {
    bytes = 0;
    if (chunk.length === 0) return;
    const rows = chunk.splice(0);
    const { added, changed } = await addRows(
      query,
      batch.name,
      rows.map(({ row }) => row),
    );
    result.added += added;
    for (const { row, planned } of rows.filter(({ row: { id } }) => changed.includes(id))) {
      // Without changes, either nothing was sent for the row or its latest job has the new content.
      const { state, changes } = await rowStatusOf(planned, { ...deps, isAnywhere: true });
      const options = {
        canRequeue: ['new', 'running', 'rejected'].includes(state),
        canReplaceClaimed: state !== 'new',
      };
      if (changes === undefined && (await replaceRow(query, batch.name, row, options))) result.replaced += 1;
      else result.changed.push(row.id);
    }
  };
  const plan = await planBatch({ ...batch, force: true }, withoutLedger(deps), async (planned) => {
    const { row, size } = newRow(planned, deps);
    // The row refers to uploaded files by content hash. A worker creates its own URLs.
    if (!isSpeech(planned.work)) await planned.work.upload?.();
    chunk.push({ row, planned });
    bytes += size;
    if (chunk.length >= maxRows || bytes >= maxBytes) await flush();
  });
  await flush();
  return {
    plan,
    ...result,
    removed,
    missing: options.removesMissing ? [] : missing.map(({ id }) => id),
  };
}

/**
 * Requeues the batch's rows that are quarantined, and those that have ended if the ledger contains no accepted job for
 * them. Returns the number of requeued rows.
 */
export async function requeue(query: Query, batch: string, deps: Pick<PlanDeps, 'ledger'>): Promise<number> {
  const endedRows = await rowsInState(query, batch, 'ended');
  return requeueRows(query, batch, await unpaidRows(endedRows, batch, deps));
}

// Returns the rows for which nothing was accepted. Removing them from the queue abandons no task, and running them
// again pays for no row twice.
async function unpaidRows(
  rows: readonly RowVersion[],
  batch: string,
  { ledger }: Pick<PlanDeps, 'ledger'>,
): Promise<RowVersion[]> {
  const unpaid: RowVersion[] = [];
  for (let at = 0; at < rows.length; at += maxRows) {
    const page = rows.slice(at, at + maxRows);
    // The ledger combines parallel reads.
    const takes = await Promise.all(page.map(({ id }) => retryUnlessLost(ledger, `${batch}/${id}`)));
    for (const [index, take] of takes.entries()) {
      const row = page[index];
      if (row === undefined || take === undefined) continue;
      if (take.job === undefined || isUnaccepted(take.job)) unpaid.push(row);
    }
  }
  return unpaid;
}

/**
 * Returns a function to call before paying for a row from a batch's file. The function stores the row's
 * content in the queue, so that commands that take the batch's name do not pay for earlier content. Returns
 * undefined if the batch is not enqueued.
 * @param note called for a row whose earlier content remains in the queue, because its new content cannot be enqueued
 * @throws MgwError('unreachable'), also from the returned function.
 */
export async function queueUpdater(
  name: string,
  deps: PlanDeps,
  query: Query,
  note: (text: string) => void,
): Promise<((planned: NamedRow) => Promise<void>) | undefined> {
  const [queued] = await query<{ gateway: string }>('select gateway from {batches} where name = $1', [name]);
  if (queued === undefined || !isSameGateway(queued.gateway, deps.gateway)) return undefined;
  return async (planned) => {
    const updated = updatedRow(planned, deps);
    if (!('problem' in updated)) {
      await replaceRow(query, name, updated);
      return;
    }
    const stale = await query<{ id: string }>(
      'select id from {batch_rows} where batch = $1 and id = $2 and hash <> $3',
      [name, planned.id, queueHashOf(planned.work)],
    );
    if (stale.length > 0)
      note(
        `${updated.problem} The queue keeps the row's earlier content. To retry the row, specify the file instead of the name ${name}.`,
      );
  };
}

// `problem` is the reason why the row cannot be enqueued, such as a size over 8 MiB.
function updatedRow(planned: NamedRow, deps: PlanDeps): NewRow | { problem: string } {
  try {
    return newRow(planned, { ...deps, usesProgram: false }).row;
  } catch (error) {
    if (error instanceof MgwError && error.code === 'usage') return { problem: error.message };
    throw error;
  }
}

/**
 * Replaces a row's content in the queue if the new content differs. Returns whether the content was replaced.
 * @param canRequeue whether to requeue the row if it has ended
 * @param canReplaceClaimed whether to replace the content if a worker has claimed the row and may be sending it
 */
async function replaceRow(
  query: Query,
  batch: string,
  { id, hash, row }: NewRow,
  { canRequeue = false, canReplaceClaimed = true } = {},
): Promise<boolean> {
  const replaced = await query<{ id: string }>(
    `update {batch_rows} set hash = $3, content = $4, why = null, not_before = null,
      state = case when state = 'ended' and $5::boolean then 'waiting' else state end
    where batch = $1 and id = $2 and hash <> $3 and ($6::boolean or state <> 'taken') returning id`,
    [batch, id, hash, JSON.stringify(row), canRequeue, canReplaceClaimed],
  );
  return replaced.length > 0;
}

function withoutLedger(deps: PlanDeps): PlanDeps {
  return { ...deps, statusOf: ({ key, work }) => payable(work, { state: 'new', take: { number: 1, key } }) };
}

// Embeds the content of a row's files in the row, because workers cannot read the files.
function newRow(
  { id, row, work, waitsFor = [] }: NamedRow,
  { usesProgram, runCommand, redact }: EnqueueDeps,
): { row: NewRow; size: number } {
  const { index, line, output, endpoint, tags, set, flags, over } = row;
  const reason =
    waitsFor.length > 0 ? `it waits for ${waitsFor.join(', ')}` : 'it uses a frame from an earlier job';
  if (waitsFor.length > 0 || needsFrame(work))
    throw usageError(
      `line ${line}: the row ${id} cannot be enqueued: ${reason}, and a worker on another machine does not have the required video. Run the batch on each machine instead.`,
      runCommand,
    );
  if (usesProgram && needsUrls(work))
    throw usageError(
      `line ${line}: the row ${id} cannot be enqueued: a worker does not have the row's file, and store.command can upload only from that file. Configure a store instead: mgw config set store s3://BUCKET/PREFIX`,
    );
  const sharedFields = { id, index, line, output, tags };
  const queuedRow: QueuedRow = isSpeech(work)
    ? {
        ...sharedFields,
        kind: 'tts',
        text: textAt(work.body, 'req_params.text') ?? '',
        ...voicesOf(work, flags),
        set,
        over,
      }
    : { ...sharedFields, kind: work.protocol.name, body: work.userBody, defaults: work.defaults, endpoint };
  const text = JSON.stringify(queuedRow);
  if (redact(text) !== text)
    throw usageError(
      `line ${line}: the row contains the API key, which the queue would store. Remove the key.`,
    );
  const size = text.length;
  if (size > maxLineBytes)
    throw usageError(
      `line ${row.line}: the row ${id} and its files take up ${Math.ceil(size / 2 ** 20)} MiB, but an enqueued row may take up at most 8 MiB. Use URLs instead.`,
    );
  return { row: { id, hash: queueHashOf(work), row: queuedRow }, size };
}

// Includes the configured defaults, because the queue stores them with the row.
function queueHashOf(work: Work): string {
  const { defaults = {} } = work;
  return hash('sha256', `${hashOf(work)}\n${JSON.stringify(defaults)}`);
}

// Stores the user's flags, with the format of the output's extension, and this machine's defaults.
function voicesOf(
  { userBody = {}, format, defaults = {} }: SpeechWork,
  flags: Row['flags'],
): Pick<Extract<QueuedRow, { kind: 'tts' }>, 'flags' | 'defaults'> {
  const hasFormat = at(userBody, 'req_params.audio_params.format') !== undefined;
  const { sampleRate, ...rest } = defaults;
  return {
    flags: { ...flags, ...(hasFormat && { format: format.name }) },
    defaults: { ...rest, 'sample-rate': String(sampleRate) },
  };
}
