import { toMgwError } from '../../errors.ts';
import type { MgwError } from '../../errors.ts';

/** What one look at the set-up found. */
export interface Check {
  name: string;
  status: 'ok' | 'warn' | 'fail' | 'skip';
  /** What was found, on one line. */
  detail: string;
  /** What to do about it. */
  hint?: string;
  /** The error of a failed check; it decides the exit code. */
  error?: MgwError;
}

/** A check that found nothing to complain of. */
export function ok(name: string, detail: string): Check {
  return { name, status: 'ok', detail };
}

/** A check that found what may do harm one day. */
export function warn(name: string, detail: string, hint: string): Check {
  return { name, status: 'warn', detail, hint };
}

/** A check that found what stops mgw. */
export function fail(name: string, error: unknown, hint: string): Check {
  const known = toMgwError(error);
  return { name, status: 'fail', detail: known.message, hint, error: known };
}

/** A check that another one has to precede. */
export function skip(name: string, why: string): Check {
  return { name, status: 'skip', detail: why };
}

/** Runs a check; what it throws is a failed check. */
export async function attempt(
  name: string,
  hint: string,
  look: () => Check | Promise<Check>,
): Promise<Check> {
  try {
    return await look();
  } catch (error) {
    return fail(name, error, hint);
  }
}
