import type { Clock } from '../../clock.ts';

const memoryMs = 3000;

/**
 * A meter that is told how many bytes are there and says how many came a second lately, weighing the last
 * three seconds most; undefined until there is anything to tell.
 */
export function speedometer(clock: Clock, bytes: number): (bytes: number) => number | undefined {
  const begin = clock.monotonic();
  let last = { at: begin, bytes };
  let weighed = 0;
  let speed: number | undefined;
  return (now) => {
    const elapsed = clock.monotonic() - last.at;
    if (elapsed <= 0) return speed;
    const current = (Math.max(0, now - last.bytes) * 1000) / elapsed;
    const fading = Math.exp(-elapsed / memoryMs);
    weighed = weighed * fading + current * (1 - fading);
    last = { at: clock.monotonic(), bytes: now };
    // What was before the beginning is no slowness: only the time that has been weighed counts.
    return (speed = weighed / (1 - Math.exp((begin - last.at) / memoryMs)));
  };
}
