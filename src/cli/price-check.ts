import { parsePrice } from '../budget/prices.ts';
import type { KeyPath } from '../config/keys.ts';
import { messageOf, usageError } from '../errors.ts';
import { pricedBy } from '../flows/prices.ts';

/** Checks a price of the config (`prices.c.MODEL`). @throws MgwError('usage') saying what is allowed. */
export function checkPrice(path: KeyPath, words: readonly string[]): void {
  const { flags, units } = pricedBy(path[1] ?? '');
  try {
    parsePrice(words.join('; '), flags, units);
  } catch (error) {
    throw usageError(`${path.join('.')}: ${messageOf(error)}.`);
  }
}
