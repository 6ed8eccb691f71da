import type { Option } from 'commander';
import { parseDuration } from '../duration.ts';
import { usageError } from '../errors.ts';
import { single } from './options.ts';

/** `--since TIME`; read by {@link sinceTime}. */
export function sinceOption(): Option {
  return single('--since <time>', 'a day such as 2026-11-22, a time, or how long ago, such as 7d');
}

/**
 * The moment that `--since` names, ISO 8601 in UTC, as the records have it; `now` in ms since 1970.
 * @throws MgwError('usage') where it names none.
 */
export function sinceTime(text: string, now: number): string {
  if (/^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/.test(text)) {
    const time = Date.parse(text);
    if (!Number.isNaN(time)) return new Date(time).toISOString();
  }
  try {
    return new Date(now - parseDuration(text)).toISOString();
  } catch {
    throw usageError(
      '--since: allowed is a day such as 2026-11-22, a time such as 2026-11-22T08:00:00Z, or how long ago, such as 7d.',
    );
  }
}
