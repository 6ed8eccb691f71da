import { expect, it, onTestFinished, vi } from 'vitest';
import type { CallOptions, GatewayClient, StreamedReply } from '../../src/http/client.ts';
import { StreamedCall } from '../../src/http/streamed-call.ts';

it.each([
  [199, true],
  [200, false],
  [299, false],
  [300, true],
  [429, true],
])('the body of a response with HTTP %i is read before the stream begins: %s', async (status, isRead) => {
  let [isClosed, given] = [false, {} as CallOptions];
  const answer = {
    ...{ status, headers: { a: 'b' } },
    body: (async function* () {
      yield await Promise.resolve(new TextEncoder().encode('{"error":1}'));
    })(),
    close: () => (isClosed = true),
  } as unknown as StreamedReply;
  const client = {
    stream: (_: unknown, options: CallOptions) => {
      given = options;
      return Promise.resolve(answer);
    },
  } as unknown as GatewayClient;
  const call = new StreamedCall(1000, { remainingMs: () => Infinity }, 7);
  const request = { method: 'POST', path: '/', headers: {} } as const;
  const reply = await call.send(client, request, { timeoutMs: 5 } as CallOptions);
  const read = { text: '{"error":1}', complete: true };
  expect(reply).toEqual({ status, headers: { a: 'b' }, ...(isRead ? read : { text: '', complete: false }) });
  expect([call.stream, isClosed]).toEqual([isRead ? undefined : answer, isRead]);
  expect(given).toMatchObject({ timeoutMs: 5, maxBuffered: 7 });
});

it("a refusal's body may stall for the idle time, but not longer", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  const answer = {
    ...{ status: 429, headers: {} },
    body: (async function* () {
      for (const [text, ms] of [
        ['a', 999],
        ['b', 1001],
        ['c', 0],
      ] as const) {
        yield new TextEncoder().encode(text);
        await pause(ms);
      }
    })(),
    close: () => undefined,
  } as unknown as StreamedReply;
  const client = { stream: () => Promise.resolve(answer) } as Partial<GatewayClient> as GatewayClient;
  const call = new StreamedCall(1000, { remainingMs: () => Infinity });
  const reply = call.send(client, { method: 'POST', path: '/', headers: {} }, {} as CallOptions);
  await vi.runAllTimersAsync();
  expect(await reply).toMatchObject({ text: 'ab', complete: false });
});
