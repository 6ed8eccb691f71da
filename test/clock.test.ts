import { describe, expect, it, vi } from 'vitest';
import { deadlineIn, systemClock } from '../src/clock.ts';

describe('systemClock', () => {
  it('tells the time in milliseconds since the epoch', () => {
    const before = Date.now();
    const now = systemClock.now();
    expect(now).toBeGreaterThanOrEqual(before);
    expect(now).toBeLessThanOrEqual(Date.now());
  });

  it('does not wait for a time below zero', async () => {
    await systemClock.sleep(-5);
  });

  it('does not take a time beyond the timers for no time', async () => {
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

  it("rejects with the signal's reason, before and during the sleep", async () => {
    const reason = new Error('enough');
    await expect(systemClock.sleep(1, AbortSignal.abort(reason))).rejects.toBe(reason);
    const stop = new AbortController();
    const sleeping = systemClock.sleep(60_000, stop.signal);
    stop.abort(reason);
    await expect(sleeping).rejects.toBe(reason);
  });
});

it('a deadline passes when its time has gone by, whatever the time of day is set to', () => {
  const stepped = vi.spyOn(Date, 'now').mockReturnValue(0);
  const passing = vi.spyOn(process, 'hrtime').mockReturnValue([1, 0]);
  const deadline = deadlineIn(30, systemClock);
  expect(deadline.remainingMs()).toBe(30);
  passing.mockReturnValue([1, 31_000_000]);
  expect(deadline.remainingMs()).toBe(0);
  stepped.mockRestore();
  passing.mockRestore();
});
