import type { Failure } from '../exchange.ts';
import { at, isObject, textAt, type Json } from '../json.ts';

/** Returns the sentence that says when the gateway wants the next try, with a space before it; empty if it did not say. */
export function retryHint({ retryAfterMs = 0 }: Pick<Failure, 'retryAfterMs'>): string {
  return retryAfterMs > 0 ? ` Try again in ${Math.ceil(retryAfterMs / 1000)} s.` : '';
}

// No time takes more to say, UTF-16 code units.
const longest = 100;

/**
 * The least time to wait before another try, ms, as `Retry-After` (seconds or an HTTP date), `retry-after-ms`
 * or Google's `RetryInfo` say it; undefined if none is given or readable. Never negative.
 */
export function retryAfter(
  headers: Record<string, string>,
  body?: Json,
  now: number = Date.now(),
): number | undefined {
  const found = [
    number(headers['retry-after-ms'], 1),
    ...(headers['retry-after'] ?? '')
      .slice(0, longest)
      .split(/,\s(?=\d+$)/)
      .map((value) => headerValue(value, now)),
    retryInfo(body),
  ].filter((ms) => ms !== undefined);
  return found.length > 0 ? Math.max(0, ...found) : undefined;
}

function headerValue(value: string, now: number): number | undefined {
  if (/^\s*-?[\d.]+(e\d+)?\s*$/i.test(value)) return number(value, 1000);
  // Without a time of day it is no HTTP date, though the engine makes one of any word and number.
  const date = /\d\d:\d\d:\d\d/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? undefined : date - now;
}

function number(text: string | undefined, unitMs: number): number | undefined {
  const value = text === undefined || text.trim() === '' ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value * unitMs : undefined;
}

function retryInfo(body: Json | undefined): number | undefined {
  const details = at(body, 'error.details');
  const info = Array.isArray(details)
    ? details.find((entry) => isObject(entry) && 'retryDelay' in entry)
    : undefined;
  const seconds = /^([\d.]+)s$/.exec(textAt(info, 'retryDelay') ?? '')?.[1];
  return number(seconds, 1000);
}
