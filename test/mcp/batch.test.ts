import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { batchTools } from '../../src/mcp/batch-tools.ts';
import type { Call } from '../../src/mcp/calls.ts';
import type { CheckedBatch, StartedRun, Tools } from '../../src/mcp/tool.ts';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { freshFolder, sendJson } from '../support/servers.ts';
import { type Agent, type Answered, connect, connectProcess } from './client.ts';
import { gateway, slowGateway, userOf, video } from './gateway.ts';

const row = { protocol: 'c', model: 'vendor-h3-mini', duration: 5 };
const rows = ['one', 'two'].map((id) => JSON.stringify({ ...row, id, prompt: `a boat ${id}` })).join('\n');
const batch: { manifest: string; output: string; name?: string } = {
  manifest: 'clips.jsonl',
  output: 'clips/{id}.{ext}',
};

async function agentWith(
  args: string[],
  manifest = rows,
  faults: string[] = [],
): Promise<{ agent: Agent; cwd: string; stateDir: string; user: User }> {
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir, paceMs: 5, faults });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  writeFileSync(join(user.cwd, 'clips.jsonl'), manifest);
  const agent = await connect('v1', user, ['mcp', ...args]);
  return { agent, cwd: user.cwd, stateDir, user };
}

async function ended(agent: Agent, asked = batch): Promise<Answered> {
  let status: Answered | undefined;
  await expect.poll(async () => (status = await agent.call('batch_status', asked)).pending).toBe(undefined);
  return status as Answered;
}

test('an agent that plans a batch, starts it, and repeats the call pays once for each row', async () => {
  const { agent, cwd } = await agentWith(['--budget', '1000']);
  expect(await agent.call('batch_plan', batch)).toMatchObject({
    ok: true,
    charged: 'no',
    next: { tool: 'batch_run', arguments: batch },
    batch: { states: { new: 2 } },
  });
  const runs = await Promise.all([agent.call('batch_run', batch), agent.call('batch_run', batch)]);
  expect(runs.map(({ charged }) => charged).sort()).toEqual(['maybe', 'no']);
  expect(runs[0]).toMatchObject({ ok: true, pending: true, next: { tool: 'batch_status' } });
  expect(await ended(agent)).toMatchObject({ ok: true, next: null, batch: { states: { done: 2 } } });
  expect(existsSync(join(cwd, 'clips', 'one.mp4'))).toBe(true);
  expect(await agent.call('batch_run', batch)).toMatchObject({ ok: true, charged: 'no', next: null });
  expect((await agent.call('jobs')).jobs).toHaveLength(2);
});

test('rows paid for under a different batch name are paid for again only if the agent sets `repeat`', async () => {
  const { agent } = await agentWith(['--budget', '1000']);
  // The agent starts both batches at the same time. One batch is refused, even if the other batch has no jobs yet.
  const [first, second] = await Promise.all(
    ['a', 'b'].map((name) => agent.call('batch_run', { ...batch, name, output: `${name}/{id}.{ext}` })),
  );
  const [paid, refused] = first?.ok === true ? ['a', second] : ['b', first];
  const other = paid === 'a' ? 'b' : 'a';
  const conflict = {
    ok: false,
    charged: 'no',
    error: { code: 'conflict' },
    paid_by: [paid],
    next: { tool: 'batch_status', arguments: { name: paid } },
  };
  expect(refused).toMatchObject(conflict);
  await ended(agent, { ...batch, name: paid });
  const again = { ...batch, name: other, output: `${other}/{id}.{ext}` };
  expect(await agent.call('batch_plan', again)).toMatchObject({
    ok: true,
    paid_by: [paid],
    next: conflict.next,
  });
  expect(await agent.call('batch_run', again)).toMatchObject(conflict);
  expect((await agent.call('jobs')).jobs).toHaveLength(2);
  expect(await agent.call('batch_run', { ...again, repeat: true })).toMatchObject({
    ok: true,
    charged: 'maybe',
  });
  expect(await ended(agent, again)).toMatchObject({ ok: true, batch: { states: { done: 2 } } });
  expect((await agent.call('jobs')).jobs).toHaveLength(4);
});

