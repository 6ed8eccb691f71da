import { symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { userHere } from '../support/one-process.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder, sendJson } from '../support/servers.ts';
import { type Agent, type Answered, clients, connect, connectProcess } from './client.ts';
import { gateway, userOf, video, withoutPrefix } from './gateway.ts';

describe.each(clients)('an agent with the client %s', (kind) => {
  test('prompts its user only before a payment above the --confirm-over amount, and pays once for each key', async () => {
    const server = await gateway();
    const args = ['mcp', '--budget', '100', '--confirm-over', '3'];
    const messages: string[] = [];
    let action: 'accept' | 'decline' = 'decline';
    const agent = await connect(kind, await userOf(server.url), args, (message) => {
      messages.push(message);
      return action === 'accept' ? { action, content: { pay: true } } : { action };
    });
    const order = { key: 'one', ...video };
    const declined = await agent.call('submit_video', order);
    expect(declined).toMatchObject({ ok: false, charged: 'no', error: { code: 'budget' } });
    expect(server.posts()).toBe(0);
    action = 'accept';
    const first = await agent.call('submit_video', order);
    expect(first).toMatchObject({ ok: true, charged: 'yes', next: { tool: 'wait' } });
    expect(messages).toHaveLength(2);
    const again = { ok: true, charged: 'no', resumed: true, job: { id: first.job?.id } };
    expect(await agent.call('submit_video', order)).toMatchObject(again);
    const conflict = { ok: false, charged: 'no', error: { code: 'conflict' } };
    expect(await agent.call('submit_video', { ...order, prompt: 'a ship' })).toMatchObject(conflict);
    expect(messages).toHaveLength(2);
    expect(messages[0]).toContain('may cost 5 credits, more than 3 credits');
    expect(server.posts()).toBe(1);
  });

  test.each([
    [{ url: {} }, false],
    [{ form: {} }, true],
    [{ form: {}, url: {} }, true],
  ])('prompts its user in a form only if its client has that mode: %j', async (modes, isAsked) => {
    const server = await gateway();
    const args = ['mcp', '--budget', '100', '--confirm-over', '3'];
    let questionCount = 0;
    const person = () => {
      questionCount += 1;
      return { action: 'decline' as const };
    };
    const agent = await connect(kind, await userOf(server.url), args, person, modes);
    const answer = await agent.call('submit_video', { key: 'one', ...video });
    expect(answer).toMatchObject({ ok: false, charged: 'no', error: { code: 'budget' } });
    const text = isAsked ? 'The user declined.' : 'This client cannot ask the user to confirm.';
    expect(answer.error?.message).toContain(text);
    expect([questionCount, server.posts()]).toEqual([isAsked ? 1 : 0, 0]);
  });
});

describe('an agent', () => {
  test('pays once, and receives one job, if it makes a call eight times at once', async () => {
    const server = await gateway();
    const agent = await connect('v1', await userOf(server.url), ['mcp', '--budget', '100']);
    const calls = Array.from({ length: 8 }, () => agent.call('submit_video', { key: 'one', ...video }));
    const answers = await Promise.all(calls);
    expect(new Set(answers.map(({ job }) => job?.id)).size).toBe(1);
    expect(answers.map(({ ok }) => ok)).toEqual(calls.map(() => true));
    expect(answers.filter(({ charged }) => charged === 'yes')).toHaveLength(1);
    expect(server.posts()).toBe(1);
  });

  test('is told that the suggested command takes effect after a restart of the server', async () => {
    const server = await gateway();
    const user = userHere(server.url);
    const args = ['mcp', '--budget', '100'];
    const agent = await connect('v1', user, args);
    const answer = await agent.call('submit_video', { key: 'one', ...video });
    expect(answer).toMatchObject({ ok: false, charged: 'no', error: { code: 'budget' } });
    expect(answer.error?.message).toMatch(/ This server uses changed settings only after a restart\.$/);
    const [mgw, ...words] = withoutPrefix(user, answer.command);
    expect(mgw).toBe('mgw');
    expect((await user.run(words.map((word) => word.replace('AMOUNT', '1')))).code).toBe(0);
    expect(await agent.call('submit_video', { key: 'one', ...video })).toEqual(answer);
    const restarted = await connect('v1', user, args);
    expect(await restarted.call('submit_video', { key: 'one', ...video })).toMatchObject({ charged: 'yes' });
    expect(server.posts()).toBe(1);
  });

  test('is refused a payment above the --confirm-over amount if its client cannot ask the user', async () => {
    const server = await gateway();
    const user = await userOf(server.url);
    const agent = await connect('v1', user, ['mcp', '--budget', '100', '--confirm-over', '3']);
    const answer = await agent.call('submit_video', { key: 'one', ...video });
    expect(answer).toMatchObject({ ok: false, charged: 'no', error: { code: 'budget' } });
    expect(answer.error?.message).toContain('This client cannot ask the user to confirm.');
    expect(server.posts()).toBe(0);
    const [mgw, ...words] = withoutPrefix(user, answer.command);
    expect(mgw).toBe('mgw');
    expect((await user.run(words)).code).toBe(0);
    expect(await agent.call('submit_video', { key: 'one', ...video })).toMatchObject({ resumed: true });
    expect(server.posts()).toBe(1);
  });

  test('is refused a payment over the budget without a prompt to its user', async () => {
    const server = await gateway();
    let questionCount = 0;
    const agent = await connect(
      'v1',
      await userOf(server.url),
      ['mcp', '--budget', '4', '--confirm-over', '3'],
      () => {
        questionCount += 1;
        return { action: 'accept', content: { pay: true } };
      },
    );
    const answer = await agent.call('submit_video', { key: 'one', ...video });
    expect(answer).toMatchObject({ ok: false, charged: 'no', error: { code: 'budget' } });
    expect(answer.error?.message).toContain('too low');
    expect([questionCount, server.posts()]).toEqual([0, 0]);
  });

  test('prompts its user again before it repeats a payment that was approved and then rejected', async () => {
    const server = await gateway((_, response) => sendJson(response, { error: { message: 'no' } }, 400));
    const args = ['mcp', '--budget', '100', '--confirm-over', '3'];
    let questionCount = 0;
    const agent = await connect('v1', await userOf(server.url), args, () => {
      questionCount += 1;
      return { action: 'accept', content: { pay: true } };
    });
    for (const count of [1, 2]) {
      const answer = await agent.call('submit_video', { key: 'one', ...video });
      expect(answer).toMatchObject({ ok: false, charged: 'no', error: { exit_code: 4 } });
      expect(questionCount).toBe(count);
    }
  });

  test("needs its own budget, and is also limited by the profile's budget", async () => {
    const server = await gateway();
    const user = await userOf(server.url);
    const refusal = { ok: false, charged: 'no', error: { code: 'budget', exit_code: 12 } };
    const unbudgeted = await connect('v1', user, ['mcp']);
    expect(await unbudgeted.call('submit_video', { key: 'one', ...video })).toMatchObject(refusal);
    await user.run(['budget', 'set', 'cap', '4']);
    await user.run(['config', 'set', 'budget', 'cap']);
    for (const args of [['mcp'], ['mcp', '--budget', '100']]) {
      const agent = await connect('v1', user, args);
      const answer = await agent.call('submit_video', { key: args.join('-'), ...video });
      expect(answer).toMatchObject(refusal);
    }
    expect(server.posts()).toBe(0);
  });

  test('does not pay again under any key if its server was killed before the response arrived', async () => {
    const { promise: asked, resolve: isAsked } = deferred<string>();
    const server = await gateway(() => isAsked('asked'));
    const user = await userOf(server.url);
    const agent = await connectProcess('v1', user, ['mcp', '--budget', '100']);
    const lost = agent.call('submit_video', { key: 'one', ...video }).catch(() => 'lost');
    await asked;
    await agent.kill();
    expect(await lost).toBe('lost');
    const next = await connect('v1', user, ['mcp', '--budget', '100']);
    const same = await next.call('submit_video', { key: 'one', ...video });
    expect(same).toMatchObject({
      ok: false,
      charged: 'no',
      retry: 'never',
      error: { code: 'submit_unknown' },
    });
    const other = await next.call('submit_video', { key: 'two', ...video });
    expect(other).toMatchObject({ ok: false, charged: 'no', error: { code: 'submit_unknown' } });
    expect(server.posts()).toBe(1);
  });

  test('shares one budget with the other servers of its root, and gets a new one only with --new-budget', async () => {
    const server = await gateway();
    const user = await userOf(server.url);
    const agents = await Promise.all([1, 2].map(() => connect('v1', user, ['mcp', '--budget', '12'])));
    const calls = agents.flatMap((agent, one) =>
      [1, 2].map((two) =>
        agent.call('submit_video', { key: `k${one}${two}`, ...video, prompt: `boat ${one}${two}` }),
      ),
    );
    const answers = await Promise.all(calls);
    expect(answers.filter(({ charged }) => charged === 'yes')).toHaveLength(2);
    expect(answers.filter(({ error }) => error?.code === 'budget')).toHaveLength(2);
    const spent = await spentBy(agents[0]);
    expect(spent).toMatchObject([{ limit: '12', spent: '10', left: '2' }]);
    await Promise.all(agents.map((agent) => agent.close()));
    const restarted = await connect('v1', user, ['mcp', '--budget', '12']);
    expect(await spentBy(restarted)).toMatchObject([{ left: '2' }]);
    await restarted.close();
    const renewed = await connect('v1', user, ['mcp', '--budget', '12', '--new-budget']);
    expect(await spentBy(renewed)).toMatchObject([{ spent: '0', left: '12' }]);
    await renewed.close();
    const after = await connect('v1', user, ['mcp', '--budget', '12']);
    expect(await spentBy(after)).toMatchObject([{ spent: '0', left: '12' }]);
    expect(server.posts()).toBe(2);
  });

  test('spends exactly the standing budget, together with the command line', async () => {
    const server = await gateway();
    const user = await userOf(server.url);
    await user.run(['budget', 'set', 'shared', '18']);
    const agent = await connect('v2', user, ['mcp', '--budget-name', 'shared']);
    const calls = [1, 2, 3].map(async (each) => {
      const order = { key: `k${each}`, ...video, prompt: `boat ${each}` };
      return (await agent.call('submit_video', order)).error?.exit_code ?? 0;
    });
    const commands = [1, 2].map(async (each) => {
      const words = ['video', 'submit', `ship ${each}`, '-m', video.model, '--duration', '5'];
      return (await user.run([...words, '--key', `c${each}`, '--budget-name', 'shared'])).code;
    });
    const codes = await Promise.all([...calls, ...commands]);
    expect(codes.sort((one, other) => one - other)).toEqual([0, 0, 0, 12, 12]);
    expect(await spentBy(agent)).toMatchObject([{ limit: '18', spent: '15', left: '3' }]);
    expect(server.posts()).toBe(3);
  });

  test('can submit, await and fetch a video and speech on the sandbox', async () => {
    const sandbox = await startSandbox({ stateDir: freshFolder(), paceMs: 5 });
    onEnd(() => sandbox.close());
    const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
    const agent = await connect('v1', user, ['mcp', '--budget', '100']);
    const submitted = await agent.call('submit_video', { key: 'one', ...video });
    const ref = submitted.job?.id ?? '';
    const waited = await agent.call('wait', { ref });
    expect(waited).toMatchObject({ ok: true, charged: 'no', next: { tool: 'fetch' } });
    const uploaded = await agent.call('fetch', { ref, output: 's3://bucket/boat.mp4' });
    expect(uploaded).toMatchObject({ ok: false, charged: 'no', error: { code: 'usage' } });
    const fetched = await agent.call('fetch', { ref, output: 'boat.mp4' });
    expect(fetched.files).toMatchObject([{ path: join(user.cwd, 'boat.mp4') }]);
    symlinkSync('/tmp', join(user.cwd, 'link1'));
    for (const output of ['link{n}/boat.mp4', '../boat.mp4'])
      expect(await agent.call('fetch', { ref, output })).toMatchObject({
        ok: false,
        error: { code: 'usage' },
      });
    const linked = { key: 'linked', text: 'hello', speaker: 'x', output: 'link{n}/out.mp3' };
    expect(await agent.call('speak', linked)).toMatchObject({ charged: 'no', error: { code: 'usage' } });
    const inFolder = await agent.call('fetch', { ref, output: 'clips/' });
    expect(dirname(inFolder.files?.[0]?.path ?? '')).toBe(join(user.cwd, 'clips'));
    const speech = { key: 'two', text: 'hello', speaker: 'en_female_1', output: 'out.mp3' };
    expect(await agent.call('speak', speech)).toMatchObject({ ok: true, charged: 'yes' });
    expect(await agent.call('speak', speech)).toMatchObject({ ok: true, charged: 'no', resumed: true });
  });
});

function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((done) => (resolve = done));
  return { promise, resolve };
}

async function spentBy(agent: Agent | undefined): Promise<Answered['budgets']> {
  return (await agent?.call('budget'))?.['budgets'];
}
