import { describe, expect, it } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import type { Reply } from '../../src/exchange.ts';
import { readWithRetries, type RetryOptions } from '../../src/http/retry.ts';
import { TransportError } from '../../src/http/transport-error.ts';

function reply(status: number, body: unknown = {}, headers: Record<string, string> = {}): Reply {
  return { status, headers, text: JSON.stringify(body), complete: true };
}

const good = reply(200, { data: [] });
const broken = new TransportError('sent', 'broken', 'the connection broke');
const refused = new TransportError('unsent', 'unreachable', 'refused');

interface Tried {
  calls: number;
  pauses: number[];
  notes: string[];
  result: Promise<Reply>;
}

/** Reads with these outcomes one after the other; the last one stays. */
function tries(outcomes: (Reply | Error)[], options: Partial<RetryOptions> = {}): Tried {
  const tried: Tried = { calls: 0, pauses: [], notes: [], result: Promise.resolve(good) };
  const clock: Clock = {
    now: () => 0,
    monotonic: () => 0,
    sleep: (ms, signal) => {
      signal?.throwIfAborted();
      tried.pauses.push(ms);
      return Promise.resolve();
    },
  };
  const call = (): Promise<Reply> => {
    const outcome = outcomes[Math.min(tried.calls, outcomes.length - 1)] ?? good;
    tried.calls += 1;
    return outcome instanceof Error ? Promise.reject(outcome) : Promise.resolve(outcome);
  };
  tried.result = readWithRetries(call, {
    clock,
    retries: 5,
    note: (text) => tried.notes.push(text),
    ...options,
  });
  return tried;
}

describe('a read', () => {
  it.each<[string, (Reply | Error)[]]>([
    ['429', [reply(429)]],
    ['500', [reply(500)]],
    ['502, 503 and 504', [reply(502), reply(503), reply(504)]],
    ['a cut answer', [{ ...good, complete: false }]],
    ['no connection', [refused, refused]],
    ['a broken connection', [broken]],
    ['all of them', [reply(429), broken, reply(500), refused, { ...good, complete: false }]],
  ])('is repeated behind %s, and gives what came at last', async (_, outcomes) => {
    const tried = tries([...outcomes, good]);
    expect(await tried.result).toBe(good);
    expect(tried.calls).toBe(outcomes.length + 1);
    expect(tried.notes).toHaveLength(outcomes.length);
    expect(tried.notes[0]).toContain('trying again in');
  });

  it.each([200, 204, 302, 400, 401, 403, 404, 422])('is not repeated behind %i', async (status) => {
    const tried = tries([reply(status), good]);
    expect((await tried.result).status).toBe(status);
    expect(tried.calls).toBe(1);
  });

  it.each<[string, Reply]>([
    ['a balance used up', reply(429, { error: { code: 'insufficient_quota', message: 'no' } })],
    ['a model that is missing', reply(503, { error: { code: 'model_not_found', message: 'no' } })],
    ['a wait of more than five minutes', reply(429, {}, { 'retry-after': '301' })],
  ])('is not repeated behind %s: that would not help', async (_, outcome) => {
    const tried = tries([outcome, good]);
    expect(await tried.result).toBe(outcome);
    expect(tried.calls).toBe(1);
  });

  it('gives the last answer whatever it is, and fails where none came', async () => {
    const busy = tries([reply(503)], { retries: 2 });
    expect((await busy.result).status).toBe(503);
    expect(busy.calls).toBe(3);
    const silent = tries([broken], { retries: 2 });
    const error = await silent.result.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(MgwError);
    expect(error).toMatchObject({ exitCode: 6, code: 'unreachable', retry: 'safe', message: broken.message });
    expect(silent.calls).toBe(3);
  });

  it('is made once where no retry is wanted', async () => {
    const tried = tries([reply(500)], { retries: 0 });
    expect((await tried.result).status).toBe(500);
    expect([tried.calls, tried.pauses]).toEqual([1, []]);
  });

  it('waits longer each time, and never shorter than it was asked to', async () => {
    const tried = tries([reply(500), reply(500), reply(500), reply(429, {}, { 'retry-after': '60' }), good]);
    await tried.result;
    const [first = 0, second = 0, third = 0, asked = 0] = tried.pauses;
    expect(first).toBeGreaterThanOrEqual(375);
    expect(first).toBeLessThanOrEqual(625);
    expect(third).toBeGreaterThan(first);
    expect(second).toBeLessThanOrEqual(1250);
    expect(asked).toBeGreaterThanOrEqual(60_000);
  });

  it('is not repeated where the certificate is wrong', async () => {
    const wrong = new TransportError('unsent', 'certificate', 'expired');
    const tried = tries([wrong, good]);
    await expect(tried.result).rejects.toMatchObject({ code: 'unreachable', message: 'expired' });
    expect(tried.calls).toBe(1);
  });

  it('ends at once where it is interrupted, whatever came', async () => {
    for (const outcome of [broken, reply(500)]) {
      for (const retries of [0, 5]) {
        const controller = new AbortController();
        controller.abort('SIGINT');
        const tried = tries([outcome], { signal: controller.signal, retries });
        await expect(tried.result).rejects.toBe('SIGINT');
        expect(tried.calls).toBe(1);
      }
    }
  });

  it('passes on what is no error of the connection', async () => {
    await expect(tries([new RangeError('a bug')]).result).rejects.toThrow(RangeError);
  });
});
