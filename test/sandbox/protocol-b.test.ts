import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { verify } from '../../src/sandbox/verify.ts';
import { sandbox, type Answer, type TestSandbox } from './harness.ts';

const BODY = {
  ModelName: 'Video-B',
  ModelVersion: '2.0',
  Prompt: 'a red kite',
  OutputConfig: { Duration: 4 },
};
const ASSET = {
  Type: 'Url',
  Url: 'https://assets.example.com/1.png',
  Category: 'Image',
  Usage: 'FirstFrame',
};
const TASK = 'Response.AigcVideoTask';
const PLAIN = { Authorization: '', 'Content-Type': '' };

const create = (gateway: TestSandbox, body: unknown): Promise<Answer> =>
  gateway.act('CreateAigcVideoTask', body);
const describeTask = (gateway: TestSandbox, id: unknown): Promise<Answer> =>
  gateway.act('DescribeTaskDetail', { TaskId: id });

/** Submits, waits until the generation has ended, and returns the finished task. */
async function finish(gateway: TestSandbox, body: unknown): Promise<Answer> {
  const id = (await create(gateway, body)).at('Response.TaskId');
  gateway.clock.now += 1000;
  return describeTask(gateway, id);
}

function withOutput(output: object): object {
  return { ...BODY, OutputConfig: output };
}

const EXTENDED = { ...BODY, ModelName: 'Video-B-Ext', ModelVersion: '3.0' };
const ONCE = JSON.stringify({ ExtVideoParameters: { ReturnUsage: true } });
const TWICE = JSON.stringify({ ExtVideoParameters: JSON.stringify({ ReturnUsage: true }) });

describe('a Protocol B request to the sandbox', () => {
  const invalid: [string, Record<string, string>, string][] = [
    ['no action', { 'X-TC-Action': '' }, 'MissingParameter'],
    ['no version', { 'X-TC-Version': '' }, 'MissingParameter'],
    ['a wrong version', { 'X-TC-Version': '2.0' }, 'NoSuchVersion'],
    ['an unknown action', { 'X-TC-Action': 'DescribeMediaInfos' }, 'InvalidAction'],
    ['an action in lower case', { 'X-TC-Action': 'createaigcvideotask' }, 'InvalidAction'],
    ['another type than JSON', { 'Content-Type': 'text/plain' }, 'InvalidRequest'],
  ];
  test('is refused, with an error in an HTTP 200 response, if its headers or its URL are invalid', async () => {
    const gateway = await sandbox();
    for (const [fault, headers, code] of invalid) {
      const answer = await gateway.act('CreateAigcVideoTask', BODY, headers);
      expect([answer.status, answer.at('Response.Error.Code')], fault).toEqual([200, code]);
      expect(answer.at('Response.RequestId')).toBe(answer.headers.get('x-oneapi-request-id'));
    }
    const headers = { 'X-TC-Action': 'CreateAigcVideoTask', 'X-TC-Version': '2018-07-17' };
    const answer = await gateway.call('POST', '/?Action=CreateAigcVideoTask', { body: BODY, headers });
    expect(answer.at('Response.Error.Code')).toBe('InvalidRequest');
    expect(readBill(gateway.stateDir)).toEqual([]);
  });

  test('is refused with HTTP 401 if it has no key', async () => {
    const gateway = await sandbox();
    expect((await gateway.act('CreateAigcVideoTask', BODY, { Authorization: '' })).status).toBe(401);
  });
});

