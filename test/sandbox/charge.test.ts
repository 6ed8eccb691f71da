import { describe, expect, test } from 'vitest';
import { readBill, totalOf } from '../../src/sandbox/bill.ts';
import type { Limits } from '../../src/sandbox/exchange.ts';
import { listTasks } from '../../src/sandbox/tasks.ts';
import { sandbox, type Answer, type TestSandbox } from './harness.ts';

const VIDEO = { model: 'vendor-h3-mini', prompt: 'a red kite', duration: 5 };

function submitC(gateway: TestSandbox, body: object = VIDEO): Promise<Answer> {
  return gateway.call('POST', '/v1/videos', { body });
}

function speak({ url, key }: TestSandbox, text: string): Promise<Response> {
  const headers = { 'X-Api-Key': key, 'X-Api-Resource-Id': 'speech-tts-2.0' };
  return fetch(`${url}/api/v3/tts/unidirectional`, {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: JSON.stringify({ req_params: { text } }),
  });
}

/** One paid call in each area, its cost, and its refusal if the cost exceeds the balance by a millionth. */
const PAID: [
  area: string,
  amount: number,
  call: (gateway: TestSandbox) => Promise<Answer | Response>,
  refusal: [status: number, words: string],
][] = [
  [
    'a',
    48,
    (gateway) => {
      const body = { instances: [{ prompt: 'x' }], parameters: { durationSeconds: 4 } };
      return gateway.call('POST', '/v1beta/models/video-a:predictLongRunning', { body });
    },
    [403, '"code":"insufficient_user_quota"'],
  ],
  [
    'b',
    50,
    (gateway) => {
      const body = { ModelName: 'Video-B', ModelVersion: '1.0', Prompt: 'x' };
      return gateway.act('CreateAigcVideoTask', body);
    },
    [200, '"Error":{"Code":"FailedOperation.InsufficientBalance"'],
  ],
  ['c', 10, submitC, [403, '{"code":"insufficient_user_quota"']],
  [
    'tts',
    0.075,
    (gateway) => speak(gateway, 'Hello'),
    [403, '"quota exceeded for types: text_words_lifetime"'],
  ],
  [
    'responses',
    0.008,
    (gateway) => gateway.call('POST', '/v1/responses', { body: { model: 'text-1', input: 'Say hello' } }),
    [429, '"code":"insufficient_quota"'],
  ],
];

async function textOf(answer: Answer | Response): Promise<string> {
  return 'bytes' in answer && Buffer.isBuffer(answer.bytes)
    ? answer.bytes.toString()
    : (answer as Response).text();
}

describe('a sandbox balance', () => {
  test.each(PAID)(
    'can be spent completely by a request (%s), but not exceeded by a millionth',
    async (_, amount, call, refusal) => {
      const exact = await sandbox({ limits: { balance: amount } });
      await textOf(await call(exact));
      expect(totalOf(readBill(exact.stateDir))).toBe(amount);
      const short = await sandbox({ limits: { balance: amount - 0.000_001 } });
      const answer = await call(short);
      expect(answer.status).toBe(refusal[0]);
      expect(await textOf(answer)).toContain(refusal[1]);
      expect(readBill(short.stateDir)).toEqual([]);
      expect(listTasks(short.stateDir)).toEqual([]);
    },
  );

  test('is shared by all sandboxes with the same state, and is refunded for a failed task', async () => {
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

describe('the sandbox', () => {
  async function statuses(
    limits: Limits,
    pauses: number[],
    body: object = VIDEO,
  ): Promise<[number, string | null][]> {
    const gateway = await sandbox({ limits });
    const seen: [number, string | null][] = [];
    for (const pause of pauses) {
      gateway.clock.now += pause;
      const answer = await submitC(gateway, body);
      seen.push([answer.status, answer.headers.get('retry-after')]);
    }
    expect(readBill(gateway.stateDir)).toHaveLength(seen.filter(([status]) => status === 200).length);
    return seen;
  }
  const ok = [200, null];

  test('refuses tasks above --concurrency, without a retry time, until a task has ended', async () => {
    const full = [429, null];
    expect(await statuses({ concurrency: 2 }, [0, 400, 100, 499, 1, 0])).toEqual([
      ok,
      ok,
      full,
      full,
      ok,
      full,
    ]);
    expect(await statuses({ concurrency: 1 }, [0, 1e9], { ...VIDEO, prompt: '[never]' })).toEqual([ok, full]);
  });

  test('returns the time until the next request is allowed if a client exceeds the limit per minute', async () => {
    const wait = (seconds: string): unknown[] => [429, seconds];
    const pauses = [0, 10_000, 10_000, 39_999, 1, 9999, 1];
    const expected = [ok, ok, wait('40'), wait('1'), ok, wait('1'), ok];
    expect(await statuses({ perMinute: 2 }, pauses)).toEqual(expected);
  });

  test('refuses a second speech stream while the first is open if the limit is one', async () => {
    const gateway = await sandbox({ limits: { concurrency: 1 } });
    // This text is larger than a connection's buffers, so it is sent only while the client reads it.
    const first = await speak(gateway, 'word '.repeat(5_000));
    const second = await speak(gateway, 'Hello');
    expect(second.status).toBe(429);
    expect(await second.json()).toMatchObject({ code: 45_000_292 });
    expect(readBill(gateway.stateDir)).toHaveLength(1);
    await first.body?.cancel();
    await expect.poll(async () => (await speak(gateway, 'Hello')).status).toBe(200);
  });
});
