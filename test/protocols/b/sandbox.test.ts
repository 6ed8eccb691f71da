import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Exchange, Reply } from '../../../src/exchange.ts';
import { compose } from '../../../src/protocols/compose.ts';
import { check } from '../../../src/protocols/b/checks.ts';
import { b } from '../../../src/protocols/b/protocol.ts';
import { listModels, readModels, type Model } from '../../../src/protocols/models.ts';
import { startSandbox, type Sandbox } from '../../../src/sandbox/server.ts';

let stateDir: string;
let sandbox: Sandbox;
let now = 1_795_000_000_000;

beforeEach(async () => {
  stateDir = mkdtempSync(join(tmpdir(), 'mgw-b-'));
  sandbox = await start([]);
});

function start(faults: string[]): Promise<Sandbox> {
  return startSandbox({ stateDir, now: () => now, paceMs: 3000, faults });
}

afterEach(async () => {
  await sandbox.close();
  rmSync(stateDir, { recursive: true, force: true });
});

async function send(exchange: Exchange, key = sandbox.key): Promise<Reply> {
  const { method, path, headers, body } = exchange;
  const authorization = { [b.auth.header]: `${b.auth.scheme} ${key}` };
  const response = await fetch(sandbox.url + path, {
    method,
    headers: { ...headers, ...authorization },
    body,
  });
  const text = await response.text();
  return { status: response.status, headers: Object.fromEntries(response.headers), text, complete: true };
}

async function withFaults(...faults: string[]): Promise<void> {
  await sandbox.close();
  sandbox = await start(faults);
}

async function listing(): Promise<Model[]> {
  const read = readModels(await send(listModels()));
  if ('failure' in read) throw new Error(read.failure.message);
  return read.models;
}

async function submitted(flags: Record<string, string | boolean>) {
  const composed = b.normalise(compose(b, { flags: { prompt: 'a cat', duration: '2', ...flags } }));
  const body = b.complete?.(composed, await listing()) ?? composed;
  expect(check(body)).toEqual([]);
  return b.readSubmission(await send(b.submission(body)), body);
}

test('a task from the listing to its file', async () => {
  const verdict = await submitted({ model: 'Video-B-Lite', resolution: '720P', audio: true });
  if (verdict.kind !== 'accepted') throw new Error(verdict.failure.message);
  const early = b.readQuery(await send(b.query(verdict.handle)), verdict.handle);
  expect(early).toMatchObject({ kind: 'observation', results: [] });
  now += 60_000;
  const late = b.readQuery(await send(b.query(verdict.handle)), verdict.handle);
  expect(late).toMatchObject({ kind: 'observation', state: 'succeeded', nativeStatus: 'FINISH' });
  expect(late).toHaveProperty('results.0.sources.0.url', expect.stringContaining(sandbox.fileUrl));
});

test('a model with an extension takes ExtInfo as --return-usage writes it', async () => {
  const verdict = await submitted({ model: 'Video-B-Ext', 'return-usage': true });
  expect(verdict).toMatchObject({ kind: 'accepted' });
});

test('the listing marks the models of B and gives their versions', async () => {
  const models = (await listing()).filter(({ protocols }) => protocols.includes('b'));
  expect(models.map(({ id, model_versions }) => [id, model_versions])).toContainEqual([
    'Video-B',
    ['1.0', '2.0'],
  ]);
});

test('a body that the local checks refuse is refused there too', async () => {
  const body = { ModelName: 'Video-B', ModelVersion: '9', Prompt: 'x', SubAppId: 1 };
  expect(check(body)).not.toEqual([]);
  expect(b.readSubmission(await send(b.submission(body)), body)).toMatchObject({ kind: 'rejected' });
});

test('a task that is not there is missing, a wrong key is refused', async () => {
  expect(b.readQuery(await send(b.query('none')), 'none')).toMatchObject({ kind: 'missing' });
  expect(b.readQuery(await send(b.query('none'), 'sk-wrong'), 'none')).toMatchObject({
    kind: 'unauthorized',
  });
});

test.each([
  ['b-submit-limited', 'unavailable'],
  ['b-submit-internal-error', 'unknown'],
  ['submit-500-after-accept', 'unknown'],
  ['submit-502-after-accept', 'unknown'],
  ['submit-garbled', 'unknown'],
  ['submit-empty', 'unknown'],
  ['submit-503', 'unavailable'],
  ['balance-403', 'rejected'],
])('with the fault %s a submission is %s', async (fault, kind) => {
  const models = await listing();
  await withFaults(fault);
  const body = b.complete?.({ ModelName: 'Video-B-Lite', Prompt: 'x' }, models) ?? {};
  expect(b.readSubmission(await send(b.submission(body)), body)).toMatchObject({ kind });
});

test.each(['b-finish-errcode', 'b-finish-errcodeext'])(
  'with the fault %s FINISH is failure',
  async (fault) => {
    await withFaults(fault);
    const verdict = await submitted({ model: 'Video-B-Lite' });
    if (verdict.kind !== 'accepted') throw new Error(verdict.failure.message);
    now += 60_000;
    const ended = b.readQuery(await send(b.query(verdict.handle)), verdict.handle);
    expect(ended).toMatchObject({ state: 'failed', nativeStatus: 'FINISH', results: [] });
  },
);

test('a listing that fails is a failure', async () => {
  await withFaults('models-502');
  expect(readModels(await send(listModels()))).toMatchObject({ failure: { code: 'server_error' } });
});
