import type { ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import { deadlineIn, type Deadline } from '../../src/clock.ts';
import { respond } from '../../src/responses/respond.ts';
import type { ResponseEnd } from '../../src/responses/wire.ts';
import { depsFor, freshFolder, key, speechServer, type SpeechServer } from '../speech/harness.ts';

const body = { model: 'm', input: 'Hi' };
const whole = {
  status: 'completed',
  output: [{ type: 'message', content: [{ type: 'output_text', text: 'Hello' }] }],
};
const done = `data: ${JSON.stringify({ type: 'response.completed', response: whole })}\n\n`;

type Say = (response: ServerResponse) => void;
const say =
  (status: number, text: unknown, type = 'application/json'): Say =>
  (response) =>
    void response
      .writeHead(status, { 'content-type': type, 'x-request-id': 'r1' })
      .end(typeof text === 'string' ? text : JSON.stringify(text));

interface Call {
  server: SpeechServer;
  text: () => string;
  run: (more?: { deadline?: Deadline; abort?: AbortController; streamed?: boolean }) => Promise<ResponseEnd>;
}

async function call(...answers: Say[]): Promise<Call> {
  const server = await speechServer(...answers);
  const { client, clock, note } = await depsFor(server.url, freshFolder());
  let text = '';
  return {
    server,
    text: () => text,
    run: ({ deadline = deadlineIn(60_000, clock), abort = new AbortController(), streamed = false } = {}) => {
      const deps = {
        client,
        clock,
        note,
        retries: 3,
        signal: abort.signal,
        requestTimeoutMs: 1000,
        idleTimeoutMs: 200,
      };
      const onText = (piece: string): void => {
        text += piece;
        if (piece === 'stop') abort.abort('SIGINT');
      };
      return respond(streamed ? { ...body, stream: true } : body, deps, onText, deadline);
    },
  };
}

test('asks with the key as Bearer, and reads the answer', async () => {
  const { run, server, text } = await call(say(200, whole));
  expect(await run()).toMatchObject({ kind: 'completed', text: 'Hello' });
  expect(text()).toBe('Hello');
  expect(server.requests).toMatchObject([{ path: '/v1/responses', body: JSON.stringify(body) }]);
  expect(server.requests[0]?.headers).toMatchObject({ authorization: `Bearer ${key}` });
});

test.each([
  ['a document', JSON.stringify(whole), 'text/plain'],
  ['a document behind blanks', `\ufeff\n ${JSON.stringify(whole)}`, 'text/event-stream'],
  ['a stream', done, 'application/json'],
  ['a stream behind a comment', `\n: ping\n\n${done}`, 'application/octet-stream'],
])('%s is read as what it is, under a wrong type', async (_, text, type) => {
  const { run } = await call(say(200, text, type));
  expect(await run()).toMatchObject({ kind: 'completed', text: 'Hello' });
});

test('a failure under 200 in the gateway’s own envelope is one', async () => {
  const { run } = await call(say(200, { success: false, message: 'get user group failed' }));
  expect(await run()).toMatchObject({ kind: 'failed', failure: { message: 'get user group failed' } });
  const other = await call(say(200, { code: 'x', message: 'task layer' }));
  expect(await other.run()).toMatchObject({
    kind: 'cut',
    why: expect.stringContaining('task layer') as string,
  });
});

test('reads a stream by its content type, whatever was asked for', async () => {
  const streamed = await call(say(200, done, 'text/event-stream'));
  expect(await streamed.run()).toMatchObject({ kind: 'completed', text: 'Hello' });
  const plain = await call(say(200, whole));
  expect(await plain.run({ streamed: true })).toMatchObject({ kind: 'completed', text: 'Hello' });
  const error = await call(say(200, { error: { message: 'Insufficient balance' } }));
  expect(await error.run({ streamed: true })).toMatchObject({ kind: 'failed', failure: { code: 'balance' } });
});

test('a last event is enough, though the connection breaks behind it', async () => {
  const { run } = await call((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(done, () => response.destroy());
  });
  expect(await run()).toMatchObject({ kind: 'completed' });
});

describe('what proves no answer', () => {
  test.each([
    ['a page', say(200, '<html>', 'text/html'), /no response/],
    ['an empty body', say(200, ''), /no response/],
    [
      'a stream without its end',
      say(200, 'data: {"type":"response.created"}\n\n', 'text/event-stream'),
      /last event/,
    ],
    [
      'a reset',
      (response) =>
        void response
          .writeHead(200, { 'content-type': 'text/event-stream' })
          .write('data: ', () => response.destroy()),
      /broke|cut/,
    ],
    [
      'a body that is cut',
      (response) =>
        void response
          .writeHead(200, { 'content-type': 'application/json', 'content-length': '100' })
          .write('{"status":', () => response.destroy()),
      /cut/,
    ],
    [
      'a stall',
      (response) =>
        void response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': hello\n\n'),
      /^nothing came for 0.2 s$/,
    ],
  ] as [string, Say, RegExp][])('%s', async (_, answer, why) => {
    const { run, server } = await call(answer);
    expect(await run()).toMatchObject({ kind: 'cut', why: expect.stringMatching(why) as string });
    expect(server.requests).toHaveLength(1);
  });
});

