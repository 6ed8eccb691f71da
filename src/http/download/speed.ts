import type { Clock } from '../../clock.ts';

const memoryMs = 3000;

/**
 * A meter that is told how many bytes are there and says how many came a second lately, weighing the last
 * three seconds most; undefined until there is anything to tell.
 */
export function speedometer(clock: Clock, bytes: number): (bytes: number) => number | undefined {
  let last = { at: clock.now(), bytes };
  let speed: number | undefined;
  return (now) => {
    const elapsed = clock.now() - last.at;
    if (elapsed <= 0) return speed;
    const current = (Math.max(0, now - last.bytes) * 1000) / elapsed;
    const weight = speed === undefined ? 1 : 1 - Math.exp(-elapsed / memoryMs);
    speed = (speed ?? 0) * (1 - weight) + current * weight;
    last = { at: clock.now(), bytes: now };
    return speed;
  };
}
