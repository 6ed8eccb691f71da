import { describe, expect, test } from 'vitest';
import { readBill, totalOf } from '../../src/sandbox/bill.ts';
import type { Limits } from '../../src/sandbox/limits.ts';
import { listTasks } from '../../src/sandbox/tasks.ts';
import { sandbox, type Answer, type TestSandbox } from './harness.ts';

const VIDEO = { model: 'vendor-h3-mini', prompt: 'a red kite', duration: 5 };
const SPEECH = { req_params: { text: 'x'.repeat(1000) } };

function submitC(gateway: TestSandbox, body: object = VIDEO): Promise<Answer> {
  return gateway.call('POST', '/v1/videos', { body });
}

function speak(gateway: TestSandbox): Promise<Answer> {
  const headers = { 'X-Api-Key': gateway.key, 'X-Api-Resource-Id': 'speech-tts-2.0' };
  return gateway.call('POST', '/api/v3/tts/unidirectional', { body: SPEECH, headers });
}

/** One paid call of each area; `amount` is what it costs. */
const PAID: { area: string; amount: number; call: (gateway: TestSandbox) => Promise<Answer> }[] = [
  {
    area: 'a',
    amount: 48,
    call: (gateway) => {
      const body = { instances: [{ prompt: 'x' }], parameters: { durationSeconds: 4 } };
      return gateway.call('POST', '/v1beta/models/video-a:predictLongRunning', { body });
    },
  },
  {
    area: 'b',
    amount: 50,
    call: (gateway) => {
      const body = { ModelName: 'Video-B', ModelVersion: '1.0', Prompt: 'x' };
      const headers = { 'X-TC-Action': 'CreateAigcVideoTask', 'X-TC-Version': '2018-07-17' };
      return gateway.call('POST', '/', { body, headers });
    },
  },
  { area: 'c', amount: 10, call: (gateway) => submitC(gateway) },
  { area: 'tts', amount: 15, call: speak },
  {
    area: 'responses',
    amount: 0.008,
    call: (gateway) =>
      gateway.call('POST', '/v1/responses', { body: { model: 'text-1', input: 'Say hello' } }),
  },
];

describe('a balance', () => {
  const words: Record<string, [status: number, at: string, word: string]> = {
    a: [403, 'error.code', 'insufficient_user_quota'],
    b: [200, 'Response.Error.Code', 'FailedOperation.InsufficientBalance'],
    c: [403, 'code', 'insufficient_user_quota'],
    tts: [403, 'message', 'quota exceeded for types: text_words_lifetime'],
    responses: [429, 'error.code', 'insufficient_quota'],
  };

  test.each(PAID)('lets $area spend all of it, and not a millionth more', async ({ area, amount, call }) => {
    const exact = await sandbox({ limits: { balance: amount } });
    expect((await call(exact)).status).toBe(200);
    expect(totalOf(readBill(exact.stateDir))).toBe(amount);
    const short = await sandbox({ limits: { balance: amount - 0.000_001 } });
    const answer = await call(short);
    const [status, at, word] = words[area] ?? [];
    expect([answer.status, answer.at(at ?? '')]).toEqual([status, word]);
    expect(readBill(short.stateDir)).toEqual([]);
    expect(listTasks(short.stateDir)).toEqual([]);
  });

  test('is the same for every later sandbox over the same state, and what a failed task gives back is there again', async () => {
    const first = await sandbox({ limits: { balance: 20 } });
    expect((await submitC(first, { ...VIDEO, prompt: '[fail]' })).status).toBe(200);
    expect((await submitC(first)).status).toBe(200);
    const later = await sandbox({ limits: { balance: 20 }, stateDir: first.stateDir });
    expect((await submitC(later)).status).toBe(403);
    later.clock.now += 1000;
    expect((await submitC(later)).status).toBe(200);
    expect((await submitC(later)).status).toBe(403);
    expect(totalOf(readBill(later.stateDir, later.clock.now))).toBe(20);
  });
});

describe('a limit', () => {
  async function statuses(limits: Limits, pauses: number[], pace = 1000): Promise<[number, string | null][]> {
    const gateway = await sandbox({ limits, paceMs: pace });
    const seen: [number, string | null][] = [];
    for (const pause of pauses) {
      gateway.clock.now += pause;
      const answer = await submitC(gateway);
      seen.push([answer.status, answer.headers.get('retry-after')]);
    }
    expect(readBill(gateway.stateDir)).toHaveLength(seen.filter(([status]) => status === 200).length);
    return seen;
  }
  const ok = [200, null];

  test('of tasks under way refuses one more until one has ended, and cannot say when', async () => {
    expect(await statuses({ concurrency: 2 }, [0, 400, 100, 499, 1, 0])).toEqual([
      ok,
      ok,
      [429, null],
      [429, null],
      ok,
      [429, null],
    ]);
  });

  test('of calls in a minute says when the next one may come', async () => {
    expect(await statuses({ perMinute: 2 }, [0, 10_000, 10_000, 39_999, 1, 9999, 1])).toEqual([
      ok,
      ok,
      [429, '40'],
      [429, '1'],
      ok,
      [429, '1'],
      ok,
    ]);
  });

  test('counts a task that never ends for ever', async () => {
    const gateway = await sandbox({ limits: { concurrency: 1 } });
    await submitC(gateway, { ...VIDEO, prompt: '[never]' });
    gateway.clock.now += 1e9;
    expect((await submitC(gateway)).status).toBe(429);
  });

  test('of streams of speech refuses one more while one is being sent', async () => {
    const gateway = await sandbox({ limits: { concurrency: 1 } });
    const headers = { 'X-Api-Key': gateway.key, 'X-Api-Resource-Id': 'speech-tts-2.0' };
    const body = JSON.stringify({ req_params: { text: 'word '.repeat(2000) } });
    const first = await fetch(`${gateway.url}/api/v3/tts/unidirectional`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/json' },
      body,
    });
    const second = await speak(gateway);
    expect([second.status, second.at('code')]).toEqual([429, 45_000_292]);
    expect(readBill(gateway.stateDir)).toHaveLength(1);
    await first.arrayBuffer();
    await expect.poll(async () => (await speak(gateway)).status).toBe(200);
  });
});
