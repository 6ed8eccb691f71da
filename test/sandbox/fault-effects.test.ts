import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { sandbox, type Answer, type TestSandbox } from './harness.ts';

const C = { model: 'vendor-h3', prompt: 'a red kite', duration: 4 };
const B = { ModelName: 'Video-B', ModelVersion: '2.0', Prompt: 'a red kite', OutputConfig: { Duration: 4 } };
const A = { instances: [{ prompt: 'a red kite' }], parameters: { durationSeconds: 4, sampleCount: 2 } };

const submitC = (gateway: TestSandbox, body: object = C): Promise<Answer> =>
  gateway.call('POST', '/v1/videos', { body });

/** Returns the status of a response, or the reason why the response cannot be read. */
function outcomeOf(answer: Promise<Answer>): Promise<number | 'broken' | 'not JSON'> {
  return answer.then(
    ({ status }) => status,
    (error: unknown) => (error instanceof SyntaxError ? 'not JSON' : 'broken'),
  );
}

/** Submits to Protocol C, waits until the task has finished, and returns the path of the task's content. */
async function finishedC(gateway: TestSandbox): Promise<string> {
  const id = (await submitC(gateway)).at('task_id') as string;
  gateway.clock.now += 1000;
  return `/v1/videos/${id}/content`;
}

/** Submits to Protocol B, waits until the task has finished, and returns the task's record. */
async function finishedB(gateway: TestSandbox): Promise<Answer> {
  const id = (await gateway.act('CreateAigcVideoTask', B)).at('Response.TaskId');
  gateway.clock.now += 1000;
  return gateway.act('DescribeTaskDetail', { TaskId: id });
}

/** Returns the received part of a response, and whether the response is complete. */
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

describe('a submission to the sandbox', () => {
  // In the order in which the sandbox applies faults.
  const faults: [fault: string, outcome: number | 'broken' | 'not JSON', charges: number][] = [
    ['auth-401', 401, 0],
    ['balance-403', 403, 0],
    ['submit-429', 429, 0],
    ['submit-429-retry-after', 429, 0],
    ['submit-503', 503, 0],
    ['submit-500', 500, 0],
    ['submit-reset', 'broken', 0],
    ['submit-reply-lost', 'broken', 1],
    ['submit-500-after-accept', 500, 1],
    ['submit-502-after-accept', 502, 1],
    ['submit-slow', 200, 1],
    ['client-gives-up', 200, 1],
    ['submit-garbled', 'not JSON', 1],
    ['submit-empty', 200, 1],
    ['submit-cut', 'broken', 1],
  ];
  test('is affected once by each fault with the count 1, and then succeeds', async () => {
    const gateway = await sandbox({ faults: faults.map(([fault]) => `${fault}x1`), paceMs: 1 });
    const seen: unknown[] = [];
    for (const [fault] of faults) {
      const before = readBill(gateway.stateDir).length;
      const outcome = await outcomeOf(submitC(gateway));
      seen.push([fault, outcome, readBill(gateway.stateDir).length - before]);
    }
    expect(seen).toEqual(faults);
    expect((await submitC(gateway)).at('status')).toBe('queued');
  });

  test('receives a Retry-After header if the fault is submit-429-retry-after', async () => {
    const gateway = await sandbox({ faults: ['submit-429-retry-after'] });
    expect((await submitC(gateway)).headers.get('retry-after')).toBe('1');
  });

  test('does not use up a response fault if it is invalid', async () => {
    const gateway = await sandbox({ faults: ['submit-500-after-acceptx1'] });
    const invalid = [
      await submitC(gateway, { ...C, duration: 3 }),
      await gateway.act('CreateAigcVideoTask', { ...B, SubAppId: 1 }),
      await gateway.act('CreateAigcVideoTask', B, { 'X-TC-Version': '1' }),
    ];
    expect(invalid.map(({ status }) => status)).toEqual([400, 200, 200]);
    expect((await submitC(gateway)).status).toBe(500);
  });

  test('is affected by faults of Protocol B only if it uses that protocol', async () => {
    const gateway = await sandbox({ faults: ['b-submit-limitedx1', 'b-submit-internal-errorx1'] });
    expect((await submitC(gateway)).status).toBe(200);
    const answers = [
      await gateway.act('CreateAigcVideoTask', B),
      await gateway.act('CreateAigcVideoTask', B),
    ];
    const codes = answers.map((answer) => answer.at('Response.Error.Code'));
    expect(codes).toEqual(['RequestLimitExceeded', 'InternalError']);
    expect(readBill(gateway.stateDir).map(({ area }) => area)).toEqual(['c', 'b']);
  });
});

