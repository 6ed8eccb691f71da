import type { JobCost } from '../job.ts';
import { at, type Json, type JsonObject } from '../json.ts';
import { longName } from '../protocols/compose.ts';
import type { Flag, Quantity } from '../protocols/protocol.ts';
import { shownValue } from '../protocols/violations.ts';
import {
  add,
  compare,
  decimalOf,
  formatDecimal,
  multiply,
  parseAmount,
  parseDecimal,
  shifted,
  zero,
  type Decimal,
} from '../decimal.ts';

/** What a price is for. */
export type Unit = 'second' | 'video' | '10k_characters' | '10k_visible_characters';

/** What videos are priced by, and what speech is; of `10k_visible_characters` white space is free. */
export const videoUnits: readonly Unit[] = ['second', 'video'];
export const speechUnits: readonly Unit[] = ['10k_characters', '10k_visible_characters'];

/** One line of a price: what each unit costs if every condition holds. */
interface Rate {
  conditions: { field: string; value: string }[];
  amounts: Map<Unit, Decimal>;
  /** The seconds that are billed of each video if a request leaves its length open. */
  defaultSeconds?: number;
}

/** The price of a model: the rate with the most conditions that hold counts. */
export type Price = readonly Rate[];

/** The factors of specification 8 that every price is multiplied by. */
export interface Multipliers {
  group?: Decimal;
  user?: Decimal;
}

const examples = 'such as second=0.12, video=1.5, 10k_characters=2, or resolution=2K: second=0.40';
const allUnits = [...videoUnits, ...speechUnits];
const defaultSeconds = 'default_seconds';

/**
 * Reads a price: `second=0.12`, or `resolution=2K: second=0.40` if it holds for one value of a field. Several
 * are separated by `;` or a line break. `default_seconds=5` is what is billed if a request asks for no length.
 * `flags` is the table of the fields there are, `units` what may be priced.
 * @throws Error whose message says what is wrong and what is allowed.
 */
export function parsePrice(text: string, flags: readonly Flag[], units: readonly Unit[] = allUnits): Price {
  const rates = text
    .split(/[;\n]/)
    .filter((part) => part.trim() !== '')
    .map((part) => parseRate(part.trim(), flags, units));
  if (rates.length === 0) throw new Error(`a price, ${examples}`);
  return rates;
}

function parseRate(text: string, flags: readonly Flag[], units: readonly Unit[]): Rate {
  // A ratio holds a colon, too: `aspect-ratio=16:9: second=0.4`.
  const [, before = '', after = text] = /^(.*):\s+(.*)$/.exec(text) ?? [];
  const amounts = new Map<Unit, Decimal>();
  const words = pairs(after);
  for (const [name, value] of words.filter(([each]) => each !== defaultSeconds)) {
    const unit = units.find((one) => one === name);
    if (unit === undefined)
      throw new Error(`${shownValue(name)} is not a unit; allowed: ${units.join(', ')}, ${examples}`);
    if (amounts.has(unit)) throw new Error(`${unit} is given twice`);
    amounts.set(unit, amountOf(unit, value));
  }
  if (amounts.size === 0) throw new Error(`${shownValue(text)} names no unit; allowed: ${examples}`);
  const conditions = pairs(before).map(([name, value]) => ({ field: fieldName(name, flags), value }));
  return { conditions, amounts, defaultSeconds: lengthIn(words) };
}

function lengthIn(words: readonly [string, string][]): number | undefined {
  const [given, ...more] = words.filter(([name]) => name === defaultSeconds).map(([, value]) => value);
  if (more.length > 0) throw new Error(`${defaultSeconds} is given twice`);
  if (given === undefined) return undefined;
  if (!/^[1-9]\d{0,4}$/.test(given))
    throw new Error(`${defaultSeconds}=${shownValue(given)}: allowed is a whole number above 0, such as 5`);
  return Number(given);
}

function pairs(text: string): [name: string, value: string][] {
  return text
    .split(/[\s,]+/)
    .filter((word) => word !== '')
    .map((word) => {
      const split = word.indexOf('=');
      if (split < 1 || split === word.length - 1)
        throw new Error(`${shownValue(word)} is not written as NAME=VALUE; allowed: ${examples}`);
      return [word.slice(0, split), word.slice(split + 1)];
    });
}

function amountOf(unit: Unit, value: string): Decimal {
  try {
    return parseAmount(value);
  } catch (error) {
    throw new Error(`${unit}=${shownValue(value)}: allowed is ${(error as Error).message}`);
  }
}

