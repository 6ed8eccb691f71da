import type { Job, Rating } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { missing } from './ref.ts';

/** The longest note that is kept, UTF-16 code units. */
export const longestNote = 4000;

/**
 * Records what a person thinks of a job's result, in place of what they thought before; nothing if that is the same.
 * @throws MgwError('usage') if there is no such job, MgwError('local_io') if it cannot be recorded.
 */
export async function rateJob(ledger: Ledger, id: string, { rating, note }: Rating): Promise<Job> {
  const job = (await ledger.read(id)) ?? missing(id);
  const kept = note === undefined || note.trim() === '' ? undefined : note.trim().slice(0, longestNote);
  if (job.rating === rating && job.note === kept) return job;
  await ledger.append(id, { type: 'rated', rating, note: kept });
  return (await ledger.read(id)) ?? job;
}
