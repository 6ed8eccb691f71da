/** A reproducible source of random numbers in [0, 1) (mulberry32). */
export type Random = () => number;

/**
 * Returns a source of random numbers. The same seed and name produce the same numbers, independently of other sources.
 */
export function randomFor(seed: number, name: string): Random {
  let state = seed;
  for (const character of name) state = Math.imul(state ^ (character.codePointAt(0) ?? 0), 0x01000193);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Picks one of several values, each with a probability proportional to its weight. */
export function pick<T>(random: Random, weighted: readonly (readonly [T, number])[]): T {
  let remaining = random() * weighted.reduce((sum, [, weight]) => sum + weight, 0);
  const found = weighted.find(([, weight]) => (remaining -= weight) < 0) ?? weighted.at(-1);
  if (found === undefined) throw new RangeError('nothing to pick from');
  return found[0];
}
