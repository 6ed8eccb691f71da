import { batchBudgetName } from '../budget/budget.ts';
import { type Expense, expensesOf, groupsOf, type SpendGroup, type Sum, Sums } from '../budget/spend.ts';
import { add, type Decimal, formatDecimal, parseDecimal, zero } from '../decimal.ts';
import { MgwError } from '../errors.ts';
import { foldJob } from '../ledger/fold.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { requestIdOf } from '../http/failures.ts';
import type { Delivered, Job, Mismatch, RecordedEvent } from '../job.ts';
import type { Json } from '../json.ts';
import { matchingJobs } from '../jobs/newest.ts';
import type { JobDeps } from '../jobs/order.ts';

/** The cost of a ledger's jobs, by group and in total. */
export interface SpendReport {
  /** The sums for each group, sorted by name. The name is '' for jobs without a group. */
  groups: [name: string, sums: Sums][];
  total: Sums;
}

/**
 * Adds up the cost of a ledger's jobs (design 14).
 * @param start ISO 8601 time; earlier submissions are excluded
 */
export async function addUp(ledger: Ledger, by: SpendGroup, start: string): Promise<SpendReport> {
  const [groups, total] = [new Map<string, Sums>(), new Sums()];
  for await (const { expense } of expensesIn(ledger)) {
    if (expense.at < start) continue;
    total.add(expense);
    for (const name of groupsOf(expense, by)) {
      const sums = groups.get(name) ?? new Sums();
      sums.add(expense);
      groups.set(name, sums);
    }
  }
  return { groups: [...groups].sort(([one], [other]) => (one < other ? -1 : 1)), total };
}

/**
 * Returns what a batch's jobs cost, or may have cost, in runs without `--budget`. A cost that was unknown at the
 * submission is computed from the current price.
 * @throws MgwError('budget') if a price is still unknown.
 */
export async function costOutsideBudget(
  batch: string,
  { ledger, priceOf }: Pick<JobDeps, 'ledger' | 'priceOf'>,
): Promise<Decimal> {
  let sum = zero;
  for await (const { job, expense } of expensesIn(ledger)) {
    if (!groupsOf(expense, 'batch').includes(batch) || expense.budgets.includes(batchBudgetName(batch)))
      continue;
    const price = expense.amount ?? (await priceOf({ ...job, body: (job.request ?? null) as Json }));
    if ('digits' in price) sum = add(sum, price);
    else if (price.cost !== undefined) sum = add(sum, parseDecimal(price.cost.at_most));
    else
      throw new MgwError(
        'budget',
        `No price is known for ${price.subject}, which earlier runs of the batch ${batch} used, so mgw cannot tell what is left of its budget. The request was not sent.`,
        { retry: 'safe', next: price.priceCommand },
      );
  }
  return sum;
}

/**
 * Returns the cost of a ledger's jobs in the format of `--json`.
 * @param start as for {@link addUp}
 */
export async function spendBy(
  ledger: Ledger,
  by: SpendGroup,
  start: string,
): Promise<Record<string, unknown>> {
  return spendView(by, await addUp(ledger, by, start));
}

/** Returns the JSON representation of a report. */
export function spendView(by: SpendGroup, { groups, total }: SpendReport): Record<string, unknown> {
  return {
    by,
    rows: groups.map(([name, sums]) => ({ [by]: name || null, ...view(sums) })),
    total: view(total),
  };
}

// Maximum number of records to read at once. A shared ledger reads them with one query.
const maxAtOnce = 500;

async function* expensesIn(ledger: Ledger): AsyncGenerator<{ job: Job; expense: Expense }> {
  for await (const [id, events] of recordsIn(ledger)) {
    const job = foldJob(id, events) ?? (await ledger.read(id));
    if (job !== undefined) for (const expense of expensesOf(job, events)) yield { job, expense };
  }
}

type JobRecord = [id: string, events: Awaited<ReturnType<Ledger['events']>>];

async function* recordsIn(ledger: Ledger): AsyncGenerator<JobRecord> {
  const ids = await ledger.ids();
  while (ids.length > 0) {
    const batch = ids.splice(0, maxAtOnce);
    yield* await Promise.all(batch.map(async (id): Promise<JobRecord> => [id, await ledger.events(id)]));
  }
}

function view({ spent, failed, doubt }: Sums): Record<string, unknown> {
  return { spent: sumView(spent), failed: sumView(failed), doubt: sumView(doubt) };
}

function sumView({ charges, total, known, unpriced }: Sum): Record<string, unknown> {
  return { charges, amount: total, ...(unpriced > 0 && { known: formatDecimal(known), unpriced }) };
}

/** Evidence that a paid video differs from its request. */
export interface DisputedFile {
  job: string;
  model?: string | undefined;
  /** The gateway's id for the task. */
  task?: string | undefined;
  /** The gateway's id for the submission call; absent if the gateway returned none. */
  request_id?: string | undefined;
  submitted_at?: string | undefined;
  finished_at?: string | undefined;
  /** The whole job's price, as an exact decimal; absent if unknown. */
  price?: string | undefined;
  path: string;
  sha256: string;
  /** The SHA-256 of the bytes from the gateway; absent unless `--mark` changed the file. */
  unmarked_sha256?: string | undefined;
  delivered?: Delivered | undefined;
  mismatches: Mismatch[];
}

/**
 * Yields the evidence for each file that differs from its request (design 19), newest first. A file that was saved
 * several times is yielded once.
 * @param since ISO 8601 time
 */
export async function* disputedFiles(
  ledger: Ledger,
  since: string | undefined,
): AsyncGenerator<DisputedFile> {
  for await (const { job } of matchingJobs(ledger, { mismatched: true, since })) {
    const events = await ledger.events(job.id);
    const amount = expensesOf(job, events).at(-1)?.amount;
    const jobFields = {
      job: job.id,
      model: job.model,
      task: job.handle,
      request_id: requestIdIn(events),
      submitted_at: job.submitted_at,
      finished_at: job.finished_at,
      price: amount && formatDecimal(amount),
    };
    const knownHashes = new Set<string>();
    for (const { path, sha256, unmarked_sha256, delivered, mismatches } of job.files) {
      const isKnown = knownHashes.has(unmarked_sha256 ?? sha256);
      knownHashes.add(unmarked_sha256 ?? sha256);
      if (mismatches !== undefined && !isKnown)
        yield { ...jobFields, path, sha256, unmarked_sha256, delivered, mismatches };
    }
  }
}

// Returns the request id of the last response that was recorded before the task was accepted.
function requestIdIn(events: readonly (RecordedEvent | undefined)[]): string | undefined {
  let requestId: string | undefined;
  for (const event of events) {
    if (event?.type === 'accepted') break;
    if (event?.type === 'reply') requestId = requestIdOf(event.reply);
  }
  return requestId;
}
