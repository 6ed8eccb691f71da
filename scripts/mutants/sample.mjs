/** Draws `count` items at random. The same seed draws the same items on every machine. */
export function sample(items, count, seed) {
  let state = [...String(seed)].reduce(
    (sum, letter) => Math.imul(sum ^ letter.charCodeAt(0), 16777619),
    2166136261,
  );
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return items
    .map((item, index) => ({ item, index, key: random() }))
    .sort((a, b) => a.key - b.key)
    .slice(0, count)
    .sort((a, b) => a.index - b.index)
    .map(({ item }) => item);
}

/**
 * Reads the explanations of mutants that may survive. A line identifies a mutant by its file, kind and source, which
 * are more stable than line numbers:
 * - `src/ledger/chain.ts` true `if (x)`: the reason
 * @returns a function that returns a mutant's reason, or undefined if the mutant has none
 */
export function explanations(text) {
  const reasons = new Map();
  for (const [, path, kind, source, why] of text.matchAll(/^- `([^`]+)` ([^`]+) `(.+)`: (.+)$/gm))
    reasons.set(`${path} ${kind} ${source}`, why);
  return ({ path, kind, text: source }) => reasons.get(`${path} ${kind} ${source}`);
}
