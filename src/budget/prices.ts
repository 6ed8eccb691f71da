import type { JobCost } from '../job.ts';
import { messageOf } from '../errors.ts';
import { at, type Json, type JsonObject } from '../json.ts';
import { longName } from '../protocols/compose.ts';
import { shortSides } from '../protocols/requested-value.ts';
import type { Flag, Quantity } from '../protocols/protocol.ts';
import { shownValue } from '../protocols/violations.ts';
import {
  add,
  decimalOf,
  formatDecimal,
  max,
  multiply,
  parseAmount,
  parseDecimal,
  divideByPowerOfTen,
  zero,
  type Decimal,
} from '../decimal.ts';

/** The unit of a rate. */
export type Unit = 'second' | 'video' | 'reference_image' | '10k_characters' | '10k_visible_characters';

/** The units for videos and for speech. `10k_visible_characters` excludes white space. */
export const videoUnits: readonly Unit[] = ['second', 'video', 'reference_image'];
export const speechUnits: readonly Unit[] = ['10k_characters', '10k_visible_characters'];

/** One rate of a price: what each unit costs if all conditions hold. */
interface Rate {
  conditions: { field: string; value: Json }[];
  amounts: Map<Unit, Decimal>;
  /** The number of seconds billed per video if a request does not specify a duration. */
  defaultSeconds?: number;
  /** The number of free reference images per request; 0 if absent. */
  freeReferenceImages?: number;
  /** The minimum cost of a video, before multipliers. */
  minimum?: Decimal;
}

/** A model's price. Of the rates whose conditions hold, the one with the most conditions applies. */
export type Price = readonly Rate[];

/** The multipliers from specification 8, which apply to every price. */
export interface Multipliers {
  group?: Decimal;
  user?: Decimal;
}

const examples = 'such as second=0.12, video=1.5, 10k_characters=2, or resolution=2K: second=0.40';
const allUnits = [...videoUnits, ...speechUnits];
const defaultSeconds = 'default_seconds';
const freeImages = 'free_reference_images';

/**
 * Parses a price: `second=0.12`, or `resolution=2K: second=0.40` for one value of a field. A `;` or a line break
 * separates rates. `default_seconds=5` is billed if a request does not specify a duration. Each reference image beyond
 * `free_reference_images=5` costs `reference_image=0.20`. A video costs at least `minimum=0.50`. `flags` lists the
 * existing fields, and `units` the allowed units.
 * @throws Error whose message states the problem and the allowed values.
 */
export function parsePrice(text: string, flags: readonly Flag[], units: readonly Unit[] = allUnits): Price {
  const rates = text
    .split(/[;\n]/)
    .filter((part) => part.trim() !== '')
    .map((part) => parseRate(part.trim(), flags, units));
  if (rates.length === 0) throw new Error(`must be a price, ${examples}`);
  return rates;
}

function parseRate(text: string, flags: readonly Flag[], units: readonly Unit[]): Rate {
  // A ratio contains a colon too, as in `aspect-ratio=16:9: second=0.4`.
  const [, conditionText = '', amountText = text] = /^(.*):\s+(.*)$/.exec(text) ?? [];
  const values = parseValues(amountText, units);
  const amounts = new Map<Unit, Decimal>();
  for (const unit of units) {
    const value = values.get(unit);
    if (value !== undefined) amounts.set(unit, amountOf(unit, value));
  }
  if (amounts.size === 0)
    throw new Error(`${shownValue(text)} has no unit; write a price with its unit, ${examples}`);
  if (amounts.has('reference_image') && amounts.size === 1)
    throw new Error('reference_image must be combined with second or video, such as second=0.12');
  if (values.has(freeImages) && !amounts.has('reference_image'))
    throw new Error(`${freeImages} is allowed only with reference_image, such as reference_image=0.20`);
  const minimumText = values.get('minimum');
  return {
    conditions: parsePairs(conditionText).map(([name, value]) => {
      const flag = flagOf(name, flags);
      return { field: flag.field, value: conditionValue(flag, name, value) };
    }),
    amounts,
    defaultSeconds: countIn(values, defaultSeconds),
    freeReferenceImages: countIn(values, freeImages),
    minimum: minimumText === undefined ? undefined : amountOf('minimum', minimumText),
  };
}

