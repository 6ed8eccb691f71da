import { expensesOf } from '../budget/spend.ts';
import { formatDecimal } from '../decimal.ts';
import { requestIdOf } from '../http/failures.ts';
import type { Delivered, Mismatch, RecordedEvent } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { newestJobs } from '../jobs/newest.ts';

/** The evidence that a paid video is not what was asked for. */
export interface Disputed {
  job: string;
  model?: string | undefined;
  /** The gateway's id of the task. */
  task?: string | undefined;
  /** The gateway's id of the call that submitted it; absent if it gave none. */
  request_id?: string | undefined;
  submitted_at?: string | undefined;
  finished_at?: string | undefined;
  /** Of the whole job, an exact decimal; absent if no price was known. */
  price?: string | undefined;
  path: string;
  sha256: string;
  delivered?: Delivered | undefined;
  mismatches: Mismatch[];
}

/** Returns the evidence for each file that differs from its request (design 19), newest first. @param since ISO 8601 time */
export async function disputedFiles(ledger: Ledger, since: string | undefined): Promise<Disputed[]> {
  const { shown } = await newestJobs(ledger, { mismatched: true, since }, Infinity);
  const all = await Promise.all(
    shown.map(async (job) => {
      const events = await ledger.events(job.id);
      const amount = expensesOf(job, events).at(-1)?.amount;
      const about = {
        job: job.id,
        model: job.model,
        task: job.handle,
        request_id: requestIdIn(events),
        submitted_at: job.submitted_at,
        finished_at: job.finished_at,
        price: amount && formatDecimal(amount),
      };
      return job.files.flatMap(({ path, sha256, delivered, mismatches }) =>
        mismatches === undefined ? [] : [{ ...about, path, sha256, delivered, mismatches }],
      );
    }),
  );
  return all.flat();
}

// The response that was recorded last before the task was accepted.
function requestIdIn(events: readonly (RecordedEvent | undefined)[]): string | undefined {
  const accepted = events.findIndex((event) => event?.type === 'accepted');
  const before = accepted < 0 ? events : events.slice(0, accepted);
  const reply = before.findLast((event) => event?.type === 'reply');
  return reply && requestIdOf(reply.reply);
}
