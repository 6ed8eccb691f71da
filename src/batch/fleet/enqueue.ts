import { usageError } from '../../errors.ts';
import { mostLineBytes } from '../manifest/source.ts';
import type { Row } from '../manifest/row.ts';
import { planBatch, type Batch, type Plan, type PlanDeps } from '../plan.ts';
import type { NamedRow } from '../planned-row.ts';
import { fieldOf, hashOf, isSpeech } from '../work.ts';
import { asking, type Database } from './database.ts';
import { addBatch, addRows, type NewRow, type QueuedHead } from './row-queue.ts';

/** What became of the rows of a batch that was put into the queue. */
export interface Enqueued {
  plan: Plan;
  added: number;
  /** Ids of rows that were there before, and asked for something else: they stay as they were. */
  changed: string[];
}

/** Rows that go to the database at a time, by their number and their bytes. */
const [mostRows, mostBytes] = [500, 4 * 1024 * 1024];

/**
 * Checks every row of a batch, as `batch plan` does; nothing is sent, and nothing asked of the ledger: what was paid for
 * is found out by whoever is handed the row.
 */
export function checkRows(batch: Batch, deps: PlanDeps): Promise<Plan> {
  return planBatch({ ...batch, force: true }, untouched(deps), (planned) => void newRow(planned));
}

/**
 * Puts the rows of a batch that can be carried out into the queue, in memory that does not grow with their number. The same
 * rows again add nothing, so that what was cut off is put right by doing it again.
 * @throws MgwError('usage') where a batch of that name is meant for another gateway, MgwError('unreachable').
 */
export async function enqueue(
  batch: Batch,
  head: QueuedHead,
  deps: PlanDeps,
  database: Database,
): Promise<Enqueued> {
  const ask = asking(database);
  await addBatch(ask, { name: batch.name, head });
  const chunk: NewRow[] = [];
  let bytes = 0;
  const result = { added: 0, changed: [] as string[] };
  const flush = async (): Promise<void> => {
    bytes = 0;
    if (chunk.length === 0) return;
    const { added, changed } = await addRows(ask, batch.name, chunk.splice(0));
    result.added += added;
    result.changed.push(...changed);
  };
  const plan = await planBatch({ ...batch, force: true }, untouched(deps), async (planned) => {
    const { row, size } = newRow(planned);
    chunk.push(row);
    bytes += size;
    if (chunk.length >= mostRows || bytes >= mostBytes) await flush();
  });
  await flush();
  return { plan, ...result };
}

function untouched(deps: PlanDeps): PlanDeps {
  return { ...deps, standing: ({ key }) => ({ state: 'new', take: { number: 1, key } }) };
}

// What a row names by a file is read here and goes along: no worker needs that file.
function newRow({ id, row, work }: NamedRow): { row: NewRow; size: number } {
  const spoken = fieldOf(work, 'prompt');
  const own: Row = isSpeech(work)
    ? { ...row, file: undefined, text: typeof spoken === 'string' ? spoken : row.text }
    : { ...row, flags: {}, set: [], body: work.asked };
  const carried = { id, hash: hashOf(work), row: { ...own, id } };
  const size = JSON.stringify(carried.row).length;
  if (size > mostLineBytes)
    throw usageError(
      `line ${row.line}: with the files that it names, the row ${id} has ${Math.ceil(size / 2 ** 20)} MiB, and a row that is enqueued has room for 8: give their addresses instead.`,
    );
  return { row: carried, size };
}