// A minimum applies only to videos, because speech is billed by its characters.
function parseValues(text: string, units: readonly Unit[]): Map<string, string> {
  const hasVideoUnits = units.includes('video');
  const names: string[] = [...units, defaultSeconds, ...(hasVideoUnits ? [freeImages, 'minimum'] : [])];
  const values = new Map<string, string>();
  for (const [name, value] of parsePairs(text)) {
    if (!names.includes(name))
      throw new Error(`${shownValue(name)} is not a unit; allowed: ${units.join(', ')}, ${examples}`);
    if (values.has(name)) throw new Error(`${name} is specified twice`);
    values.set(name, value);
  }
  return values;
}

function countIn(values: ReadonlyMap<string, string>, name: string): number | undefined {
  const text = values.get(name);
  if (text === undefined) return undefined;
  if (!/^[1-9]\d{0,4}$/.test(text))
    throw new Error(`${name}=${shownValue(text)}: must be a whole number above 0, such as 5`);
  return Number(text);
}

function parsePairs(text: string): [name: string, value: string][] {
  return text
    .split(/[\s,]+/)
    .filter((word) => word !== '')
    .map((word) => {
      const equalsIndex = word.indexOf('=');
      if (equalsIndex < 1 || equalsIndex === word.length - 1)
        throw new Error(`${shownValue(word)} is not written as NAME=VALUE, ${examples}`);
      return [word.slice(0, equalsIndex), word.slice(equalsIndex + 1)];
    });
}

function amountOf(name: string, value: string): Decimal {
  try {
    return parseAmount(value);
  } catch (error) {
    throw new Error(`${name}=${shownValue(value)}: must be ${messageOf(error)}`);
  }
}

function flagOf(name: string, flags: readonly Flag[]): Flag {
  const usableFlags = flags.filter(({ kind, isAsset }) => (kind === 'text' && !isAsset) || kind === 'switch');
  const flag = usableFlags.find((one) => longName(one) === name.replaceAll('_', '-'));
  if (flag !== undefined) return flag;
  const allowedNames = usableFlags.map(longName).join(', ');
  throw new Error(`unknown field ${shownValue(name)}; allowed: ${allowedNames}`);
}

// Converts a condition's value to the value that the flag sets in a body. Refuses a value that no body can contain,
// because a rate that never applies would make the cost too low.
function conditionValue({ kind, parse = (native): Json => native }: Flag, name: string, value: string): Json {
  if (kind === 'switch') {
    const states = [true, false].map((isOn) => ({ isOn, native: parse(isOn) }));
    const state = states.find(({ isOn, native }) => isSame(value, isOn) || isSame(value, native));
    if (state === undefined) throw new Error(`${name}=${shownValue(value)}: must be true or false`);
    return state.native;
  }
  try {
    return parse(value);
  } catch (error) {
    throw new Error(`${name}=${shownValue(value)}: must be ${messageOf(error)}`);
  }
}

/**
 * Returns the maximum cost of a request. If a field is missing, the highest rate that may apply is used. Returns
 * undefined if no rate is certain to apply, or a rate depends on a quantity that the request does not specify.
 */
export function costAtMost(
  price: Price,
  quantity: Quantity,
  { group, user }: Multipliers = {},
): Decimal | undefined {
  const costs = ratesThatMayHold(price, quantity.body).map((rate) => costAt(rate, quantity));
  if (costs.length === 0) return undefined;
  let highest = zero;
  for (const cost of costs) {
    if (cost === undefined) return undefined;
    highest = max(highest, cost);
  }
  return [group, user].reduce<Decimal>(
    (cost, factor) => (factor === undefined ? cost : multiply(cost, factor)),
    highest,
  );
}