test('a batch that an agent starts requests the model list only once, and returns the advice about its rows', async () => {
  const server = await gateway();
  const user = await userOf(server.url);
  const ofA = { protocol: 'a', model: 'video-a', duration: 8, prompt: 'a boat', id: 'one' };
  writeFileSync(join(user.cwd, 'clips.jsonl'), JSON.stringify(ofA));
  await user.run(['config', 'set', 'prices.a.video-a', 'second=1']);
  const agent = await connect('v1', user, ['mcp', '--budget', '1000']);
  const notes = ["model: video-a is not in the gateway's model list."];
  expect(await agent.call('batch_run', batch)).toMatchObject({ ok: true, charged: 'maybe', notes });
  await expect.poll(() => server.posts()).toBe(1);
  expect(server.requests.filter(({ path }) => path === '/v1/models')).toHaveLength(1);
  expect(await agent.call('batch_plan', { ...batch, name: 'again' })).toMatchObject({ notes });
});

test('a batch whose MCP server was killed is not paid for again under a different name', async () => {
  const { server, next } = await slowGateway();
  const user = await userOf(server.url);
  writeFileSync(join(user.cwd, 'clips.jsonl'), rows);
  const args = ['mcp', '--budget', '1000'];
  const agent = await connectProcess('v2', user, args);
  expect(await agent.call('batch_run', batch)).toMatchObject({ ok: true, charged: 'maybe' });
  await Promise.all([next(), next()]);
  await agent.kill();
  const after = await connect('v2', user, args);
  for (const repeat of [false, true]) {
    const refused = await after.call('batch_run', { ...batch, name: 'other', repeat });
    expect(refused).toMatchObject({ ok: false, charged: 'no', error: { code: 'submit_unknown' } });
    expect(refused['in_doubt']).toMatchObject([{ id: 'one' }, { id: 'two' }]);
  }
  await after.call('batch_run', batch);
  expect(await ended(after)).toMatchObject({ batch: { states: { unknown: 2 } } });
  expect(server.posts()).toBe(2);
});

test('a request in doubt is not paid for as a batch row until the user resolves its job', async () => {
  let isLost = true;
  const server = await gateway((_, response) => {
    if (isLost) response.destroy();
    else sendJson(response, { task_id: server.create(), status: 'queued' });
  });
  const user = await userOf(server.url);
  writeFileSync(join(user.cwd, 'clips.jsonl'), rows);
  const agent = await connect('v1', user, ['mcp', '--budget', '1000']);
  const { protocol, model, duration } = row;
  const request = { protocol, model, duration, prompt: 'a boat two' };
  const lost = await agent.call('submit_video', { key: 'k', ...request });
  const id = lost.job?.id ?? '';
  expect(lost).toMatchObject({ charged: 'maybe', error: { code: 'submit_unknown' } });
  isLost = false;
  const calls: [string, object][] = [
    ['batch_plan', {}],
    ['batch_run', {}],
    ['batch_run', { repeat: true }],
  ];
  for (const [tool, given] of calls) {
    const refused = await agent.call(tool, { ...batch, ...given });
    expect(refused).toMatchObject({ ok: false, charged: 'no', retry: 'never', next: null });
    expect(refused.error?.message).toContain(`two (${id})`);
    expect(refused.command?.join(' ')).toContain(`jobs resolve ${id}`);
  }
  expect(server.posts()).toBe(1);
  expect((await user.run(['jobs', 'resolve', id, '--not-created'])).code).toBe(0);
  expect(await agent.call('batch_run', batch)).toMatchObject({ ok: true, charged: 'maybe' });
  await expect.poll(() => server.posts()).toBe(3);
});

test('a row of a running batch is not sent if the outcome of its request has become unknown since the batch was checked', async () => {
  let reject = (): void => undefined;
  let isTaken = false;
  const server = await gateway((seen, response) => {
    if (seen.body.includes('another')) reject = () => sendJson(response, { error: { message: 'no' } }, 400);
    else if (isTaken) sendJson(response, { task_id: server.create(), status: 'queued' });
    else response.destroy();
    isTaken = !seen.body.includes('another');
  });
  const user = await userOf(server.url);
  const same = { ...row, prompt: 'a boat' };
  const all = [
    { id: 'one', ...same, prompt: 'another' },
    { id: 'two', ...same },
  ];
  writeFileSync(join(user.cwd, 'clips.yaml'), JSON.stringify({ concurrency: 1, rows: all }));
  const agent = await connect('v1', user, ['mcp', '--budget', '1000']);
  const input = { manifest: 'clips.yaml', output: 'clips/{id}.{ext}' };
  expect(await agent.call('batch_run', input)).toMatchObject({ ok: true, charged: 'maybe' });
  await expect.poll(() => server.posts()).toBe(1);
  const lost = await agent.call('submit_video', { key: 'k', ...same });
  expect(lost.error?.code).toBe('submit_unknown');
  reject();
  const status = await ended(agent, input);
  expect(status['rows']).toMatchObject([
    { id: 'one', state: 'rejected' },
    { id: 'two', state: 'new', error: { code: 'submit_unknown' } },
  ]);
  expect(server.posts()).toBe(2);
});