describe('a poll in the sandbox', () => {
  test('is affected once by each fault with the count 1, and then succeeds', async () => {
    // In the order in which the sandbox applies faults.
    const faults: [fault: string, outcome: number | 'broken' | 'not JSON'][] = [
      ['poll-429', 429],
      ['poll-500', 500],
      ['poll-502', 502],
      ['poll-503', 503],
      ['poll-reset', 'broken'],
      ['poll-notfound', 400],
      ['poll-garbled', 'not JSON'],
      ['poll-cut', 'broken'],
    ];
    const gateway = await sandbox({ faults: faults.map(([fault]) => `${fault}x1`) });
    const path = `/v1/video/generations/${(await submitC(gateway)).at('task_id') as string}`;
    const seen: unknown[] = [];
    for (const [fault] of faults) seen.push([fault, await outcomeOf(gateway.call('GET', path))]);
    expect(seen).toEqual(faults);
    expect(await outcomeOf(gateway.call('GET', path))).toBe(200);
  });

  test('receives "not found" in the format of Protocol A or B if it uses that protocol', async () => {
    const gateway = await sandbox({ faults: ['poll-notfound'] });
    const operation = await gateway.call('GET', '/v1beta/models/video-a/operations/0');
    expect([operation.status, operation.at('error.status')]).toEqual([404, 'NOT_FOUND']);
    const task = await gateway.act('DescribeTaskDetail', { TaskId: 'x' });
    expect(task.at('Response.Error.Code')).toBe('ResourceNotFound');
  });
});

describe('the outcome fault', () => {
  test.each([
    ['task-fails', 'failed'],
    ['never-finishes', 'in_progress'],
  ])("%s determines a Protocol C task's outcome", async (fault, status) => {
    const gateway = await sandbox({ faults: [fault] });
    const id = (await submitC(gateway)).at('task_id') as string;
    gateway.clock.now += 3_600_000;
    expect((await gateway.call('GET', `/v1/videos/${id}`)).at('status')).toBe(status);
  });

  test.each<[string, number | undefined, number]>([
    ['a-filtered', undefined, 2],
    ['a-partly-filtered', 1, 1],
  ])("%s determines a Protocol A operation's outcome", async (fault, delivered, filtered) => {
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
  ])('%s determines the outcome of a Protocol B task only', async (fault, error) => {
    const gateway = await sandbox({ faults: [`${fault}x1`] });
    await submitC(gateway);
    const done = await finishedB(gateway);
    expect(done.at('Response.AigcVideoTask')).toMatchObject({ Status: 'FINISH', ...error });
  });
});

describe('a download from the sandbox', () => {
  test('ends at the requested point if the fault is download-cut, and is complete once it is resumed from there', async () => {
    const gateway = await sandbox({ faults: ['download-cut@40%'] });
    const path = await finishedC(gateway);
    expect((await gateway.call('HEAD', path)).status).toBe(200);
    const first = await rawGet(gateway, path);
    const second = await rawGet(gateway, path, { Range: `bytes=${first.bytes.length}-` });
    expect([first.status, first.whole, second.status, second.whole]).toEqual([200, false, 206, true]);
    const total = first.bytes.length + second.bytes.length;
    expect(first.bytes.length).toBe(Math.floor(total * 0.4));
    const start = Math.ceil(total * 0.6);
    const beyond = await rawGet(gateway, path, { Range: `bytes=${start}-` });
    expect([beyond.status, beyond.whole, beyond.bytes.length]).toEqual([206, true, total - start]);
  });

  test('stops, and the connection stays open, if the fault is download-stall', async () => {
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

  test('receives another response once with each fault that replaces the file', async () => {
    // In the order in which the sandbox applies faults.
    const faults: [string, number, string][] = [
      ['download-502', 502, 'text/html; charset=utf-8'],
      ['download-gone', 410, 'application/json; charset=utf-8'],
      ['url-expired', 403, 'application/json; charset=utf-8'],
      ['download-html', 200, 'text/html; charset=utf-8'],
      ['download-json', 200, 'application/json; charset=utf-8'],
    ];
    const gateway = await sandbox({ faults: faults.map(([fault]) => `${fault}x1`) });
    const path = await finishedC(gateway);
    const seen: unknown[] = [];
    for (const [fault] of faults) {
      const { status, headers } = await gateway.call('GET', path);
      seen.push([fault, status, headers.get('content-type')]);
    }
    expect(seen).toEqual(faults);
    expect((await gateway.call('GET', path)).headers.get('content-type')).toBe('video/mp4');
  });

  test('cannot be resumed if the fault is download-no-range', async () => {
    const gateway = await sandbox({ faults: ['download-no-range'] });
    const path = await finishedC(gateway);
    const { status, headers } = await gateway.call('GET', path, { headers: { Range: 'bytes=10-' } });
    expect([status, headers.get('etag'), headers.get('accept-ranges')]).toEqual([200, null, null]);
  });

  test('is affected by faults even if it is from the file host', async () => {
    const gateway = await sandbox({ faults: ['url-expiredx1'] });
    const done = await finishedB(gateway);
    const url = done.at('Response.AigcVideoTask.Output.FileInfos.0.FileUrl') as string;
    const statuses = [await fetch(url), await fetch(url)].map(({ status }) => status);
    expect(statuses).toEqual([403, 200]);
  });
});

test('a request for the model list fails with the fault models-502', async () => {
  const gateway = await sandbox({ faults: ['models-502x1'] });
  expect((await gateway.call('GET', '/v1/models')).status).toBe(502);
  expect((await gateway.call('GET', '/v1/models')).status).toBe(200);
});
