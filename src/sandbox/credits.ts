/** Amounts are credits. They are summed as whole millionths, so that a sum is an exact decimal too. */
const MICROS_PER_CREDIT = 1_000_000;

/** `quantity` units at `price` credits each, to the millionth. */
export function cost(price: string, quantity: number): number {
  return Math.round(toMicros(Number(price)) * quantity) / MICROS_PER_CREDIT;
}

/** The exact sum of amounts. */
export function sumOf(amounts: readonly number[]): number {
  return amounts.reduce((sum, amount) => sum + toMicros(amount), 0) / MICROS_PER_CREDIT;
}

function toMicros(credits: number): number {
  return Math.round(credits * MICROS_PER_CREDIT);
}
