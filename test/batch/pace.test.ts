import { describe, expect, it } from 'vitest';
import { pacedClient, Slot } from '../../src/batch/paced-client.ts';
import { CallQueue, LocalPace } from '../../src/batch/pace.ts';
import { deadlineIn, systemClock } from '../../src/clock.ts';
import { xApiKey } from '../../src/exchange.ts';
import type { CallOptions, GatewayClient } from '../../src/http/client.ts';
import { TestClock } from '../support/test-clock.ts';

const never = new AbortController().signal;

function pace(options: { concurrency?: number; perMinute?: number; intervalMs?: number } = {}): {
  pace: LocalPace;
  clock: TestClock;
  limits: number[];
} {
  const clock = new TestClock(Number.POSITIVE_INFINITY);
  const limits: number[] = [];
  const paceOptions = { concurrency: 8, intervalMs: 5000, ...options };
  return {
    pace: new LocalPace({ ...paceOptions, clock, onLimit: (limit) => limits.push(limit) }),
    clock,
    limits,
  };
}

async function enter(one: LocalPace, times: number): Promise<void> {
  for (let at = 0; at < times; at += 1) await one.enter(never);
}

describe('the limit on tasks in progress', () => {
  it('delays the next task until another task ends', async () => {
    const { pace: one } = pace({ concurrency: 2 });
    await enter(one, 2);
    const order: string[] = [];
    const third = one.enter(never).then(() => order.push('entered'));
    await new Promise((resolve) => setImmediate(resolve));
    order.push('left');
    one.leave();
    await third;
    expect(order).toEqual(['left', 'entered']);
  });

  it('is halved only once by the 429s of tasks sent before the first 429, and grows again as tasks are accepted', async () => {
    const { pace: one, limits } = pace();
    await enter(one, 8);
    const epochs = await Promise.all(Array.from({ length: 3 }, () => one.waitToSubmit(never)));
    for (const epoch of epochs) one.reportLimited(epoch);
    expect(limits).toEqual([4]);
    one.reportLimited(await one.waitToSubmit(never));
    expect(limits).toEqual([4, 2]);
    for (let at = 0; at < 2 + 3; at += 1) one.reportAccepted();
    expect(limits).toEqual([4, 2, 3, 4]);
  });

  it('never falls below one or exceeds the requested number', async () => {
    const { pace: one } = pace({ concurrency: 1 });
    one.reportLimited(await one.waitToSubmit(never));
    expect(one.limit).toBe(1);
    for (let at = 0; at < 5; at += 1) one.reportAccepted();
    expect(one.limit).toBe(1);
  });

  it('does not make an interrupted process wait', async () => {
    const { pace: one } = pace({ concurrency: 1 });
    await enter(one, 1);
    const stop = new AbortController();
    const waiting = one.enter(stop.signal);
    stop.abort(new Error('stopped'));
    await expect(waiting).rejects.toThrow('stopped');
  });
});

describe('submissions', () => {
  it('wait as long as the gateway requests', async () => {
    const { pace: one, clock } = pace();
    one.reportLimited(await one.waitToSubmit(never), 7000);
    await Promise.all([one.waitToSubmit(never), one.waitToSubmit(never)]);
    expect(clock.monotonic()).toBeGreaterThanOrEqual(7000);
  });

  it('never exceed the configured number per minute', async () => {
    const { pace: one, clock } = pace({ perMinute: 30 });
    for (let at = 0; at < 4; at += 1) await one.waitToSubmit(never);
    // Even if each submission is sent two seconds late, no minute contains more than 30 submissions.
    expect(clock.monotonic()).toBeCloseTo((3 * 62_000) / 30);
  });
});

it('a call leaves its queue when its signal aborts, and never runs', async () => {
  const queue = new CallQueue();
  const ran: string[] = [];
  const run = (name: string, signal = never): Promise<number> =>
    queue.pass(signal, () => Promise.resolve(ran.push(name)));
  let endFirst = (): void => undefined;
  const first = queue.pass(never, () => new Promise<void>((resolve) => (endFirst = resolve)));
  const stop = new AbortController();
  const left = [run('second', stop.signal), run('third', AbortSignal.abort(new Error('stopped')))];
  stop.abort(new Error('stopped'));
  for (const each of left) await expect(each).rejects.toThrow('stopped');
  const last = run('last');
  endFirst();
  await Promise.all([first, last]);
  expect(ran).toEqual(['last']);
});

