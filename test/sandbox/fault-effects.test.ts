import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import type { Answer, TestSandbox } from './harness.ts';
import { sandbox } from './harness.ts';

const C = { model: 'vendor-h3', prompt: 'a red kite', duration: 4 };
const B = { ModelName: 'Video-B', ModelVersion: '2.0', Prompt: 'a red kite', OutputConfig: { Duration: 4 } };
const A = { instances: [{ prompt: 'a red kite' }], parameters: { durationSeconds: 4, sampleCount: 2 } };

function submitC(gateway: TestSandbox): Promise<Answer> {
  return gateway.call('POST', '/v1/videos', { body: C });
}

function act(gateway: TestSandbox, action: string, body: object): Promise<Answer> {
  return gateway.call('POST', '/', {
    body,
    headers: { 'X-TC-Action': action, 'X-TC-Version': '2018-07-17' },
  });
}

/** A task of Protocol C that has just finished: its address of the content. */
async function finishedC(gateway: TestSandbox): Promise<string> {
  const id = (await submitC(gateway)).at('task_id') as string;
  gateway.clock.now += 1000;
  return `/v1/videos/${id}/content`;
}

/** What arrives of an answer, and whether it arrived whole. */
function rawGet(
  gateway: TestSandbox,
  path: string,
  headers = {},
): Promise<{ status?: number; bytes: Buffer; whole: boolean }> {
  return new Promise((resolve) => {
    const options = { headers: { Authorization: `Bearer ${gateway.key}`, ...headers } };
    const call = request(gateway.url + path, options, (response) => {
      const pieces: Buffer[] = [];
      response.on('data', (piece: Buffer) => pieces.push(piece));
      const end = (): void =>
        resolve({ status: response.statusCode, bytes: Buffer.concat(pieces), whole: response.complete });
      response.on('end', end).on('error', end);
    });
    call.on('error', () => resolve({ bytes: Buffer.alloc(0), whole: false }));
    call.end();
  });
}

describe('a submission', () => {
  test.each<[string, number]>([
    ['submit-429', 429],
    ['submit-429-retry-after', 429],
    ['submit-503', 503],
    ['submit-500', 500],
    ['balance-403', 403],
    ['auth-401', 401],
  ])('under %s is refused twice, and then accepted', async (fault, status) => {
    const gateway = await sandbox({ faults: [`${fault}x2`] });
    const statuses = [await submitC(gateway), await submitC(gateway)].map((answer) => answer.status);
    expect(statuses).toEqual([status, status]);
    expect(readBill(gateway.stateDir)).toEqual([]);
    expect((await submitC(gateway)).status).toBe(200);
    expect(readBill(gateway.stateDir)).toHaveLength(1);
  });

  test('under submit-429-retry-after is told when to come back', async () => {
    const gateway = await sandbox({ faults: ['submit-429-retry-after'] });
    expect((await submitC(gateway)).headers.get('retry-after')).toBe('1');
  });

  test('under submit-reset creates nothing', async () => {
    const gateway = await sandbox({ faults: ['submit-reset'] });
    await expect(submitC(gateway)).rejects.toThrow();
    expect(readBill(gateway.stateDir)).toEqual([]);
  });

  test.each(['submit-reply-lost', 'submit-cut'])('under %s creates the task all the same', async (fault) => {
    const gateway = await sandbox({ faults: [fault] });
    await expect(submitC(gateway)).rejects.toThrow();
    expect(readBill(gateway.stateDir)).toHaveLength(1);
  });

  test.each<[string, number]>([
    ['submit-500-after-accept', 500],
    ['submit-502-after-accept', 502],
    ['submit-empty', 200],
    ['submit-slow', 200],
  ])('under %s creates the task, and answers HTTP %i', async (fault, status) => {
    const gateway = await sandbox({ faults: [fault], paceMs: 1 });
    expect((await submitC(gateway)).status).toBe(status);
    expect(readBill(gateway.stateDir)).toHaveLength(1);
  });

  test('under submit-garbled gets what is not JSON', async () => {
    const gateway = await sandbox({ faults: ['submit-garbled'] });
    await expect(submitC(gateway)).rejects.toThrow(SyntaxError);
    expect(readBill(gateway.stateDir)).toHaveLength(1);
  });

  test('that is refused for its own sake does not use up a fault of the answer', async () => {
    const gateway = await sandbox({ faults: ['submit-500-after-acceptx1'] });
    expect((await gateway.call('POST', '/v1/videos', { body: { ...C, duration: 3 } })).status).toBe(400);
    expect((await act(gateway, 'CreateAigcVideoTask', { ...B, SubAppId: 1 })).status).toBe(200);
    const headers = { 'X-TC-Action': 'CreateAigcVideoTask', 'X-TC-Version': '1' };
    expect((await gateway.call('POST', '/', { body: B, headers })).status).toBe(200);
    expect((await submitC(gateway)).status).toBe(500);
  });

  test('to Protocol B meets the faults of that protocol', async () => {
    const gateway = await sandbox({ faults: ['b-submit-limitedx1', 'b-submit-internal-errorx1'] });
    expect((await submitC(gateway)).status).toBe(200);
    const codes = [
      await act(gateway, 'CreateAigcVideoTask', B),
      await act(gateway, 'CreateAigcVideoTask', B),
    ];
    expect(codes.map((answer) => answer.at('Response.Error.Code'))).toEqual([
      'RequestLimitExceeded',
      'InternalError',
    ]);
    expect(readBill(gateway.stateDir).map(({ area }) => area)).toEqual(['c', 'b']);
  });
});

