import { createRequire } from 'node:module';
import { describe, expect, it } from 'vitest';
import { sandbox, type TestSandbox } from '../harness.ts';

// Tests the sandbox with the public client of the cloud whose actions Protocol B uses. Only the client's signer is
// replaced, because the gateway accepts a bearer key and signs upstream itself (specification 5.4). The client is
// loaded without its types, because the types take a megabyte.

interface Client {
  CreateAigcVideoTask(request: object): Promise<{ TaskId: string; RequestId: string }>;
  DescribeTaskDetail(request: object): Promise<Detail>;
}

interface Detail {
  TaskType: string;
  Status: string;
  AigcVideoTask: {
    TaskId: string;
    Status: string;
    ErrCode?: number;
    ErrCodeExt?: string;
    Output: { FileInfos: { FileUrl: string; MetaData?: { Duration: number } }[] } | null;
  };
  RequestId: string;
}

const require = createRequire(import.meta.url);
const { vod } = require('tencentcloud-sdk-nodejs-vod') as {
  vod: { v20180717: { Client: new (config: object) => Client } };
};
const fromVod = createRequire(require.resolve('tencentcloud-sdk-nodejs-vod'));
const signer = fromVod('tencentcloud-sdk-nodejs-common/tencentcloud/common/sign.js') as {
  default: { sign3: (call: { secretKey: string }) => string };
};
signer.default.sign3 = ({ secretKey }) => `Bearer ${secretKey}`;

function clientOf(gateway: TestSandbox, secretKey = gateway.key): Client {
  const httpProfile = { protocol: 'http://', endpoint: new URL(gateway.url).host };
  return new vod.v20180717.Client({ credential: { secretId: 'none', secretKey }, profile: { httpProfile } });
}

const order = { ModelName: 'Video-B', ModelVersion: '2.0', Prompt: 'a paper boat' };

describe('tencentcloud-sdk-nodejs-vod', () => {
  it('creates a task in the sandbox, queries it, and gets the file', async () => {
    const gateway = await sandbox();
    const client = clientOf(gateway);
    const OutputConfig = { StorageMode: 'Temporary', Resolution: '720P', Duration: 5, AspectRatio: '16:9' };
    const { TaskId, RequestId } = await client.CreateAigcVideoTask({ ...order, OutputConfig });
    expect(RequestId).not.toBe('');
    const early = await client.DescribeTaskDetail({ TaskId });
    expect(early).toMatchObject({ TaskType: 'AigcVideoTask', AigcVideoTask: { TaskId } });
    expect(['WAITING', 'PROCESSING']).toContain(early.Status);
    gateway.clock.now += 5000;
    const { Status, AigcVideoTask: task } = await client.DescribeTaskDetail({ TaskId });
    expect({ Status, inner: task.Status, ErrCode: task.ErrCode, ErrCodeExt: task.ErrCodeExt }).toEqual({
      Status: 'FINISH',
      inner: 'FINISH',
      ErrCode: 0,
      ErrCodeExt: '',
    });
    const [file] = task.Output?.FileInfos ?? [];
    expect(file?.MetaData?.Duration).toBeCloseTo(5, 1);
    const answer = await fetch(file?.FileUrl ?? '');
    expect(Buffer.from(await answer.arrayBuffer()).toString('latin1', 4, 8)).toBe('ftyp');
  });

  it.each([
    ['SubAppId', { ...order, SubAppId: 1 }, 'InvalidParameterValue'],
    ['a version of another model', { ...order, ModelVersion: '9' }, 'InvalidParameterValue'],
  ])('throws an error with the code of the refusal: %s', async (_, body, code) => {
    const client = clientOf(await sandbox());
    await expect(client.CreateAigcVideoTask(body)).rejects.toMatchObject({ code });
  });

  it('throws an error for an unknown task, and for a wrong key', async () => {
    const gateway = await sandbox();
    await expect(clientOf(gateway).DescribeTaskDetail({ TaskId: 'none' })).rejects.toMatchObject({
      code: 'ResourceNotFound',
    });
    await expect(clientOf(gateway, 'wrong').CreateAigcVideoTask(order)).rejects.toThrow();
  });
});