it('gives the send window of a submission that gave up to the next one', async () => {
  const { pace: one, clock } = pace({ perMinute: 1 });
  await one.waitToSubmit(never);
  const stopped = AbortSignal.abort(new Error('stopped'));
  await expect(one.waitToSubmit(stopped)).rejects.toThrow('stopped');
  await one.waitToSubmit(never);
  expect(clock.monotonic()).toBeCloseTo(62_000);
});

describe('a submission that misses its send window', () => {
  // Makes a submission at a pace of 60 per minute that takes `connecting` ms to connect and `recording` ms to record.
  async function sendLate({ connecting = 0, recording = 0 }): Promise<void> {
    const { pace: one, clock } = pace({ perMinute: 60 });
    const client = {
      exchange: async (_, { onConnected, beforeFirstByte }) => {
        clock.advance(connecting);
        await onConnected?.();
        beforeFirstByte?.();
        return { status: 200, headers: {}, text: '', complete: true };
      },
    } satisfies Partial<GatewayClient>;
    const read = (): { kind: 'accepted'; handle: string } => ({ kind: 'accepted', handle: 'task' });
    const paced = pacedClient(client as never, one, new Slot(one), never, read);
    const onConnected = (): Promise<void> => {
      clock.advance(recording);
      return Promise.resolve();
    };
    const options: CallOptions = { auth: xApiKey, timeoutMs: 1000, onConnected };
    await paced.exchange({} as never, options);
  }

  it('waits for the next window if connecting took too long, and is not sent if recording the attempt took too long', async () => {
    await sendLate({ recording: 1900 });
    await sendLate({ connecting: 2100, recording: 1900 });
    const late = { phase: 'unsent', reason: 'aborted_before_send' };
    await expect(sendLate({ recording: 2100 })).rejects.toMatchObject(late);
    await expect(sendLate({ connecting: 1500, recording: 1500 })).rejects.toMatchObject(late);
  });
});

describe('a submission whose deadline passes is not sent', () => {
  function send(one: LocalPace, ms: number): Promise<unknown> {
    const client = { exchange: () => expect.unreachable() };
    const paced = pacedClient(client as never, one, new Slot(one), never, () => expect.unreachable());
    const options: CallOptions = {
      ...{ auth: xApiKey, timeoutMs: 1000, onConnected: () => Promise.resolve() },
      deadline: deadlineIn(ms, systemClock),
    };
    return paced.exchange({} as never, options);
  }

  it('while it waits for its slot', async () => {
    const { pace: one } = pace({ concurrency: 1 });
    await enter(one, 1);
    await expect(send(one, 1)).rejects.toMatchObject({ code: 'rate_limited', charged: 'no' });
  });

  it('before the end of a Retry-After, and does not wait for the deadline', async () => {
    const one = new LocalPace({ concurrency: 8, intervalMs: 5000, clock: new TestClock() });
    one.reportLimited(await one.waitToSubmit(never), 3_600_000);
    await expect(send(one, 1_800_000)).rejects.toMatchObject({ code: 'rate_limited' });
  });
});

describe('polls', () => {
  it('share one pace for all jobs, and do not delay submissions', async () => {
    const { pace: one, clock } = pace();
    for (let at = 0; at < 101; at += 1) await one.waitToPoll(never);
    expect(clock.monotonic()).toBe(5000);
    one.delayPolls(3000);
    await one.waitToSubmit(never);
    expect(clock.monotonic()).toBe(5000);
    await one.waitToPoll(never);
    expect(clock.monotonic()).toBeGreaterThanOrEqual(8000);
  });

  it.each([
    [30, 30_000],
    [3600, 60_000],
  ])(
    'are all delayed by a Retry-After of %i s, up to one minute, regardless of their job',
    async (seconds, ms) => {
      const { pace: one, clock } = pace();
      const headers = { 'retry-after': String(seconds) };
      const client = { exchange: () => Promise.resolve({ status: 429, headers, text: '', complete: true }) };
      const read = (): never => expect.unreachable();
      const paced = pacedClient(client as never, one, new Slot(one), never, read);
      await paced.exchange({} as never, { auth: xApiKey, timeoutMs: 1000 });
      await one.waitToPoll(never);
      expect(clock.monotonic()).toBe(ms);
    },
  );
});