// Returns the rates with the most conditions among those that certainly apply, and all rates
// that may take precedence over them.
function ratesThatMayHold(price: Price, body: JsonObject): Rate[] {
  const candidates = price.map((rate) => ({ rate, holds: holdsFor(rate, body) }));
  const certainCounts = candidates
    .filter(({ holds }) => holds === 'yes')
    .map(({ rate }) => rate.conditions.length);
  if (certainCounts.length === 0) return [];
  const minConditions = Math.max(...certainCounts);
  return candidates
    .filter(({ rate, holds }) => holds !== 'no' && rate.conditions.length >= minConditions)
    .map(({ rate }) => rate);
}

function holdsFor({ conditions }: Rate, body: JsonObject): 'yes' | 'no' | 'open' {
  let result: 'yes' | 'open' = 'yes';
  for (const { field, value } of conditions) {
    const bodyValue = at(body, field);
    if (bodyValue === undefined || bodyValue === null) result = 'open';
    else if (!isSame(bodyValue, value) && !isSameResolution(field, bodyValue, value)) return 'no';
  }
  return result;
}

// Ignores letter case, because overlooking a rate would make the cost too low.
function isSame(bodyValue: Json, value: Json): boolean {
  return plainText(bodyValue) === plainText(value);
}

// 1920x1080 and 1080p are billed alike.
function isSameResolution(field: string, bodyValue: Json, value: Json): boolean {
  if (!/resolution$/i.test(field)) return false;
  const [requested, priced] = [bodyValue, value].map((each) => shortSides(plainText(each)));
  return requested !== undefined && String(requested) === String(priced);
}

function plainText(value: Json): string {
  return (typeof value === 'string' ? value : JSON.stringify(value)).toLowerCase();
}

function costAt(rate: Rate, requested: Quantity): Decimal | undefined {
  const { amounts, defaultSeconds: length, minimum } = rate;
  const { videos } = requested;
  const isDefault = requested.isLengthOpen && length !== undefined && videos !== undefined;
  const quantity = isDefault ? { ...requested, seconds: length * videos } : requested;
  let sum = zero;
  for (const [unit, amount] of amounts) {
    const count = countOf(unit, quantity, rate);
    if (count === undefined) return undefined;
    sum = add(sum, multiply(amount, count));
  }
  if (minimum === undefined) return sum;
  if (videos === undefined) return undefined;
  return max(sum, multiply(minimum, decimalOf(videos)));
}

function countOf(unit: Unit, quantity: Quantity, { freeReferenceImages = 0 }: Rate): Decimal | undefined {
  const { seconds, videos, referenceImages = 0, characters, visibleCharacters } = quantity;
  if (unit === 'second') return positiveDecimal(seconds);
  if (unit === 'video') return positiveDecimal(videos);
  if (unit === 'reference_image') return decimalOf(Math.max(0, referenceImages - freeReferenceImages));
  const count = unit === '10k_characters' ? characters : visibleCharacters;
  return count === undefined ? undefined : divideByPowerOfTen(decimalOf(count), 4);
}

// Returns undefined for 0, because the gateway may replace 0 with a default.
function positiveDecimal(count = 0): Decimal | undefined {
  try {
    return count === 0 ? undefined : parseDecimal(String(count));
  } catch {
    return undefined;
  }
}

/** Returns a request's cost for its record; see {@link costAtMost}. */
export function jobCost(
  price: Price,
  quantity: Quantity,
  multipliers: Multipliers = {},
): JobCost | undefined {
  const maxCost = costAtMost(price, quantity, multipliers);
  if (maxCost === undefined) return undefined;
  const [characters, visibleCharacters] = [10_000, 10_000];
  const rate = costAtMost(price, { characters, visibleCharacters, body: quantity.body }, multipliers);
  return {
    at_most: formatDecimal(maxCost),
    ...(rate && { per_10k_characters: formatDecimal(rate) }),
  };
}
