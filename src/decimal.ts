/** An exact, non-negative decimal number: `digits` divided by ten to the power of `scale`. */
export interface Decimal {
  digits: bigint;
  scale: number;
}

export const zero: Decimal = { digits: 0n, scale: 0 };

// Allows enough digits for any product of a price and its multipliers (prices.ts), because the product is stored and
// parsed again.
/** The text of a decimal number, 0 or more, without a sign, an exponent or leading zeros. */
export const decimalPattern = /^(0|[1-9]\d{0,59})(?:\.(\d{1,60}))?$/;

/**
 * Parses an amount in plain digits, such as `12` or `0.35`.
 * @throws Error whose message states the allowed values.
 */
export function parseDecimal(text: string): Decimal {
  const [, integer, fraction = ''] = decimalPattern.exec(text) ?? [];
  if (integer === undefined) throw new Error('a decimal number, 0 or more, such as 12 or 0.35');
  return { digits: BigInt(integer + fraction), scale: fraction.length };
}

/**
 * Parses a price, a multiplier or a budget that the user typed. Limits the number of digits, so that
 * products remain exact in every record.
 * @throws Error whose message states the allowed values.
 */
export function parseAmount(text: string): Decimal {
  if (!/^(0|[1-9]\d{0,11})(\.\d{1,12})?$/.test(text))
    throw new Error('a decimal number with at most 12 decimal places, such as 12 or 0.35');
  return parseDecimal(text);
}

/** Converts a whole number to a {@link Decimal}. */
export function decimalOf(count: number): Decimal {
  return { digits: BigInt(count), scale: 0 };
}

/** Formats a number in plain digits, without trailing zeros in the fraction. */
export function formatDecimal({ digits, scale }: Decimal): string {
  if (scale > 0 && digits % 10n === 0n) return formatDecimal({ digits: digits / 10n, scale: scale - 1 });
  const text = digits.toString().padStart(scale + 1, '0');
  const [integer, fraction] = [text.slice(0, text.length - scale), text.slice(text.length - scale)];
  return fraction === '' ? integer : `${integer}.${fraction}`;
}

export function add(one: Decimal, other: Decimal): Decimal {
  const scale = Math.max(one.scale, other.scale);
  return { digits: digitsAtScale(one, scale) + digitsAtScale(other, scale), scale };
}

/** Returns `one` minus `other`. @throws RangeError if the result would be negative. */
export function subtract(one: Decimal, other: Decimal): Decimal {
  const scale = Math.max(one.scale, other.scale);
  const digits = digitsAtScale(one, scale) - digitsAtScale(other, scale);
  if (digits < 0n) throw new RangeError('an amount below zero');
  return { digits, scale };
}

export function multiply(one: Decimal, other: Decimal): Decimal {
  return { digits: one.digits * other.digits, scale: one.scale + other.scale };
}

/** Divides a number by ten to the power of `places`, exactly. */
export function divideByPowerOfTen({ digits, scale }: Decimal, places: number): Decimal {
  return { digits, scale: scale + places };
}

/** Returns a negative number if `one` is smaller, a positive number if it is larger, and 0 if they are equal. */
export function compare(one: Decimal, other: Decimal): number {
  const scale = Math.max(one.scale, other.scale);
  const difference = digitsAtScale(one, scale) - digitsAtScale(other, scale);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

/** Returns the larger of two numbers. */
export function max(one: Decimal, other: Decimal): Decimal {
  return compare(one, other) < 0 ? other : one;
}

/** Returns `one` minus `other`, or 0 if `other` is larger. */
export function excess(one: Decimal, other: Decimal): Decimal {
  return compare(one, other) > 0 ? subtract(one, other) : zero;
}

function digitsAtScale({ digits, scale }: Decimal, to: number): bigint {
  return to === scale ? digits : digits * 10n ** BigInt(to - scale);
}
