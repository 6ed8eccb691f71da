import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { newUser } from '../support/cli.ts';
import { type Agent, type Answered, connect } from './client.ts';

const row = { protocol: 'c', model: 'vendor-h3-mini', duration: 5 };
const rows = ['one', 'two'].map((id) => JSON.stringify({ ...row, id, prompt: `a boat ${id}` })).join('\n');
const batch = { manifest: 'clips.jsonl', output: 'clips/{id}.{ext}' };

async function agentWith(args: string[], manifest = rows): Promise<{ agent: Agent; cwd: string }> {
  const user = newUser();
  writeFileSync(join(user.cwd, 'clips.jsonl'), manifest);
  const agent = await connect('v1', user, ['--sandbox', 'mcp', ...args]);
  return { agent, cwd: user.cwd };
}

async function ended(agent: Agent): Promise<Answered> {
  let status: Answered | undefined;
  await expect
    .poll(async () => (status = await agent.call('batch_status', batch)).pending, { timeout: 30_000 })
    .toBe(undefined);
  return status as Answered;
}

test('an agent plans a batch, starts it, repeats the call, and pays once for each row', async () => {
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

test('a batch is held to the authority of the server, and to what fits', async () => {
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

test('a batch above the amount of --confirm-over is refused without a person', async () => {
  const { agent } = await agentWith(['--budget', '1000', '--confirm-over', '0.01']);
  expect(await agent.call('batch_run', batch)).toMatchObject({
    ok: false,
    charged: 'no',
    command: ['mgw', 'batch', 'run', '--output=clips/{id}.{ext}', '--', 'clips.jsonl'],
  });
  expect((await agent.call('jobs')).jobs).toEqual([]);
});

test.each([
  ['a manifest outside of the root', { manifest: '../clips.jsonl' }, rows],
  ['an output outside of the root', { ...batch, output: '../{id}.{ext}' }, rows],
  ['an output in object storage', { ...batch, output: 's3://bucket/{id}.{ext}' }, rows],
  [
    'a row that names a file outside of the root',
    batch,
    JSON.stringify({ id: 'x', protocol: 'c', body: '@/etc/hostname' }),
  ],
])('a batch may not have %s', async (_, asked, manifest) => {
  const { agent } = await agentWith(['--budget', '1000'], manifest);
  for (const tool of ['batch_plan', 'batch_run'])
    expect(await agent.call(tool, asked)).toMatchObject({
      ok: false,
      charged: 'no',
      error: { code: 'usage' },
    });
  expect((await agent.call('jobs')).jobs).toEqual([]);
});
