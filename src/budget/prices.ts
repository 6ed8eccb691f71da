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

/** The unit of a price. */
export type Unit = 'second' | 'video' | 'reference_image' | '10k_characters' | '10k_visible_characters';

/** The units of videos and of speech. `10k_visible_characters` does not count white space. */
export const videoUnits: readonly Unit[] = ['second', 'video', 'reference_image'];
export const speechUnits: readonly Unit[] = ['10k_characters', '10k_visible_characters'];

/** One line of a price: what each unit costs if every condition holds. */
interface Rate {
  conditions: { field: string; value: string }[];
  amounts: Map<Unit, Decimal>;
  /** The billed seconds of each video if a request gives no duration. */
  defaultSeconds?: number;
  /** The number of reference images of a request that are free; 0 if absent. */
  freeReferenceImages?: number;
  /** The minimum cost of a video, before the multipliers. */
  minimum?: Decimal;
}

/** The price of a model. Of the rates whose conditions hold, the one with the most conditions applies. */
export type Price = readonly Rate[];

/** The factors of specification 8 that every price is multiplied by. */
export interface Multipliers {
  group?: Decimal;
  user?: Decimal;
}

const examples = 'such as second=0.12, video=1.5, 10k_characters=2, or resolution=2K: second=0.40';
const allUnits = [...videoUnits, ...speechUnits];
const defaultSeconds = 'default_seconds';
const freeImages = 'free_reference_images';

/**
 * Parses a price: `second=0.12`, or `resolution=2K: second=0.40` for one value of a field. Rates are separated by `;`
 * or a line break. `default_seconds=5` is billed if a request gives no duration. Each reference image beyond
 * `free_reference_images=5` costs `reference_image=0.20`. A video costs at least `minimum=0.50`. `flags` lists the
 * existing fields, `units` the allowed units.
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
  // A ratio contains a colon too: `aspect-ratio=16:9: second=0.4`.
  const [, before = '', after = text] = /^(.*):\s+(.*)$/.exec(text) ?? [];
  const words = wordsOf(after, units);
  const amounts = new Map<Unit, Decimal>();
  for (const unit of units) {
    const value = words.get(unit);
    if (value !== undefined) amounts.set(unit, amountOf(unit, value));
  }
  if (amounts.size === 0) throw new Error(`${shownValue(text)} has no unit; allowed: ${examples}`);
  if (amounts.has('reference_image') && amounts.size === 1)
    throw new Error(
      'reference_image is a part of a price; allowed: with second or video, such as second=0.12',
    );
  if (words.has(freeImages) && !amounts.has('reference_image'))
    throw new Error(`${freeImages} is allowed only with reference_image, such as reference_image=0.20`);
  const minimum = words.get('minimum');
  return {
    conditions: pairs(before).map(([name, value]) => ({ field: fieldName(name, flags), value })),
    amounts,
    defaultSeconds: countIn(words, defaultSeconds),
    freeReferenceImages: countIn(words, freeImages),
    minimum: minimum === undefined ? undefined : amountOf('minimum', minimum),
  };
}

// A minimum applies to videos only: speech is billed by its characters.
function wordsOf(text: string, units: readonly Unit[]): Map<string, string> {
  const isOfVideos = units.includes('video');
  const names: string[] = [...units, defaultSeconds, ...(isOfVideos ? [freeImages, 'minimum'] : [])];
  const words = new Map<string, string>();
  for (const [name, value] of pairs(text)) {
    if (!names.includes(name))
      throw new Error(`${shownValue(name)} is not a unit; allowed: ${units.join(', ')}, ${examples}`);
    if (words.has(name)) throw new Error(`${name} is given twice`);
    words.set(name, value);
  }
  return words;
}

function countIn(words: ReadonlyMap<string, string>, name: string): number | undefined {
  const given = words.get(name);
  if (given === undefined) return undefined;
  if (!/^[1-9]\d{0,4}$/.test(given))
    throw new Error(`${name}=${shownValue(given)}: must be a whole number above 0, such as 5`);
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

function amountOf(name: string, value: string): Decimal {
  try {
    return parseAmount(value);
  } catch (error) {
    throw new Error(`${name}=${shownValue(value)}: must be ${(error as Error).message}`);
  }
}

function fieldName(name: string, flags: readonly Flag[]): string {
  const field = name.replaceAll('_', '-');
  const usable = flags.filter(({ kind }) => kind === 'text' || kind === 'switch').map(longName);
  if (!usable.includes(field))
    throw new Error(`unknown field ${shownValue(name)}; allowed: ${usable.join(', ')}`);
  return field;
}

/**
 * The maximum cost of a request; undefined if it is unknown, because no rate is certain to apply, or a rate depends on
 * a quantity that the request does not give. If a field is missing, the highest rate that may apply counts.
 */
export function costAtMost(
  price: Price,
  quantity: Quantity,
  flags: readonly Flag[],
  { group, user }: Multipliers = {},
): Decimal | undefined {
  const costs = ratesThatMayHold(price, quantity.body, flags).map((rate) => costAt(rate, quantity));
  let highest: Decimal | undefined;
  for (const cost of costs) {
    if (cost === undefined) return undefined;
    if (highest === undefined || compare(cost, highest) > 0) highest = cost;
  }
  if (highest === undefined) return undefined;
  return [group, user].reduce<Decimal>(
    (cost, factor) => (factor === undefined ? cost : multiply(cost, factor)),
    highest,
  );
}

// The rates with the most conditions among those that certainly apply, and all others that may take precedence over
// them.
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
    if (flag === undefined || found === undefined || found === null) answer = 'open';
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

// Letter case is ignored, since missing a rate would make the cost too low.
function isSame(found: Json, value: Json): boolean {
  return plainText(found) === plainText(value);
}

function plainText(value: Json): string {
  return (typeof value === 'string' ? value : JSON.stringify(value)).toLowerCase();
}

function costAt(rate: Rate, given: Quantity): Decimal | undefined {
  const { amounts, defaultSeconds: length, minimum } = rate;
  const { videos } = given;
  const isDefault = given.isLengthOpen && length !== undefined && videos !== undefined;
  const quantity = isDefault ? { ...given, seconds: length * videos } : given;
  let sum = zero;
  for (const [unit, amount] of amounts) {
    const count = countOf(unit, quantity, rate);
    if (count === undefined) return undefined;
    sum = add(sum, multiply(amount, count));
  }
  if (minimum === undefined) return sum;
  if (videos === undefined) return undefined;
  const least = multiply(minimum, decimalOf(videos));
  return compare(sum, least) < 0 ? least : sum;
}

function countOf(unit: Unit, quantity: Quantity, { freeReferenceImages = 0 }: Rate): Decimal | undefined {
  const { seconds, videos, referenceImages = 0, characters, visibleCharacters } = quantity;
  if (unit === 'second') return plain(seconds);
  if (unit === 'video') return plain(videos);
  if (unit === 'reference_image') return decimalOf(Math.max(0, referenceImages - freeReferenceImages));
  const count = unit === '10k_characters' ? characters : visibleCharacters;
  return count === undefined ? undefined : shifted(decimalOf(count), 4);
}

// The gateway may replace 0 by a default.
function plain(count: number | undefined): Decimal | undefined {
  try {
    return count === undefined || count === 0 ? undefined : parseDecimal(String(count));
  } catch {
    return undefined;
  }
}

/** Returns the cost of a request for its record: see {@link costAtMost}. */
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