describe('a Protocol B task creation in the sandbox', () => {
  test('returns the task and charges for it', async () => {
    const gateway = await sandbox();
    const { status, body } = await create(gateway, BODY);
    expect(status).toBe(200);
    const task = expect.stringMatching(/^1400000000-AigcVideo-[0-9a-f]{32}t$/) as string;
    expect(body).toEqual({ Response: { TaskId: task, RequestId: expect.any(String) as string } });
    expect(readBill(gateway.stateDir)).toMatchObject([
      { area: 'b', model: 'Video-B', amount: 40, seconds: 4 },
    ]);
  });

  const settings = {
    StorageMode: 'Temporary',
    Resolution: '720P',
    Duration: 5,
    AspectRatio: '16:9',
    AudioGeneration: 'Enabled',
  };
  const valid: [string, object][] = [
    ['every documented field', { ...withOutput(settings), NegativePrompt: 'rain', FileInfos: [ASSET] }],
    ['an image in place of a prompt', { ModelName: 'Video-B', ModelVersion: '1.0', FileInfos: [ASSET] }],
    ['extension parameters', { ...EXTENDED, ExtInfo: TWICE }],
    ['an extension of a standard model', { ...BODY, ExtInfo: '{}' }],
  ];
  test('succeeds with every documented form of the body', async () => {
    const gateway = await sandbox();
    for (const [form, body] of valid)
      expect((await create(gateway, body)).at('Response.Error'), form).toBeUndefined();
  });

  const withFile = (members: object): object => ({ ...BODY, FileInfos: [{ ...ASSET, ...members }] });
  const draft = '{"ExtVideoParameters":"{\\"draft_task_id\\":\\"1\\"}"}';
  const invalid: [string, object, string?][] = [
    ['no model', { ...BODY, ModelName: undefined }, 'MissingParameter'],
    ['no version', { ...BODY, ModelVersion: undefined }, 'MissingParameter'],
    ['a model in lower case', { ...BODY, ModelName: 'video-b' }],
    ['a model with its version', { ...BODY, ModelName: 'Video-B-2.0' }],
    ["another model's version", { ...BODY, ModelName: 'Video-B-Lite' }],
    ['a number for the version', { ...BODY, ModelVersion: 2 }],
    ['no prompt', { ...BODY, Prompt: '' }, 'MissingParameter'],
    ['a field name in camel case', { modelName: 'Video-B', ...BODY }, 'UnknownParameter'],
    ['SubAppId at any depth', { ...BODY, OutputConfig: { Extra: [{ SubAppId: 1 }] } }],
    ['a serialized SubAppId', { ...EXTENDED, ExtInfo: '{"SubAppId":1}' }],
    ['FileId', withFile({ FileId: '1' })],
    ['LastFrameFileId', { ...BODY, LastFrameFileId: '1' }],
    ['draft_task_id', { ...EXTENDED, ExtInfo: draft }],
    ['an asset that is not an HTTP(S) URL', withFile({ Url: 'file:///etc/passwd' })],
    ['an asset of another type', withFile({ Type: 'File' })],
    ['a Usage value in lower case', withFile({ Usage: 'firstframe' })],
    ['a resolution in lower case', withOutput({ Resolution: '720p' })],
    ['text for the duration', withOutput({ Duration: '5' })],
    ['permanent storage', withOutput({ StorageMode: 'Permanent' })],
    ['a boolean for sound', withOutput({ AudioGeneration: true })],
    ['an object for ExtInfo', { ...EXTENDED, ExtInfo: JSON.parse(TWICE) as unknown }],
    ['an ExtInfo that is serialized only once', { ...EXTENDED, ExtInfo: ONCE }],
  ];
  test('is refused, with an error in an HTTP 200 response and at no charge, if its body is invalid', async () => {
    const gateway = await sandbox();
    for (const [fault, body, code = 'InvalidParameterValue'] of invalid) {
      const answer = await create(gateway, body);
      expect([answer.status, answer.at('Response.Error.Code')], fault).toEqual([200, code]);
    }
    expect(readBill(gateway.stateDir)).toEqual([]);
  });
});

