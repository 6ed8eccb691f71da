import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { deadlineIn } from '../../../src/clock.ts';
import { readBatches } from '../../../src/http/download/chunks.ts';
import { watchIdle } from '../../../src/http/deadline.ts';
import { speedometer } from '../../../src/http/download.ts';
import { TestClock } from '../../support/test-clock.ts';

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('batches', () => {
  function gathering(sizes: { minFirstBytes: number; minBytes: number; maxAgeMs?: number }) {
    const clock = new TestClock();
    const message = new IncomingMessage(new Socket());
    const watch = watchIdle(clock, { idleMs: 60_000, deadline: deadlineIn(600_000, clock) });
    const body = readBatches(message, { maxAgeMs: 1000, ...sizes, clock, watch });
    const next = async (): Promise<number> =>
      ((await body.next()).value ?? []).reduce((sum, { length }) => sum + length, 0);
    return { clock, message, watch, body, next };
  }

  it('returns at least the requested number of bytes, or the remaining bytes at the end', async () => {
    const { message, next } = gathering({ minFirstBytes: 10, minBytes: 100 });
    const first = next();
    for (let at = 0; at < 30; at += 1) message.push(Buffer.alloc(7));
    message.complete = true;
    message.push(null);
    const sizes = [await first, await next(), await next(), await next()];
    expect(sizes[0]).toBeGreaterThanOrEqual(10);
    expect(sizes[1]).toBeGreaterThanOrEqual(100);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(210);
    expect(sizes[3]).toBe(0);
  });

  it('pauses the sender while nothing is read', async () => {
    const { message, next } = gathering({ minFirstBytes: 1, minBytes: 100 });
    const first = next();
    message.push(Buffer.alloc(50));
    await first;
    for (let at = 0; at < 5; at += 1) {
      message.push(Buffer.alloc(60));
      await tick();
    }
    expect(message.isPaused()).toBe(true);
    expect(await next()).toBe(120);
    await tick();
    expect(message.isPaused()).toBe(true);
    expect(await next()).toBe(120);
    await tick();
    expect(message.isPaused()).toBe(false);
  });

  it('does not treat a slow reader as a stall', async () => {
    const { clock, message, watch, next } = gathering({ minFirstBytes: 1, minBytes: 10 });
    const first = next();
    message.push(Buffer.alloc(5));
    await first;
    message.push(Buffer.alloc(50));
    await tick();
    clock.advance(300_000);
    await tick();
    expect(watch.signal.aborted).toBe(false);
    await next();
    clock.advance(59_000);
    await tick();
    expect(watch.signal.aborted).toBe(false);
    clock.advance(60_000);
    await expect.poll(() => watch.signal.aborted).toBe(true);
  });

  it('returns fewer bytes after a time limit', async () => {
    const { clock, message, next } = gathering({ minFirstBytes: 1, minBytes: 100 });
    const first = next();
    message.push(Buffer.alloc(5));
    await first;
    const second = next();
    message.push(Buffer.alloc(5));
    await tick();
    clock.advance(1000);
    message.push(Buffer.alloc(1));
    expect(await second).toBe(6);
  });

  it('returns the data received before a break, then throws the error', async () => {
    const { message, next, body } = gathering({ minFirstBytes: 100, minBytes: 100 });
    const first = next();
    message.push(Buffer.alloc(5));
    await tick();
    message.destroy(new Error('reset'));
    expect(await first).toBe(5);
    await expect(body.next()).rejects.toThrow('reset');
  });

  it('reports a break that occurred before a listener was added', async () => {
    const { message, body } = gathering({ minFirstBytes: 1, minBytes: 1 });
    message.on('error', () => undefined).destroy(new Error('early'));
    await tick();
    await expect(body.next()).rejects.toThrow('early');
  });

  it('treats an incomplete body as a break', async () => {
    const { message, body } = gathering({ minFirstBytes: 1, minBytes: 1 });
    const first = body.next();
    message.push(null);
    await expect(first).rejects.toThrow('cut');
  });

  it('closes the connection when the reader stops', async () => {
    const { message, body } = gathering({ minFirstBytes: 1, minBytes: 1 });
    const first = body.next();
    message.push(Buffer.alloc(5));
    await first;
    await body.return();
    expect(message.destroyed).toBe(true);
  });
});

describe('watchIdle', () => {
  it('aborts after the idle time, and the reason contains that time', async () => {
    const clock = new TestClock();
    const watch = watchIdle(clock, { idleMs: 60_000, deadline: deadlineIn(600_000, clock) });
    clock.advance(59_999);
    watch.touch();
    clock.advance(59_999);
    await tick();
    expect(watch.signal.aborted).toBe(false);
    clock.advance(60_001);
    await expect.poll(() => watch.signal.aborted).toBe(true);
    expect(watch.signal.reason).toMatchObject({ message: 'no data arrived for 60 s' });
  });

  it("aborts with the deadline's reason at the deadline, even while data arrives", async () => {
    const clock = new TestClock();
    const watch = watchIdle(clock, { idleMs: 60_000, deadline: deadlineIn(150_000, clock) });
    for (let at = 0; at < 5; at += 1) {
      expect(watch.signal.aborted).toBe(false);
      clock.advance(30_000);
      watch.touch();
      await tick();
    }
    await expect.poll(() => watch.signal.aborted).toBe(true);
    expect(watch.signal.reason).toMatchObject({ message: 'the deadline passed' });
  });

  it('does nothing after it is stopped', async () => {
    const clock = new TestClock();
    const watch = watchIdle(clock, { idleMs: 60_000, deadline: deadlineIn(600_000, clock) });
    watch.stop();
    clock.advance(200_000);
    await tick();
    expect(watch.signal.reason).toMatchObject({ message: 'the watch has ended' });
  });
});

describe('speedometer', () => {
  it('reports the number of bytes per second', () => {
    const clock = new TestClock();
    const speed = speedometer(clock, 500);
    expect(speed(500)).toBeUndefined();
    for (let second = 1; second <= 20; second += 1) {
      clock.advance(1000);
      expect(speed(500 + second * 2000)).toBeCloseTo(2000);
    }
    for (let second = 1; second <= 20; second += 1) clock.advance(1000);
    expect(speed(40_500)).toBeLessThan(10);
  });

  it('is not affected by a check before the first byte', () => {
    const clock = new TestClock();
    const speed = speedometer(clock, 0);
    clock.advance(50);
    expect(speed(0)).toBe(0);
    for (let step = 1; step <= 10; step += 1) {
      clock.advance(100);
      speed(step * 300_000);
    }
    clock.advance(0);
    expect(speed(3_000_000)).toBeGreaterThan(2_700_000);
  });

  it('never reports a negative speed', () => {
    const clock = new TestClock();
    const speed = speedometer(clock, 5000);
    clock.advance(1000);
    expect(speed(0)).toBe(0);
  });
});
