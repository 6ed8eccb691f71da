import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { backoffMs, pollPauseMs } from '../../src/http/retry.ts';

const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('backoffMs', () => {
  it('doubles up to its maximum, with 25% jitter, and is never below its minimum', () => {
    const some = fc.integer({ min: 0, max: 10_000 });
    fc.assert(
      fc.property(
        some,
        some,
        fc.double({ min: 0, max: 1e300, noNaN: true }),
        chance,
        (tries, baseMs, floorMs, random) => {
          const ms = backoffMs(tries, { baseMs, floorMs, capMs: 30_000, random: () => random });
          const plain = Math.min(30_000, baseMs * 2 ** Math.min(tries, 30));
          expect(ms).toBeGreaterThanOrEqual(Math.max(floorMs, plain * 0.75));
          expect(ms).toBeLessThanOrEqual(Math.max(floorMs, plain * 1.25));
        },
      ),
    );
  });

  it('starts at 500 ms', () => {
    expect(backoffMs(0, { random: () => 0.5 })).toBe(500);
    expect(backoffMs(3, { random: () => 0.5 })).toBe(4000);
    expect(backoffMs(99, { random: () => 0.5 })).toBe(30_000);
  });
});

describe('pollPauseMs', () => {
  it('returns a pause between the interval and twice the interval, for any number of polls', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 100_000 }),
        fc.integer({ min: 1, max: 600_000 }),
        chance,
        (polls, interval, random) => {
          const ms = pollPauseMs(polls, interval, () => random);
          expect(ms).toBeGreaterThanOrEqual(interval);
          expect(ms).toBeLessThanOrEqual(2 * interval);
        },
      ),
    );
  });

  it('grows with each poll', () => {
    const pauses = [0, 1, 2, 4, 8].map((polls) => pollPauseMs(polls, 5000, () => 0.5));
    expect(pauses[0]).toBe(5000);
    expect([...pauses].sort((one, other) => one - other)).toEqual(pauses);
    expect(new Set(pauses).size).toBe(5);
  });
});
