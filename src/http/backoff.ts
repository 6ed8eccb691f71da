/**
 * How long to wait before the next try, ms: doubling from `baseMs` up to `capMs`, with a quarter of jitter either
 * way, and never less than what the gateway asked for.
 */
export function backoffMs(
  tries: number,
  options: { baseMs?: number; capMs?: number; floorMs?: number; random?: () => number } = {},
): number {
  const { baseMs = 500, capMs = 30_000, floorMs = 0, random = Math.random } = options;
  const plain = Math.min(capMs, baseMs * 2 ** Math.min(tries, 30));
  return Math.max(floorMs, plain * (0.75 + random() / 2));
}

/**
 * The pause before the n-th further poll, ms: it grows from `intervalMs` to twice that, with jitter inside that
 * band (5 to 10 s by default: specification 8).
 */
export function pollPauseMs(polls: number, intervalMs: number, random: () => number = Math.random): number {
  const top = Math.min(2, 1.15 ** polls);
  return intervalMs * (1 + (top - 1) * (0.5 + random() / 2));
}
