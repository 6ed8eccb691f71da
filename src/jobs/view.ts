import type { Job, Rating } from '../job.ts';
import { isObject, tryParseJson, type Json } from '../json.ts';
import { visibleFiles } from './output.ts';
import { shownState } from './reconcile.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { noSuchJob } from './errors.ts';
import { usageError } from '../errors.ts';
import { jobIdPattern } from '../ledger/names.ts';

/** A job as users see it, without the ledger's bookkeeping. */
export type JobView = Omit<Job, 'record'>;

/**
 * Returns the job object for `--json`: the members of design 2, in order. A member without a value is `undefined`, not
 * absent, so that `--fields` recognizes its name.
 */
export function jobView(job: Job): JobView {
  return {
    id: job.id,
    protocol: job.protocol,
    model: job.model,
    key: job.key,
    handle: job.handle,
    state: shownState(job),
    native_status: job.native_status,
    progress: job.progress,
    error: job.error,
    base_url: job.base_url,
    created_at: job.created_at,
    submitted_at: job.submitted_at,
    finished_at: job.finished_at,
    fetched_at: job.fetched_at,
    files: visibleFiles(job),
    cost: job.cost,
    tags: job.tags,
    rating: job.rating,
    note: job.note,
    rated_at: job.rated_at,
    usage: job.usage,
    details: visibleDetails(job),
    request: job.request,
  };
}

// Omits the path of the audio's temporary file once the audio is published.
function visibleDetails({ details, files }: Job): unknown {
  if (!isObject(details) || details['kept'] === undefined || files.length === 0) return details;
  const others = Object.entries(details).filter(([name]) => name !== 'kept');
  return others.length === 0 ? undefined : Object.fromEntries(others);
}

/** Maximum length of a note, in UTF-16 code units. */
export const maxNoteLength = 4000;

/**
 * Records the user's rating of a job's result, replacing any earlier rating. Does nothing if the rating is unchanged.
 * @throws MgwError('usage') if there is no such job, MgwError('local_io') if the rating cannot be recorded.
 */
export async function rateJob(ledger: Ledger, id: string, { rating, note }: Rating): Promise<Job> {
  const job = (await ledger.read(id)) ?? noSuchJob(id);
  const trimmedNote =
    note === undefined || note.trim() === '' ? undefined : note.trim().slice(0, maxNoteLength);
  if (job.rating === rating && job.note === trimmedNote) return job;
  await ledger.append(id, { type: 'rated', rating, note: trimmedNote });
  return (await ledger.read(id)) ?? job;
}

/** A rating as sent by the gallery page and as exported to `ratings.json`. */
export interface GalleryRating extends Rating {
  job: string;
  /** The time of the rating, ISO 8601 in UTC. */
  at: string;
}

/**
 * Parses the content of a `ratings.json`.
 * @throws MgwError('usage') with the number of the first invalid entry.
 */
export function readRatings(text: string, name: string): GalleryRating[] {
  const json = tryParseJson(text);
  const entries = isObject(json) ? json['ratings'] : undefined;
  if (!Array.isArray(entries)) throw usageError(`${name} is not a ratings.json from a gallery.`);
  return entries.map((entry, index) => {
    const rating = readRating(entry);
    if (rating === undefined) throw usageError(`${name}: entry ${index + 1} is not a rating.`);
    return rating;
  });
}

/** Parses a rating from a gallery; undefined if it is invalid. */
export function readRating(entry: Json | undefined): GalleryRating | undefined {
  if (!isObject(entry)) return undefined;
  const { job, rating, note, at = '' } = entry;
  const isRating =
    rating === undefined || (Number.isInteger(rating) && Number(rating) >= 1 && Number(rating) <= 5);
  const isNote = note === undefined || typeof note === 'string';
  if (typeof job !== 'string' || !jobIdPattern.test(job) || !isRating || !isNote || typeof at !== 'string')
    return undefined;
  return { job, rating: rating as number | undefined, note, at };
}
