import { usageError } from '../errors.ts';
import { isObject, tryParseJson, type Json } from '../json.ts';
import { jobIdForm } from '../ledger/job-id.ts';
import type { ExportedRating } from './data.ts';

/**
 * Parses a `ratings.json`.
 * @throws MgwError('usage') that names the first entry that is not a rating.
 */
export function readRatings(text: string, name: string): ExportedRating[] {
  const json = tryParseJson(text);
  const entries = isObject(json) ? json['ratings'] : undefined;
  if (!Array.isArray(entries)) throw usageError(`${name} is not a ratings.json of a gallery.`);
  return entries.map((entry, index) => {
    const rating = readRating(entry);
    if (rating === undefined) throw usageError(`${name}: entry ${index + 1} is not a rating.`);
    return rating;
  });
}

/** Parses a rating that a page has sent or exported; undefined if it is not one. */
export function readRating(entry: Json | undefined): ExportedRating | undefined {
  if (!isObject(entry)) return undefined;
  const { job, rating, note, at = '' } = entry;
  const isRating =
    rating === undefined || (Number.isInteger(rating) && Number(rating) >= 1 && Number(rating) <= 5);
  const isNote = note === undefined || typeof note === 'string';
  if (typeof job !== 'string' || !jobIdForm.test(job) || !isRating || !isNote || typeof at !== 'string')
    return undefined;
  return { job, rating: rating as number | undefined, note, at };
}
