import { describe, expect, it, vi } from 'vitest';
import { deadlineIn, systemClock, formatDuration, parseDuration } from '../src/clock.ts';
import fc from 'fast-check';

describe('systemClock', () => {
  it('returns the time in milliseconds since the epoch', () => {
    const before = Date.now();
    const now = systemClock.now();
    expect(now).toBeGreaterThanOrEqual(before);
    expect(now).toBeLessThanOrEqual(Date.now());
  });

  it('does not sleep for a negative time', async () => {
    await systemClock.sleep(-5);
  });

  it('does not treat a delay beyond the longest timer as zero', async () => {
    const warned = vi.fn();
    process.on('warning', warned);
    const stop = new AbortController();
    const sleeping = systemClock.sleep(2 ** 31 + 5, stop.signal);
    let woke = false;
    void sleeping.catch(() => undefined).then(() => (woke = true));
    await systemClock.sleep(20);
    expect(woke).toBe(false);
    stop.abort();
    await expect(sleeping).rejects.toThrow();
    process.off('warning', warned);
    expect(warned).not.toHaveBeenCalled();
  });

  it('rejects a sleep with the reason of an aborted signal, before and during the sleep', async () => {
    const reason = new Error('enough');
    await expect(systemClock.sleep(1, AbortSignal.abort(reason))).rejects.toBe(reason);
    const stop = new AbortController();
    const sleeping = systemClock.sleep(60_000, stop.signal);
    stop.abort(reason);
    await expect(sleeping).rejects.toBe(reason);
  });
});

it('a deadline expires after its duration, even if the system clock is changed', () => {
  const stepped = vi.spyOn(Date, 'now').mockReturnValue(0);
  const passing = vi.spyOn(process, 'hrtime').mockReturnValue([1, 0]);
  const deadline = deadlineIn(30, systemClock);
  expect(deadline.remainingMs()).toBe(30);
  passing.mockReturnValue([1, 31_000_000]);
  expect(deadline.remainingMs()).toBe(0);
  stepped.mockRestore();
  passing.mockRestore();
});

describe('parseDuration', () => {
  it.each([
    ['50ms', 50],
    ['5s', 5000],
    ['20m', 1_200_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['0.5s', 500],
    ['1d2h3m4s5ms', 93_784_005],
    ['365d', 365 * 86_400_000],
  ])('reads %s as %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each([
    '',
    '5',
    '-1m',
    '+5s',
    '5 s',
    ' 5s',
    '5s ',
    '1e3s',
    'NaN',
    'Infinitys',
    '5S',
    '5sec',
    '30m1h',
    '5s5s',
    'm',
    '.5s',
    '٥s',
    '1,5s',
  ])('refuses %j, and the error lists the allowed values', (text) => {
    expect(() => parseDuration(text)).toThrow(/number with a unit, such as 5s, 20m, 1h30m or 2d/);
  });

  it.each(['0s', '0ms', '0h0m', '0.1s0ms'.replace('0.1', '0.0'), '366d', `${'9'.repeat(40)}h`])(
    'refuses %s, which is out of range',
    (text) => {
      expect(() => parseDuration(text)).toThrow('a duration from 1ms to 365d');
    },
  );

  it('returns whole milliseconds in range, or throws a usage error', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[\d.dhms -]{0,12}$/), (text) => {
        let ms: number;
        try {
          ms = parseDuration(text);
        } catch (error) {
          expect(String(error)).toMatch(/^Error: a (number|duration) /);
          return;
        }
        expect(Number.isSafeInteger(ms) && ms >= 1).toBe(true);
      }),
    );
  });
});

describe('formatDuration', () => {
  it.each([
    [0, '0s'],
    [-5, '0s'],
    [50, '50ms'],
    [5000, '5s'],
    [1500, '1s500ms'],
    [5_400_000, '1h30m'],
  ])('formats %d ms as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  it('returns text that is parsed as the same duration', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 365 * 86_400_000 }), (ms) => {
        expect(parseDuration(formatDuration(ms))).toBe(ms);
      }),
    );
  });
});