describe('a poll', () => {
  test.each<[string, number]>([
    ['poll-429', 429],
    ['poll-500', 500],
    ['poll-502', 502],
    ['poll-503', 503],
    ['poll-notfound', 400],
  ])('under %s fails once, and then answers', async (fault, status) => {
    const gateway = await sandbox({ faults: [`${fault}x1`] });
    const id = (await submitC(gateway)).at('task_id') as string;
    const path = `/v1/video/generations/${id}`;
    expect((await gateway.call('GET', path)).status).toBe(status);
    expect((await gateway.call('GET', path)).status).toBe(200);
  });

  test.each(['poll-reset', 'poll-garbled', 'poll-cut'])('under %s cannot be read', async (fault) => {
    const gateway = await sandbox({ faults: [`${fault}x1`] });
    const id = (await submitC(gateway)).at('task_id') as string;
    await expect(gateway.call('GET', `/v1/videos/${id}`)).rejects.toThrow();
    expect((await gateway.call('GET', `/v1/videos/${id}`)).status).toBe(200);
  });

  test('of Protocols A and B is not found in their own words', async () => {
    const gateway = await sandbox({ faults: ['poll-notfound'] });
    const operation = await gateway.call('GET', '/v1beta/models/video-a/operations/0');
    expect([operation.status, operation.at('error.status')]).toEqual([404, 'NOT_FOUND']);
    const task = await act(gateway, 'DescribeTaskDetail', { TaskId: 'x' });
    expect(task.at('Response.Error.Code')).toBe('ResourceNotFound');
  });

  test('holds under faults of a sandbox that came after', async () => {
    const first = await sandbox({ faults: ['poll-502x1'] });
    const id = (await submitC(first)).at('task_id') as string;
    expect((await first.call('GET', `/v1/videos/${id}`)).status).toBe(502);
    const second = await sandbox({ stateDir: first.stateDir, faults: ['poll-502x1'] });
    expect((await second.call('GET', `/v1/videos/${id}`)).status).toBe(200);
  });
});

describe('an outcome', () => {
  test.each<[string, string]>([
    ['task-fails', 'failed'],
    ['never-finishes', 'in_progress'],
  ])('%s of Protocol C', async (fault, status) => {
    const gateway = await sandbox({ faults: [fault] });
    const id = (await submitC(gateway)).at('task_id') as string;
    gateway.clock.now += 3_600_000;
    expect((await gateway.call('GET', `/v1/videos/${id}`)).at('status')).toBe(status);
  });

  test.each<[string, number | undefined, number]>([
    ['a-filtered', undefined, 2],
    ['a-partly-filtered', 1, 1],
  ])('%s of Protocol A', async (fault, delivered, filtered) => {
    const gateway = await sandbox({ faults: [fault] });
    const submitted = await gateway.call('POST', '/v1beta/models/video-a:predictLongRunning', { body: A });
    gateway.clock.now += 1000;
    const done = await gateway.call('GET', `/v1beta/${submitted.at('name') as string}`);
    const response = done.at('response.generateVideoResponse') as Record<string, unknown>;
    expect((response.generatedSamples as unknown[] | undefined)?.length).toBe(delivered);
    expect(response.raiMediaFilteredCount).toBe(filtered);
  });

  test.each<[string, object]>([
    ['b-finish-errcode', { ErrCode: 70000, ErrCodeExt: '' }],
    ['b-finish-errcodeext', { ErrCode: 0, ErrCodeExt: 'ModelGenerateFailed' }],
  ])('%s of Protocol B, and of no other', async (fault, error) => {
    const gateway = await sandbox({ faults: [`${fault}x1`] });
    await submitC(gateway);
    const id = (await act(gateway, 'CreateAigcVideoTask', B)).at('Response.TaskId');
    gateway.clock.now += 1000;
    const done = await act(gateway, 'DescribeTaskDetail', { TaskId: id });
    expect(done.at('Response.AigcVideoTask')).toMatchObject({ Status: 'FINISH', ...error });
  });
});