test("the state of an agent's batch contains each row's error, the cost so far, and the next call", async () => {
  const server = await gateway((seen, response) => {
    if (seen.body.includes('two')) sendJson(response, { error: { message: 'no boats' } }, 400);
    else sendJson(response, { task_id: server.create(), status: 'queued' });
  });
  const user = await userOf(server.url);
  writeFileSync(join(user.cwd, 'clips.jsonl'), rows);
  const agent = await connect('v1', user, ['mcp', '--budget', '1000']);
  await agent.call('batch_run', batch);
  let shown: Record<string, unknown>[] = [];
  await expect
    .poll(async () => {
      shown = (await agent.call('batch_status', batch))['rows'] as typeof shown;
      // A row is `running` even while its request is being sent.
      return shown.map(({ state, charged }) => [state, charged]);
    })
    .toEqual([
      ['running', 'yes'],
      ['rejected', 'no'],
    ]);
  const [first, second] = shown;
  expect(first).toMatchObject({ next: { tool: 'wait', arguments: { refs: [first?.['job']] } } });
  expect(second).toMatchObject({
    error: { message: expect.stringContaining('no boats') as string, exit_code: 4 },
    next: { tool: 'job', arguments: { ref: second?.['job'] } },
  });
  const failing = await agentWith(
    ['--budget', '1000'],
    JSON.stringify({ ...row, id: 'x', prompt: '[fail]' }),
  );
  await failing.agent.call('batch_run', batch);
  expect((await ended(failing.agent))['rows']).toMatchObject([
    { charged: 'maybe', error: { code: 'task_failed', exit_code: 5 }, next: { tool: 'job' } },
  ]);
});

test("an agent's batch is refused without a budget, and costs nothing if the server's budget is too low", async () => {
  const none = await agentWith([]);
  expect(await none.agent.call('batch_run', batch)).toMatchObject({
    ok: false,
    charged: 'no',
    error: { code: 'budget' },
  });
  const { agent } = await agentWith(['--budget', '0.01']);
  await agent.call('batch_run', batch);
  expect(await ended(agent)).toMatchObject({ ok: false, error: { code: 'budget' } });
  const states = ((await agent.call('jobs'))['jobs'] as { state: string }[]).map(({ state }) => state);
  expect(states.filter((state) => state !== 'prepared')).toEqual([]);
});

test("an agent receives the list of a batch's mismatching videos, as an error in strict mode, and pays for no video again", async () => {
  const { agent, cwd, stateDir } = await agentWith(['--budget', '1000'], rows, ['short-videox1']);
  await agent.call('batch_run', batch);
  const status = await ended(agent);
  expect(status).toMatchObject({ ok: true, batch: { states: { done: 2 } } });
  const [id] = status['mismatched'] as string[];
  expect(status['mismatched']).toEqual([expect.stringMatching(/^(one|two)$/)]);
  expect((await agent.call('jobs', { mismatched: true })).jobs).toMatchObject([
    { key: `clips/${id}`, files: [{ mismatches: [{ asked: 5, delivered: 2.5 }] }] },
  ]);
  expect(await agent.call('batch_status', { ...batch, strict: true })).toMatchObject({
    ok: false,
    charged: 'no',
    error: { code: 'result_corrupt', exit_code: 9 },
    next: { tool: 'job' },
    mismatched: [id],
  });
  const fetching = { ref: `@clips/${id}`, output: 'copy.mp4', strict: true, mark: true };
  expect(await agent.call('fetch', fetching)).toMatchObject({ ok: false, error: { code: 'result_corrupt' } });
  expect(readFileSync(join(cwd, 'copy.mp4')).toString('latin1')).toContain('trainedAlgorithmicMedia');
  expect(await agent.call('batch_run', batch)).toMatchObject({ charged: 'no', next: null });
  expect(readBill(stateDir)).toHaveLength(2);
});

