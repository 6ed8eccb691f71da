import { toMgwError } from '../../errors.ts';
import type { MgwError } from '../../errors.ts';

/** The result of a check of the set-up. */
export interface Check {
  name: string;
  status: 'ok' | 'warn' | 'fail' | 'skip';
  /** The finding, on one line. */
  detail: string;
  /** How to fix it. */
  hint?: string;
  /** The error of a failed check; it decides the exit code. */
  error?: MgwError;
}

/** A check that passed. */
export function ok(name: string, detail: string): Check {
  return { name, status: 'ok', detail };
}

/** A check with a warning. */
export function warn(name: string, detail: string, hint: string): Check {
  return { name, status: 'warn', detail, hint };
}

/** A check that failed: mgw cannot work. */
export function fail(name: string, error: unknown, hint: string): Check {
  const known = toMgwError(error);
  return { name, status: 'fail', detail: known.message, hint, error: known };
}

/** A check that was skipped because an earlier one failed. */
export function skip(name: string, why: string): Check {
  return { name, status: 'skip', detail: why };
}

/** Runs a check. An error that it throws is a failed check. */
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