describe('a Protocol B task in the sandbox', () => {
  test('waits, is processed, and finishes with a URL on the file host', async () => {
    const gateway = await sandbox();
    const id = (await create(gateway, BODY)).at('Response.TaskId');
    const seen: unknown[] = [];
    for (const elapsed of [0, 500, 1000]) {
      gateway.clock.now = 1_795_000_000_000 + elapsed;
      const answer = await describeTask(gateway, id);
      seen.push([answer.at('Response.Status'), answer.at(`${TASK}.Status`), answer.at(`${TASK}.ErrCode`)]);
    }
    expect(seen).toEqual([
      ['WAITING', 'WAITING', 0],
      ['PROCESSING', 'PROCESSING', 0],
      ['FINISH', 'FINISH', 0],
    ]);
    const done = await describeTask(gateway, id);
    expect(done.at('Response')).toMatchObject({
      TaskType: 'AigcVideoTask',
      AigcVideoTask: { TaskId: id, ErrCodeExt: '' },
    });
    const file = done.at(`${TASK}.Output.FileInfos.0`) as { FileUrl: string };
    expect(file).toMatchObject({ MetaData: { Duration: 4 } });
    expect(new URL(file.FileUrl).origin).toBe(gateway.fileUrl);
    expect(gateway.fileUrl).not.toBe(gateway.url);
    const video = await gateway.call('GET', file.FileUrl, { headers: PLAIN });
    expect([video.status, video.bytes.subarray(4, 8).toString('latin1')]).toEqual([200, 'ftyp']);
  });

  test.each<[string, object, object]>([
    ['ErrCode', { Prompt: '[fail]' }, { ErrCode: 70000, ErrCodeExt: '' }],
    ['ErrCodeExt alone', { Prompt: '[fail-ext]' }, { ErrCode: 0, ErrCodeExt: 'ModelGenerateFailed' }],
    ['a policy code', { Prompt: '[filtered]' }, { ErrCodeExt: 'InvalidParameter.VoilationContent' }],
    ['60000', { FileInfos: [{ ...ASSET, Url: 'http://10.0.0.1/a.png' }] }, { ErrCode: 60000 }],
  ])('has the status FINISH and %s if it fails, and is refunded', async (_, members, error) => {
    const gateway = await sandbox();
    const done = await finish(gateway, { ...BODY, ...members });
    expect(done.at(TASK)).toMatchObject({ Status: 'FINISH', Output: null, ...error });
    expect(done.at(`${TASK}.Message`)).toMatch(/\w/);
    expect(readBill(gateway.stateDir, gateway.clock.now)[0]?.refunded).toBe(true);
  });

  test('contains usage only on request', async () => {
    const gateway = await sandbox();
    const usage = `${TASK}.Output.Usage`;
    expect((await finish(gateway, { ...EXTENDED, ExtInfo: TWICE })).at(usage)).toMatchObject({
      OutputSeconds: 4,
    });
    expect((await finish(gateway, EXTENDED)).at(usage)).toBeUndefined();
  });

  test('is not found by a query with a different key or a wrong id, or after three days', async () => {
    const gateway = await sandbox({ keys: ['other-key'] });
    const id = (await create(gateway, BODY)).at('Response.TaskId');
    const other = { Authorization: 'Bearer other-key' };
    const foreign = await gateway.act('DescribeTaskDetail', { TaskId: id }, other);
    const wrong = await describeTask(gateway, '1400000000-AigcVideo-0t');
    gateway.clock.now += 3 * 24 * 3600 * 1000 + 1;
    const late = await describeTask(gateway, id);
    const codes = [foreign, wrong, late].map((answer) => answer.at('Response.Error.Code'));
    expect(codes).toEqual(['ResourceNotFound', 'ResourceNotFound', 'ResourceNotFound']);
  });

  test('is found only if a query contains nothing but its id, as text', async () => {
    const gateway = await sandbox();
    const id = (await create(gateway, BODY)).at('Response.TaskId');
    const answer = await gateway.act('DescribeTaskDetail', { TaskId: id, ModelName: 'Video-B' });
    expect(answer.at('Response.Error.Code')).toBe('UnknownParameter');
    expect((await describeTask(gateway, 7)).at('Response.Error.Code')).toBe('MissingParameter');
  });
});

describe('the sandbox file host', () => {
  test('refuses a key in any header, and a URL without a valid signature', async () => {
    const gateway = await sandbox();
    const done = await finish(gateway, BODY);
    const url = done.at(`${TASK}.Output.FileInfos.0.FileUrl`) as string;
    const keys: Record<string, string>[] = [
      { Authorization: 'Bearer anything' },
      { 'X-Api-Key': 'anything' },
      { 'X-Custom': 'key=sandbox-key' },
    ];
    const kinds = (): string[] => verify(gateway.stateDir).map(({ kind }) => kind);
    expect(kinds()).not.toContain('key-at-file-host');
    for (const headers of keys)
      expect((await gateway.call('GET', url, { headers: { ...PLAIN, ...headers } })).status).toBe(400);
    expect(kinds()).toContain('key-at-file-host');
    for (const changed of [url.replace(/&sign=.*/, ''), url.replace(/t=\d+/, 't=99999999999999')])
      expect((await gateway.call('GET', changed, { headers: PLAIN })).status).toBe(403);
  });

  test('refuses an expired URL, and a later query returns a new URL', async () => {
    const gateway = await sandbox();
    const id = (await create(gateway, BODY)).at('Response.TaskId');
    gateway.clock.now += 1000;
    const fetchFile = async (url: unknown): Promise<number> =>
      (await gateway.call('GET', url as string, { headers: PLAIN })).status;
    const first = (await describeTask(gateway, id)).at(`${TASK}.Output.FileInfos.0.FileUrl`);
    gateway.clock.now += 24 * 3600 * 1000 + 1;
    expect(await fetchFile(first)).toBe(403);
    expect(await fetchFile((await describeTask(gateway, id)).at(`${TASK}.Output.FileInfos.0.FileUrl`))).toBe(
      200,
    );
  });
});
