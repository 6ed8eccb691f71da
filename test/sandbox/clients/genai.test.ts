import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ApiError, GoogleGenAI, type GenerateVideosOperation } from '@google/genai';
import { describe, expect, it } from 'vitest';
import { sandbox, type TestSandbox } from '../harness.ts';

// Tests the sandbox with the public client of Protocol A's upstream. The client is independent of mgw. If the client
// works, the sandbox uses the format that the gateway forwards unchanged (specification 1.2).

function clientOf(gateway: TestSandbox, key = gateway.key): GoogleGenAI {
  const headers = { Authorization: `Bearer ${key}` };
  return new GoogleGenAI({ apiKey: 'not-the-key', httpOptions: { baseUrl: gateway.url, headers } });
}

const config = { numberOfVideos: 1, durationSeconds: 4, resolution: '720p', aspectRatio: '16:9' };

async function finished(
  gateway: TestSandbox,
  model: string,
  numberOfVideos = 1,
): Promise<GenerateVideosOperation> {
  const client = clientOf(gateway);
  const operation = await client.models.generateVideos({
    model,
    source: { prompt: 'a paper boat' },
    config: { ...config, numberOfVideos },
  });
  expect(operation.name).toMatch(new RegExp(`^models/${model}/operations/\\w+$`));
  const early = await client.operations.getVideosOperation({ operation });
  expect(early.done ?? false).toBe(false);
  gateway.clock.now += 5000;
  return client.operations.getVideosOperation({ operation: early });
}

describe('@google/genai', () => {
  it('submits to the sandbox, polls, and downloads from the returned URL', async () => {
    const gateway = await sandbox();
    const { done, error, response } = await finished(gateway, 'video-a', 2);
    expect({ done, error, count: response?.generatedVideos?.length }).toEqual({
      done: true,
      error: undefined,
      count: 2,
    });
    const uri = response?.generatedVideos?.[0]?.video?.uri ?? '';
    expect(uri).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/v1beta\/files\/\w+:download\?alt=media$/);
    const name = /files\/\w+/.exec(uri)?.[0] ?? '';
    const downloadPath = join(mkdtempSync(join(tmpdir(), 'mgw-genai-')), 'out.mp4');
    await clientOf(gateway).files.download({ file: name, downloadPath });
    expect(readFileSync(downloadPath).toString('latin1', 4, 8)).toBe('ftyp');
  });

  it('finds an inline video in the operation returned by the sandbox', async () => {
    const gateway = await sandbox();
    const { response } = await finished(gateway, 'video-a-inline');
    const video = response?.generatedVideos?.[0]?.video;
    expect(video?.mimeType).toBe('video/mp4');
    expect(Buffer.from(video?.videoBytes ?? '', 'base64').toString('latin1', 4, 8)).toBe('ftyp');
  });

  it('reads a failure in the sandbox as the error of the operation', async () => {
    const gateway = await sandbox({ faults: ['task-fails'] });
    const { done, error } = await finished(gateway, 'video-a');
    expect({ done, code: error?.['code'] }).toEqual({ done: true, code: 13 });
  });

  it.each([
    ['a wrong key', 'video-a', 401],
    ['an unknown model', 'video-z', 503],
  ])("receives the status and message of the sandbox's error for %s", async (_, model, status) => {
    const gateway = await sandbox();
    const client = clientOf(gateway, model === 'video-a' ? 'wrong' : gateway.key);
    const call = client.models.generateVideos({ model, source: { prompt: 'x' }, config });
    const error = await call.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).status).toBe(status);
  });
});