describe('a download', () => {
  test('under download-cut breaks at its point, and passes it when it is resumed from there', async () => {
    const gateway = await sandbox({ faults: ['download-cut@40%'] });
    const path = await finishedC(gateway);
    const first = await rawGet(gateway, path);
    const second = await rawGet(gateway, path, { Range: `bytes=${first.bytes.length}-` });
    expect([first.status, first.whole, second.status, second.whole]).toEqual([200, false, 206, true]);
    const total = first.bytes.length + second.bytes.length;
    expect(first.bytes.length).toBe(Math.floor(total * 0.4));
  });

  test('under download-cut@40% that begins beyond the point is whole', async () => {
    const gateway = await sandbox({ faults: ['download-cut@40%'] });
    const path = await finishedC(gateway);
    const total = Number((await gateway.call('HEAD', path)).headers.get('content-length'));
    const start = Math.ceil(total * 0.6);
    const part = await rawGet(gateway, path, { Range: `bytes=${start}-` });
    expect([part.status, part.whole, part.bytes.length]).toEqual([206, true, total - start]);
  });

  test('under download-cutx1 is whole at the second try', async () => {
    const gateway = await sandbox({ faults: ['download-cutx1'] });
    const path = await finishedC(gateway);
    expect((await gateway.call('HEAD', path)).status).toBe(200);
    expect((await rawGet(gateway, path)).whole).toBe(false);
    expect((await rawGet(gateway, path)).whole).toBe(true);
  });

  test('under download-stall stops and stays open', async () => {
    const gateway = await sandbox({ faults: ['download-stall@0.1%'] });
    const path = await finishedC(gateway);
    const response = await fetch(gateway.url + path, { headers: { Authorization: `Bearer ${gateway.key}` } });
    const reader = response.body?.getReader();
    const piece = (await reader?.read()) as { value?: Uint8Array } | undefined;
    const total = Number(response.headers.get('content-length'));
    expect(piece?.value?.length).toBe(Math.floor(total / 1000));
    await gateway.close();
    await expect(reader?.read()).rejects.toThrow();
  });

  test.each<[string, number, string]>([
    ['download-502', 502, 'text/html; charset=utf-8'],
    ['download-html', 200, 'text/html; charset=utf-8'],
    ['download-json', 200, 'application/json; charset=utf-8'],
    ['download-gone', 410, 'application/json; charset=utf-8'],
    ['url-expired', 403, 'application/json; charset=utf-8'],
  ])('under %s is HTTP %i once', async (fault, status, type) => {
    const gateway = await sandbox({ faults: [`${fault}x1`] });
    const path = await finishedC(gateway);
    const answer = await gateway.call('GET', path);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([status, type]);
    expect((await gateway.call('GET', path)).headers.get('content-type')).toBe('video/mp4');
  });

  test('under download-no-range has no ranges and no validator', async () => {
    const gateway = await sandbox({ faults: ['download-no-range'] });
    const path = await finishedC(gateway);
    const answer = await gateway.call('GET', path, { headers: { Range: 'bytes=10-' } });
    expect([answer.status, answer.headers.get('etag'), answer.headers.get('accept-ranges')]).toEqual([
      200,
      null,
      null,
    ]);
  });

  test("of Protocol B's file host meets the same faults", async () => {
    const gateway = await sandbox({ faults: ['url-expiredx1'] });
    const id = (await act(gateway, 'CreateAigcVideoTask', B)).at('Response.TaskId');
    gateway.clock.now += 1000;
    const done = await act(gateway, 'DescribeTaskDetail', { TaskId: id });
    const url = done.at('Response.AigcVideoTask.Output.FileInfos.0.FileUrl') as string;
    const statuses = [await fetch(url), await fetch(url)].map(({ status }) => status);
    expect(statuses).toEqual([403, 200]);
  });
});

test('the listing fails under models-502', async () => {
  const gateway = await sandbox({ faults: ['models-502x1'] });
  expect((await gateway.call('GET', '/v1/models')).status).toBe(502);
  expect((await gateway.call('GET', '/v1/models')).status).toBe(200);
});
