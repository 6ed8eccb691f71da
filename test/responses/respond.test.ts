import type { ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import { deadlineIn, type Deadline } from '../../src/clock.ts';
import { createClient, type GatewayClient } from '../../src/http/client.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { respond } from '../../src/responses/respond.ts';
import type { ResponseEnd } from '../../src/responses/wire.ts';
import { onEnd } from '../support/clean-ups.ts';
import { leaseOf } from '../support/lease.ts';
import { nockGateway, nockKey } from '../support/nock.ts';
import { closedPort, httpServer, type HttpServer } from '../support/servers.ts';
import { TestClock } from '../support/test-clock.ts';

const body = { model: 'm', input: 'Hi' };
const whole = {
  status: 'completed',
  output: [{ type: 'message', content: [{ type: 'output_text', text: 'Hello' }] }],
};
const done = `data: ${JSON.stringify({ type: 'response.completed', response: whole })}\n\n`;
const events = { 'content-type': 'text/event-stream' };

interface Options {
  clock?: TestClock;
  deadline?: Deadline;
  streamed?: boolean;
  requestTimeoutMs?: number;
  idleTimeoutMs?: number;
}

/**
 * Makes a call, and returns its result and the received text. The call is interrupted when it receives the text `stop`.
 */
async function call(
  client: GatewayClient,
  { clock = new TestClock(), deadline = deadlineIn(60_000, clock), streamed, ...limits }: Options = {},
): Promise<{ end: ResponseEnd; text: string }> {
  const abort = new AbortController();
  let text = '';
  const deps = {
    client,
    clock,
    note: () => undefined,
    retries: 3,
    lease: leaseOf(currentOwner()),
    allowances: () => Promise.resolve([]),
    signal: abort.signal,
    requestTimeoutMs: 30_000,
    ...limits,
  };
  const onText = (piece: string): void => {
    text += piece;
    if (piece === 'stop') abort.abort('SIGINT');
  };
  const request = streamed ? { ...body, stream: true } : body;
  const end = await respond(request, deps, onText, deadline);
  return { end, text };
}

/** Makes a call that receives one response, and returns how it ended. */
async function endOf(
  status: number,
  answer: string | object,
  headers: Record<string, string> = {},
  options: Options = {},
): Promise<ResponseEnd> {
  const { gateway, client } = nockGateway();
  gateway.post('/v1/responses').reply(status, answer, { 'x-request-id': 'r1', ...headers });
  return (await call(client, options)).end;
}

test('mgw responses sends the key as Bearer, and reads the response', async () => {
  const { gateway, client } = nockGateway();
  gateway.post('/v1/responses', body).matchHeader('authorization', `Bearer ${nockKey}`).reply(200, whole);
  expect(await call(client)).toMatchObject({ end: { kind: 'completed', text: 'Hello' }, text: 'Hello' });
});

test.each([
  [{ status: 'failed', error: { message: 'no' } }, 'failed', 'Hello'],
  [{ status: 'incomplete', incomplete_details: { reason: 'content_filter' } }, 'failed', 'Hello'],
  [{ status: 'paused' }, 'cut', 'Hello'],
  [{ status: 'in_progress' }, 'pending', ''],
])('mgw responses passes on the paid text of a document with %j', async (members, kind, text) => {
  const { gateway, client } = nockGateway();
  gateway.post('/v1/responses').reply(200, { ...whole, ...members });
  expect(await call(client)).toMatchObject({ end: { kind }, text });
});

test.each([
  ['a document', JSON.stringify(whole), 'text/plain'],
  ['a document after white space', `\ufeff\n ${JSON.stringify(whole)}`, 'text/event-stream'],
  ['a stream', done, 'application/json'],
  ['a stream after a comment', `\n: ping\n\n${done}`, 'application/octet-stream'],
])('a response in the form of %s is recognized despite a wrong content type', async (_, text, type) => {
  expect(await endOf(200, text, { 'content-type': type })).toMatchObject({
    kind: 'completed',
    text: 'Hello',
  });
});

test('a JSON response is read up to 64 MiB', async () => {
  const piece = Buffer.alloc(2 ** 20, ' ');
  const clientOf = (mebibytes: number): GatewayClient => {
    async function* body(): AsyncGenerator<Buffer> {
      yield await Promise.resolve(Buffer.from('{'));
      for (let count = 0; count < mebibytes; count += 1) yield piece;
      yield Buffer.from(JSON.stringify(whole).slice(1));
    }
    const reply = { status: 200, headers: {}, body: body(), close: () => undefined };
    return { stream: () => Promise.resolve(reply) } as Partial<GatewayClient> as GatewayClient;
  };
  expect((await call(clientOf(63))).end).toMatchObject({ kind: 'completed', text: 'Hello' });
  expect((await call(clientOf(64))).end).toMatchObject({ kind: 'cut' });
});

test("a failure in the gateway's envelope with HTTP 200 is reported as an error", async () => {
  expect(await endOf(200, { success: false, message: 'get user group failed' })).toMatchObject({
    kind: 'failed',
    failure: { message: 'get user group failed' },
  });
});

test('a gateway envelope without a failure is not accepted as a response', async () => {
  const why = expect.stringContaining('task layer') as string;
  expect(await endOf(200, { code: 'x', message: 'task layer' })).toMatchObject({ kind: 'cut', why });
});

test.each<[string, string | object, boolean]>([
  ['a stream that was not requested', done, false],
  ['a document instead of a stream', whole, true],
])('mgw responses reads %s', async (_, answer, streamed) => {
  expect(await endOf(200, answer, {}, { streamed })).toMatchObject({ kind: 'completed', text: 'Hello' });
});

test('a refusal instead of a stream is reported as an error', async () => {
  const answer = { error: { message: 'Insufficient balance' } };
  expect(await endOf(200, answer, {}, { streamed: true })).toMatchObject({
    kind: 'failed',
    failure: { code: 'balance' },
  });
});

test.each<[string, string, string]>([
  ['<html>', 'text/html', '<html> (a web page: check the base URL)'],
  [`["${'x'.repeat(300)}"]`, 'application/json', `["${'x'.repeat(198)}`],
  ['', 'application/json', ''],
])('the reply %s as %s contains no response', async (text, type, excerpt) => {
  expect(await endOf(200, text, { 'content-type': type })).toEqual({ kind: 'unreadable', excerpt });
});

test('a reply of plain text is passed on as it is, and is not accepted as a response', async () => {
  const { gateway, client } = nockGateway();
  gateway.post('/v1/responses').reply(200, 'Hello,\nworld: é', { 'content-type': 'text/plain' });
  const end = { kind: 'unreadable', excerpt: 'it is plain text' };
  expect(await call(client)).toEqual({ end, text: 'Hello,\nworld: é' });
});

test('the error for a document that is not a response contains the beginning of the document', async () => {
  const why = 'the response is not marked as completed: {"hello":"world"}';
  const response = { hello: 'world' };
  expect(await endOf(200, '{"hello":"world"}')).toEqual({ kind: 'cut', why, response });
});

test.each<[string, string, string, RegExp]>([
  ['a stream without its end', 'data: {"type":"response.created"}\n\n', 'text/event-stream', /last event/],
  ['a stream that ends in its first event', 'data: {"type":"respo', 'text/event-stream', /last event/],
  ['a stream of comments', ': ping\n\n: ping\n\n', 'text/event-stream', /last event/],
])('mgw responses does not accept %s as a complete response', async (_, text, type, why) => {
  expect(await endOf(200, text, { 'content-type': type })).toMatchObject({
    kind: 'cut',
    why: expect.stringMatching(why) as string,
  });
});

describe('a failed Responses request', () => {
  test('is retried only after 429 and 503', async () => {
    const { gateway, client } = nockGateway();
    gateway.post('/v1/responses').reply(429);
    gateway.post('/v1/responses').reply(503, { error: { message: 'overloaded' } });
    gateway.post('/v1/responses').reply(200, whole);
    expect((await call(client)).end).toMatchObject({ kind: 'completed' });
  });

  test('leads to exit 6, and is safe to repeat, if every response is a 429', async () => {
    const { gateway, client } = nockGateway();
    gateway
      .post('/v1/responses')
      .times(4)
      .reply(429, { error: { message: 'slow down' } });
    await expect(call(client)).rejects.toMatchObject({
      code: 'rate_limited',
      exitCode: 6,
      charged: 'no',
      retry: 'safe',
    });
  });

  test('does not wait for a Retry-After beyond the deadline', async () => {
    await expect(endOf(429, '', { 'retry-after': '86400' })).rejects.toMatchObject({ exitCode: 6 });
  });

  test.each([
    [500, { error: { message: 'oops' } }],
    [302, ''],
  ])('leads to exit 7 after HTTP %i, because the call may have been charged', async (status, answer) => {
    await expect(endOf(status, answer)).rejects.toMatchObject(unknown);
  });

  test.each([
    [
      401,
      { error: { message: 'Incorrect API key', code: 'invalid_api_key' } },
      { code: 'auth', exitCode: 3 },
    ],
    [400, { error: { message: 'bad' } }, { code: 'invalid_request', exitCode: 4 }],
    [429, { error: { message: 'x', code: 'insufficient_quota' } }, { code: 'balance', exitCode: 4 }],
    [
      404,
      { error: { message: 'The model m does not exist', code: 'model_not_found' } },
      { code: 'not_found', exitCode: 4 },
    ],
  ])('is a refusal if the status is %i', async (status, answer, expected) => {
    await expect(endOf(status, answer)).rejects.toMatchObject({
      ...expected,
      charged: 'no',
      requestId: 'r1',
    });
  });

  test('is reported as a wrong base URL if the URL contains /v1', async () => {
    const answer = { error: { message: 'Invalid URL (POST /v1/v1/responses)' } };
    await expect(endOf(404, answer)).rejects.toThrow(/root of the gateway, without \/v1/);
  });
});

const unknown = { code: 'submit_unknown', exitCode: 7, charged: 'maybe', retry: 'never' };

describe('a connection for a Responses request', () => {
  /** Returns a client of a server that controls the connection. */
  async function served(
    answer: (response: ServerResponse) => void,
  ): Promise<{ client: GatewayClient; server: HttpServer }> {
    const server = await httpServer((_, response) => answer(response));
    return { client: clientOf(server.url), server };
  }

  function clientOf(url: string): GatewayClient {
    const client = createClient({ baseUrl: new URL(url), key: 'key', userAgent: 'mgw/test' });
    onEnd(() => client.close());
    return client;
  }

  test('yields the whole response even if it breaks after the last event', async () => {
    const { client } = await served((response) => {
      response.writeHead(200, events).write(done, () => response.destroy());
    });
    expect((await call(client)).end).toMatchObject({ kind: 'completed' });
  });

  /** Sends a document with a Content-Length that is too large. */
  const cutTo = (document: string) => (response: ServerResponse) =>
    response
      .writeHead(200, { 'content-length': Buffer.byteLength(document) + 5 })
      .write(document, () => response.destroy());

  test('yields a whole document even if its Content-Length is too large', async () => {
    const { client } = await served(cutTo(JSON.stringify(whole)));
    expect(await call(client)).toMatchObject({ end: { kind: 'completed' }, text: 'Hello' });
  });

  const start = JSON.stringify(whole).replace(/"\}\]\}\]\}$/, '');
  test.each([
    ['in a string', start, 'Hello'],
    ['in an escape', `${start}\\\\\\u00e`, 'Hello\\'],
    ['after a string', `${start}"}],`, 'Hello'],
  ])('yields the received text of a document that is truncated %s', async (_, document, text) => {
    const { client } = await served(cutTo(document));
    expect(await call(client)).toMatchObject({
      end: { kind: 'cut', response: { status: 'completed' } },
      text,
    });
  });

  test('yields a truncated document that contains no readable text unchanged', async () => {
    const { client } = await served(cutTo('{"answer":"Hel'));
    expect(await call(client)).toMatchObject({
      end: { kind: 'cut', response: { answer: 'Hel' } },
      text: '{"answer":"Hel',
    });
  });

  test.each<[string, (response: ServerResponse) => void, RegExp, Options?]>([
    [
      'breaks in a stream',
      (response) => response.writeHead(200, events).write('data: ', () => response.destroy()),
      /broke|truncated/,
    ],
    [
      'breaks in a document',
      (response) =>
        response.writeHead(200, { 'content-length': '100' }).write('{"status":', () => response.destroy()),
      /truncated/,
    ],
    [
      'stalls',
      (response) => response.writeHead(200, events).write(': hello\n\n'),
      /^no data arrived for 0.05 s$/,
      { idleTimeoutMs: 50 },
    ],
  ])('yields no complete response if it %s', async (_, answer, why, limits) => {
    const { client, server } = await served(answer);
    expect((await call(client, limits)).end).toMatchObject({
      kind: 'cut',
      why: expect.stringMatching(why) as string,
    });
    expect(server.requests).toHaveLength(1);
  });

  test('makes the command exit with 7, because the call may have been charged, if it is reset or stays silent', async () => {
    const reset = await served((response) => response.destroy());
    const silent = await served(() => undefined);
    const clock = new TestClock();
    await Promise.all([
      expect(call(reset.client)).rejects.toMatchObject(unknown),
      expect(call(silent.client, { requestTimeoutMs: 1000 })).rejects.toMatchObject(unknown),
      expect(call(silent.client, { clock, deadline: deadlineIn(1000, clock) })).rejects.toMatchObject(
        unknown,
      ),
    ]);
    expect([reset.server.requests, silent.server.requests]).toMatchObject([[{}], [{}, {}]]);
  });

  test('makes the command exit with 6 if it is refused', async () => {
    const client = clientOf(`http://127.0.0.1:${await closedPort()}`);
    await expect(call(client)).rejects.toMatchObject({
      code: 'unreachable',
      exitCode: 6,
      retry: 'safe',
    });
  });

  test('ends immediately with exit 130 if the user interrupts it, and the call is reported as charged', async () => {
    const delta = { type: 'response.output_text.delta', delta: 'stop' };
    const { client } = await served((response) => {
      response.writeHead(200, events).write(`data: ${JSON.stringify(delta)}\n\n`);
    });
    await expect(call(client)).rejects.toMatchObject({ exitCode: 130, charged: 'yes', retry: 'never' });
  });
});
