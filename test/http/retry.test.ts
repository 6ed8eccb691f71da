import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import { bearer, type Reply } from '../../src/exchange.ts';
import { readWithRetries, type RetryOptions } from '../../src/http/retry.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { nockGateway } from '../support/nock.ts';
import { TestClock } from '../support/test-clock.ts';

type Answer = [status: number, body?: object, headers?: Record<string, string>];
/** A response, a truncated success (`cut`), or the reason why there was no response. */
type Outcome = Answer | 'cut' | Error;

const good: Answer = [200, { data: [] }];
const broken = new TransportError('sent', 'broken', 'the connection broke');
const refused = new TransportError('unsent', 'unreachable', 'refused');

interface Tried {
  calls: number;
  pauses: readonly number[];
  notes: string[];
  result: Promise<Reply>;
}

/** Starts a read whose attempts have the given outcomes, in order. The test fails if an outcome is left over. */
function tries(outcomes: Outcome[], options: Partial<RetryOptions> = {}): Tried {
  const { gateway, client } = nockGateway();
  for (const outcome of outcomes) {
    if (outcome instanceof Error) continue;
    gateway.get('/v1/models').reply(...(outcome === 'cut' ? good : outcome));
  }
  const clock = new TestClock(Infinity);
  const notes: string[] = [];
  const call = async (): Promise<Reply> => {
    const outcome = outcomes[tried.calls];
    tried.calls += 1;
    if (outcome instanceof Error) throw outcome;
    const request = { method: 'GET', path: '/v1/models', headers: {} } as const;
    const reply = await client.exchange(request, { auth: bearer, timeoutMs: 30_000 });
    return outcome === 'cut' ? { ...reply, complete: false } : reply;
  };
  const tried = { calls: 0, pauses: clock.pauses, notes, result: Promise.resolve({} as Reply) };
  tried.result = readWithRetries(call, { clock, retries: 5, note: (text) => notes.push(text), ...options });
  return tried;
}

describe('a read', () => {
  it.each<[string, Outcome[]]>([
    ['429', [[429]]],
    ['500', [[500]]],
    ['502, 503 and 504', [[502], [503], [504]]],
    ['a truncated response', ['cut']],
    ['no connection', [refused, refused]],
    ['a broken connection', [broken]],
    ['several different failures', [[429], broken, [500], refused, 'cut']],
  ])('is repeated after %s, and returns the last response', async (_, outcomes) => {
    const tried = tries([...outcomes, good]);
    expect(await tried.result).toMatchObject({ status: 200, text: '{"data":[]}', complete: true });
    expect(tried.calls).toBe(outcomes.length + 1);
    expect(tried.notes).toHaveLength(outcomes.length);
    expect(tried.notes[0]).toContain('trying again in');
  });

  it.each([200, 204, 302, 400, 401, 403, 404, 422])('is not repeated after %i', async (status) => {
    const tried = tries([[status]]);
    expect((await tried.result).status).toBe(status);
    expect(tried.calls).toBe(1);
  });

  it.each<[string, Outcome, number]>([
    ['an exhausted balance', [429, { error: { code: 'insufficient_quota', message: 'no' } }], 429],
    ['a model that is missing', [503, { error: { code: 'model_not_found', message: 'no' } }], 503],
    ['a wait of more than five minutes', [429, {}, { 'retry-after': '301' }], 429],
  ])('is not repeated after %s, because a retry would not help', async (_, outcome, status) => {
    const tried = tries([outcome]);
    expect((await tried.result).status).toBe(status);
    expect(tried.calls).toBe(1);
  });

  it('returns the last response regardless of its status, or fails if there was none', async () => {
    const busy = tries([[503], [503], [503]], { retries: 2 });
    expect((await busy.result).status).toBe(503);
    expect(busy.calls).toBe(3);
    const silent = tries([broken, broken, broken], { retries: 2 });
    const error = await silent.result.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(MgwError);
    expect(error).toMatchObject({ exitCode: 6, code: 'unreachable', retry: 'safe', message: broken.message });
    expect(silent.calls).toBe(3);
  });

  it('is made once if retries are disabled', async () => {
    const tried = tries([[500]], { retries: 0 });
    expect((await tried.result).status).toBe(500);
    expect([tried.calls, tried.pauses]).toEqual([1, []]);
  });

  it('waits longer before each attempt, and never less than the gateway requests', async () => {
    const tried = tries([[500], [500], [500], [429, {}, { 'retry-after': '60' }], good]);
    await tried.result;
    const [first = 0, second = 0, third = 0, asked = 0] = tried.pauses;
    expect(first).toBeGreaterThanOrEqual(375);
    expect(first).toBeLessThanOrEqual(625);
    expect(third).toBeGreaterThan(first);
    expect(second).toBeLessThanOrEqual(1250);
    expect(asked).toBeGreaterThanOrEqual(60_000);
  });

  it('is not repeated if the certificate is invalid', async () => {
    const tried = tries([new TransportError('unsent', 'certificate', 'expired')]);
    await expect(tried.result).rejects.toMatchObject({ code: 'unreachable', message: 'expired' });
    expect(tried.calls).toBe(1);
  });

  it.each<[string, Outcome]>([
    ['no response', broken],
    ['a response', [500]],
  ])('ends immediately if it is interrupted, regardless of the response (%s)', async (_, outcome) => {
    for (const retries of [0, 5]) {
      const tried = tries([outcome], { signal: AbortSignal.abort('SIGINT'), retries });
      await expect(tried.result).rejects.toBe('SIGINT');
      expect(tried.calls).toBe(1);
    }
  });

  it('rethrows errors other than connection errors', async () => {
    await expect(tries([new RangeError('a bug')]).result).rejects.toThrow(RangeError);
  });

  it('limits the retries to `unsentRetries`, if set, when no connection can be made', async () => {
    const tried = tries([refused, refused, refused], { retries: 5, unsentRetries: 1 });
    await expect(tried.result).rejects.toMatchObject({ code: 'unreachable' });
    expect(tried.calls).toBe(2);
  });
});

it('a read through a proxy that cannot be used is not repeated, and exits with 2', async () => {
  const { result, pauses } = tries([new TransportError('unsent', 'proxy', 'a socks5 proxy')]);
  await expect(result).rejects.toMatchObject({ exitCode: 2, code: 'config', message: 'a socks5 proxy.' });
  expect(pauses).toEqual([]);
});
