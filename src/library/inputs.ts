import { parseDuration } from '../duration.ts';
import { messageOf, usageError } from '../errors.ts';
import type { Target } from '../jobs/target.ts';
import { isObject, parseBodyJson, type Json, type JsonObject } from '../json.ts';
import { nearestName } from '../nearest.ts';
import type { Duration } from './options.ts';

/**
 * Refuses an unknown option: a misspelt `key` or `budget` could cost money.
 * @throws MgwError('usage') with the nearest name.
 */
export function checkNames(given: object, names: Record<string, true>, what: string): void {
  if (typeof given !== 'object' || given === null) throw usageError(`${what}: give an object of options.`);
  const stray = Object.keys(given).find((name) => !Object.hasOwn(names, name));
  if (stray === undefined) return;
  const near = nearestName(stray, Object.keys(names));
  const hint = near === undefined ? `There are: ${Object.keys(names).join(', ')}.` : `Did you mean ${near}?`;
  throw usageError(`${what}: there is no option ${stray}. ${hint}`);
}

/** Parses a duration into ms. @throws MgwError('usage') saying what is allowed. */
export function durationMs(given: Duration, name: string): number {
  const text = typeof given === 'number' ? `${given}ms` : given;
  try {
    return parseDuration(text);
  } catch (error) {
    throw usageError(`${name} ${text}: must be ${messageOf(error)}, or whole milliseconds.`);
  }
}

/** Returns the target of an `output`. @throws MgwError('usage') if it cannot name a file. */
export function targetOf(output: string | undefined): (Target & { kind: 'file' }) | undefined {
  if (output === undefined) return undefined;
  if (typeof output !== 'string' || output === '' || output === '-' || output.includes('\0'))
    throw usageError('output: give the path of a file.');
  return { kind: 'file', path: output };
}

/** Returns an amount as exact decimal text. */
export function amountText(budget: string | number | undefined): string | undefined {
  return budget === undefined ? undefined : String(budget);
}

/** Returns an object as the JSON that is sent. @throws MgwError('usage') if it would not be sent unchanged. */
export function jsonObject(given: object, name: string): JsonObject {
  let json: Json | undefined;
  try {
    json = parseBodyJson(JSON.stringify(given) ?? 'null');
  } catch (error) {
    throw usageError(`${name}: ${messageOf(error)}.`);
  }
  if (!isObject(json)) throw usageError(`${name}: it must be an object.`);
  return json;
}