function fieldName(name: string, flags: readonly Flag[]): string {
  const field = name.replaceAll('_', '-');
  const usable = flags.filter(({ kind }) => kind === 'text' || kind === 'switch').map(longName);
  if (!usable.includes(field))
    throw new Error(
      `there is no field ${shownValue(name)} to set a price by; there are: ${usable.join(', ')}`,
    );
  return field;
}

/**
 * What a request costs at most, or undefined if that is not known: no rate is sure to hold, or it counts what
 * the request leaves open. If a field is left out, the dearest rate that it may lead to counts.
 */
export function costAtMost(
  price: Price,
  quantity: Quantity,
  flags: readonly Flag[],
  { group, user }: Multipliers = {},
): Decimal | undefined {
  const costs = ratesThatMayHold(price, quantity.body, flags).map((rate) => costAt(rate, quantity));
  let dearest: Decimal | undefined;
  for (const cost of costs) {
    if (cost === undefined) return undefined;
    if (dearest === undefined || compare(cost, dearest) > 0) dearest = cost;
  }
  if (dearest === undefined) return undefined;
  return [group, user].reduce<Decimal>(
    (cost, factor) => (factor === undefined ? cost : multiply(cost, factor)),
    dearest,
  );
}

// Those with the most conditions among the ones that are sure to hold, and all others that would come before them.
function ratesThatMayHold(price: Price, body: JsonObject, flags: readonly Flag[]): Rate[] {
  const judged = price.map((rate) => ({ rate, holds: holdsFor(rate, body, flags) }));
  const sure = judged.filter(({ holds }) => holds === 'yes').map(({ rate }) => rate.conditions.length);
  if (sure.length === 0) return [];
  const least = Math.max(...sure);
  return judged
    .filter(({ rate, holds }) => holds !== 'no' && rate.conditions.length >= least)
    .map(({ rate }) => rate);
}

function holdsFor({ conditions }: Rate, body: JsonObject, flags: readonly Flag[]): 'yes' | 'no' | 'open' {
  let answer: 'yes' | 'open' = 'yes';
  for (const { field, value } of conditions) {
    const flag = flags.find((one) => longName(one) === field);
    const found = flag && at(body, flag.field);
    if (flag === undefined || found === undefined) answer = 'open';
    else if (!isSame(found, wanted(flag, value))) return 'no';
  }
  return answer;
}

// The protocol may have its own words for a switch.
function wanted(flag: Flag, value: string): Json {
  if (flag.kind !== 'switch') return value;
  const isOn = value.toLowerCase() === 'true';
  return flag.parse === undefined ? isOn : flag.parse(isOn);
}

// 2k means 2K: overlooking a rate would make the cost too low.
function isSame(found: Json, value: Json): boolean {
  return plainText(found) === plainText(value);
}

function plainText(value: Json): string {
  return (typeof value === 'string' ? value : JSON.stringify(value)).toLowerCase();
}

function costAt({ amounts, defaultSeconds: length }: Rate, given: Quantity): Decimal | undefined {
  const isDefault = given.isLengthOpen && length !== undefined;
  const quantity = isDefault ? { ...given, seconds: length * (given.videos ?? 1) } : given;
  let sum = zero;
  for (const [unit, amount] of amounts) {
    const count = countOf(unit, quantity);
    if (count === undefined) return undefined;
    sum = add(sum, multiply(amount, count));
  }
  return sum;
}

function countOf(unit: Unit, quantity: Quantity): Decimal | undefined {
  const { seconds, videos, characters, visibleCharacters } = quantity;
  if (unit === 'second' || unit === 'video') return plain(unit === 'second' ? seconds : videos);
  const count = unit === '10k_characters' ? characters : visibleCharacters;
  return count === undefined ? undefined : shifted(decimalOf(count), 4);
}

function plain(count: number | undefined): Decimal | undefined {
  try {
    return count === undefined ? undefined : parseDecimal(String(count));
  } catch {
    return undefined;
  }
}

/** What a request costs, for its record: see {@link costAtMost}. */
export function jobCost(
  price: Price,
  quantity: Quantity,
  flags: readonly Flag[],
  multipliers: Multipliers = {},
): JobCost | undefined {
  const most = costAtMost(price, quantity, flags, multipliers);
  if (most === undefined) return undefined;
  const [characters, visibleCharacters] = [10_000, 10_000];
  const rate = costAtMost(price, { characters, visibleCharacters, body: quantity.body }, flags, multipliers);
  return {
    at_most: formatDecimal(most),
    ...(quantity.characters !== undefined && rate && { per_10k_characters: formatDecimal(rate) }),
  };
}