test("the state of an agent's batch suggests batch_run only if a run would be accepted and send an untried row", async () => {
  const { agent, cwd } = await agentWith(
    ['--budget', '1000'],
    `${rows}\n${JSON.stringify({ ...row, id: 'three', duration: 4 })}`,
  );
  expect(await agent.call('batch_status', batch)).toMatchObject({ ok: true, next: null, batch: { bad: 1 } });
  writeFileSync(join(cwd, 'clips.jsonl'), rows);
  expect(await agent.call('batch_status', batch)).toMatchObject({
    next: { tool: 'batch_run', arguments: batch },
  });
  await agent.call('batch_run', batch);
  expect(await ended(agent)).toMatchObject({ next: null });
  writeFileSync(
    join(cwd, 'clips.jsonl'),
    `${rows}\n${JSON.stringify({ ...row, id: 'three', prompt: 'a boat three' })}`,
  );
  expect(await agent.call('batch_status', batch)).toMatchObject({
    next: { tool: 'batch_run', arguments: batch },
  });
});

test("an agent's batch above the --confirm-over amount is refused if the client cannot ask the user", async () => {
  const { agent, cwd } = await agentWith(['--budget', '1000', '--confirm-over', '0.01']);
  const output = join(cwd, 'clips/{id}.{ext}');
  expect(await agent.call('batch_run', batch)).toMatchObject({
    ok: false,
    charged: 'no',
    error: { message: expect.stringMatching(/may cost [\d.]+ credits, more than 0\.01 credits\./) as string },
    command: expect.arrayContaining([
      'env',
      'mgw',
      '--sandbox',
      'batch',
      'run',
      '-o',
      output,
      '--',
      join(cwd, 'clips.jsonl'),
    ]) as string[],
  });
  expect((await agent.call('jobs')).jobs).toEqual([]);
});

test("an agent's batch is refused if it reads or writes outside the root, or sets fields that no tool has", async () => {
  const { agent, cwd } = await agentWith(['--budget', '1000']);
  const outside = [
    { manifest: '../clips.jsonl' },
    ...['../', 's3://bucket/', '~/', 'gs://bucket/'].map((to) => ({ ...batch, output: `${to}{id}.{ext}` })),
  ];
  const invalid = [
    { id: 'x', protocol: 'tts', file: '/etc/hostname' },
    { protocol: 'c', body: { ...video, seed: 5 } },
    { ...row, prompt: 'a boat', 'set.seed': 5 },
    { protocol: 'tts', text: 'Hi.', 'set.user.uid': 'u' },
  ];
  const refusal = { ok: false, charged: 'no', error: { code: 'usage' } };
  const check = async (asked: object): Promise<void> => {
    for (const tool of ['batch_plan', 'batch_run'])
      expect(await agent.call(tool, { ...asked }), JSON.stringify(asked)).toMatchObject(refusal);
  };
  for (const input of outside) await check(input);
  for (const each of invalid) {
    writeFileSync(join(cwd, 'clips.jsonl'), JSON.stringify(each));
    await check(batch);
  }
  expect((await agent.call('jobs')).jobs).toEqual([]);
});

test("an agent's row neither reads nor saves again the video of a job outside the root", async () => {
  const chained = { protocol: 'a', model: 'video-a', duration: 4, prompt: 'a ship', image: '@mine:last' };
  const { agent, user, stateDir } = await agentWith(['--budget', '1000'], JSON.stringify(chained));
  const output = join(freshFolder(), 'mine.mp4');
  const flags = ['--model', 'vendor-h3-mini', '--duration', '5', '--key', 'mine', '-o', output];
  expect((await user.run(['video', 'c', 'submit', 'a boat', ...flags])).code).toBe(0);
  for (const isLost of [false, true]) {
    if (isLost) rmSync(output);
    for (const tool of ['batch_plan', 'batch_run'])
      expect(await agent.call(tool, batch)).toMatchObject({
        ok: false,
        charged: 'no',
        problems: [{ message: expect.stringContaining(`${output} is outside `) as string }],
      });
    expect(existsSync(output)).toBe(!isLost);
  }
  expect(readBill(stateDir)).toHaveLength(1);
});

test('a batch that ends while its state is being read is reported as pending, so that the reported end state is always current', async () => {
  const run: StartedRun = { isRunning: true, rows: new Set(), errors: new Map() };
  const checkBatch = (): Promise<Partial<CheckedBatch>> => {
    run.isRunning = false;
    return Promise.resolve({ name: 'clips', view: { states: { done: 1, running: 1 } } });
  };
  const tools = { runs: new Map([['clips', run]]), checkBatch } as unknown as Tools;
  const status = batchTools.find(({ name }) => name === 'batch_status');
  const call = {} as Call;
  expect(await status?.run(batch, call, tools)).toMatchObject({ pending: true });
  expect(await status?.run(batch, call, tools)).not.toHaveProperty('pending');
});
