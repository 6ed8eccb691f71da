import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { main } from '../../src/cli/main.ts';
import { systemClock } from '../../src/clock.ts';
import { end, speechBody } from '../speech/frames.ts';
import { type Answered, clients, connect, connectProcess } from './client.ts';
import { gateway, slowGateway, userOf, video } from './gateway.ts';

const args = ['mcp', '--budget', '100'];
const one = { key: 'one', ...video };
const two = { key: 'two', ...video };
const jobsOf = ({ jobs }: Answered): { state: string }[] => jobs as { state: string }[];
const useOne = {
  ok: false,
  charged: 'no',
  retry: 'never',
  error: { code: 'conflict' },
  next: { tool: 'submit_video', arguments: one },
};

describe.each(clients)('an agent with the client %s', (kind) => {
  test('pays once, and receives the first key, if it stops waiting and chooses a different key', async () => {
    const { server, next } = await slowGateway();
    const agent = await connect(kind, await userOf(server.url), args);
    const patience = new AbortController();
    const lost = agent.call('submit_video', one, { signal: patience.signal }).catch(() => 'lost');
    const accept = await next();
    patience.abort();
    expect(await lost).toBe('lost');
    const again = agent.call('submit_video', two);
    accept();
    const refused = await again;
    expect(refused).toMatchObject(useOne);
    expect(server.posts()).toBe(1);
    // The call suggested by the refusal works. After that, a second video is deliberate and is paid for.
    expect(await agent.call('submit_video', refused.next?.arguments)).toMatchObject({ resumed: true });
    const second = agent.call('submit_video', two);
    (await next())();
    expect(await second).toMatchObject({ ok: true, charged: 'yes' });
    expect(server.posts()).toBe(2);
  });
});

test('a job whose response arrived too late for its client is not paid for again under a different key', async () => {
  const server = await gateway();
  const { cwd, env } = await userOf(server.url);
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const ended = main([...args, '--root', cwd], { stdin, stdout, stderr, env, clock: systemClock });
  const lines = createInterface({ input: stdout });
  const send = (...messages: object[]): boolean =>
    stdin.write(messages.map((each) => `${JSON.stringify({ jsonrpc: '2.0', ...each })}\n`).join(''));
  const call = (id: number, given: object): object => ({
    id,
    method: 'tools/call',
    params: { name: 'submit_video', arguments: given },
  });
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
  send({ id: 1, method: 'initialize', params });
  await once(lines, 'line');
  send(call(2, one));
  await once(lines, 'line');
  // Until then, the call would still be running, and the server would abort it.
  await setImmediate();
  send({ method: 'notifications/cancelled', params: { requestId: 2 } }, call(3, two));
  const [line] = (await once(lines, 'line')) as [string];
  expect((JSON.parse(line) as { result: object }).result).toMatchObject({ structuredContent: useOne });
  stdin.end();
  await ended;
  expect(server.posts()).toBe(1);
});

test('a job accepted while the client ended is not paid for again by the next server under a different key', async () => {
  const { server, next } = await slowGateway();
  const user = await userOf(server.url);
  const agent = await connectProcess('v1', user, args);
  const lost = agent.call('submit_video', one).catch(() => 'lost');
  const accept = await next();
  // `close` would also end the server, after a few seconds.
  agent.die();
  const other = await connect('v1', user, args);
  accept();
  expect(await lost).toBe('lost');
  expect(await other.call('submit_video', two)).toMatchObject(useOne);
  expect(server.posts()).toBe(1);
});

test('a job whose outcome was delivered to the user does not prevent an agent from paying under a different key', async () => {
  const server = await gateway();
  const user = await userOf(server.url);
  const { model, prompt, duration } = video;
  const flags = ['--model', model, '--duration', String(duration), '--key', 'mine'];
  expect((await user.run(['video', 'c', 'submit', prompt, ...flags])).code).toBe(0);
  const agent = await connect('v1', user, args);
  expect(await agent.call('submit_video', two)).toMatchObject({ ok: true, charged: 'yes' });
  expect(server.posts()).toBe(2);
});

test.each(['the client gives up', 'the server is killed'])(
  'speech that is cut off after %s is paid for again under a different key only after an agent received the failure',
  async (which) => {
    const cuts: (() => void)[] = [];
    const server = await gateway((_, response) => {
      response.writeHead(200, { 'X-Tt-Logid': 'log1' });
      response.write(speechBody([Buffer.from('some audio'), ...(server.posts() > 1 ? [end] : [])]));
      if (server.posts() > 1) response.end();
      else cuts.push(() => response.destroy());
    });
    const user = await userOf(server.url);
    await user.run(['config', 'set', 'prices.tts', '10k_characters=1']);
    const speech = (key: string): Record<string, unknown> => ({
      key,
      text: 'hi',
      speaker: 'x',
      output: `${key}.mp3`,
    });
    const separate = which === 'the server is killed' ? await connectProcess('v1', user, args) : undefined;
    const agent = separate ?? (await connect('v1', user, args));
    const patience = new AbortController();
    const lost = agent.call('speak', speech('one'), { signal: patience.signal }).catch(() => 'lost');
    await expect.poll(async () => jobsOf(await agent.call('jobs'))[0]?.state).toBe('queued');
    if (which === 'the client gives up') patience.abort();
    else await separate?.kill();
    expect(await lost).toBe('lost');
    for (const cut of cuts) cut();
    const other = which === 'the client gives up' ? agent : await connect('v1', user, args);
    const refused = await other.call('speak', speech('two'));
    expect(refused).toMatchObject({ ...useOne, next: { tool: 'speak', arguments: { key: 'one' } } });
    expect(await other.call('speak', speech('one'))).toMatchObject({
      charged: 'no',
      error: { exit_code: 9 },
    });
    expect(server.posts()).toBe(1);
    expect(await other.call('speak', speech('two'))).toMatchObject({ ok: true, charged: 'yes' });
    expect(server.posts()).toBe(2);
  },
);