describe('what is tried again', () => {
  test('429 and 503, and nothing else', async () => {
    const { run, server } = await call(
      say(429, ''),
      say(503, { error: { message: 'overloaded' } }),
      say(200, whole),
    );
    expect(await run()).toMatchObject({ kind: 'completed' });
    expect(server.requests).toHaveLength(3);
  });

  test('429 for ever is exit 6, and safe to run again', async () => {
    const { run, server } = await call(say(429, { error: { message: 'slow down' } }));
    await expect(run()).rejects.toMatchObject({
      code: 'rate_limited',
      exitCode: 6,
      charged: 'no',
      retry: 'safe',
    });
    expect(server.requests).toHaveLength(4);
  });

  test('a Retry-After beyond the deadline is not waited for', async () => {
    const { run, server } = await call(
      (response) => void response.writeHead(429, { 'retry-after': '86400' }).end(),
    );
    await expect(run()).rejects.toMatchObject({ exitCode: 6 });
    expect(server.requests).toHaveLength(1);
  });

  test('a gateway that is not there is exit 6', async () => {
    const { client, clock, note } = await depsFor('http://127.0.0.1:9', freshFolder());
    const deps = { client, clock, note, retries: 1, signal: new AbortController().signal };
    await expect(respond(body, deps, () => undefined, deadlineIn(60_000, clock))).rejects.toMatchObject({
      code: 'unreachable',
      exitCode: 6,
      retry: 'safe',
    });
  });

  test.each([
    ['500', say(500, { error: { message: 'oops' } })],
    ['a redirect', say(302, '')],
    ['a reset', (response: ServerResponse) => void response.destroy()],
    ['silence', () => undefined],
  ])('%s is exit 7: it may have been charged', async (_, answer) => {
    const { run, server } = await call(answer);
    await expect(run()).rejects.toMatchObject({
      code: 'submit_unknown',
      exitCode: 7,
      charged: 'maybe',
      retry: 'never',
    });
    expect(server.requests).toHaveLength(1);
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
  ])('%i is a refusal', async (status, text, expected) => {
    const { run, server } = await call(say(status, text));
    await expect(run()).rejects.toMatchObject({ ...expected, charged: 'no', requestId: 'r1' });
    expect(server.requests).toHaveLength(1);
  });

  test('a wrong base path says so', async () => {
    const { run } = await call(say(404, { error: { message: 'Invalid URL (POST /v1/v1/responses)' } }));
    await expect(run()).rejects.toThrow(/root of the gateway, without \/v1/);
  });
});

test('an answer that never begins ends with the time to wait', async () => {
  const server = await speechServer(() => undefined);
  const { client, clock, note } = await depsFor(server.url, freshFolder());
  const deps = { client, clock, note, retries: 0, signal: new AbortController().signal };
  await expect(respond(body, deps, () => undefined, deadlineIn(200, clock))).rejects.toMatchObject({
    exitCode: 7,
  });
});

test('an interruption ends it at once: exit 130, and it was charged', async () => {
  const delta = { type: 'response.output_text.delta', delta: 'stop' };
  const { run } = await call(
    (response) =>
      void response
        .writeHead(200, { 'content-type': 'text/event-stream' })
        .write(`data: ${JSON.stringify(delta)}\n\n`),
  );
  await expect(run()).rejects.toMatchObject({ exitCode: 130, charged: 'yes', retry: 'never' });
});
