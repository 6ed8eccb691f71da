import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import type { Answer, TestSandbox } from './harness.ts';
import { sandbox } from './harness.ts';

const BODY = {
  instances: [{ prompt: 'a red kite' }],
  parameters: { durationSeconds: 4, resolution: '720p', aspectRatio: '16:9' },
};
const PNG = { bytesBase64Encoded: 'iVBORw0KGgo=', mimeType: 'image/png' };
const RESPONSE = 'response.generateVideoResponse';

function post(gateway: TestSandbox, body: unknown, model = 'video-a'): Promise<Answer> {
  return gateway.call('POST', `/v1beta/models/${model}:predictLongRunning`, { body });
}

/** Submits, waits until the generation has ended, and returns the finished operation. */
async function finish(gateway: TestSandbox, body: unknown, model?: string): Promise<Answer> {
  const name = (await post(gateway, body, model)).at('name') as string;
  gateway.clock.now += 1000;
  return gateway.call('GET', `/v1beta/${name}`);
}

function withParameters(parameters: object): object {
  return { ...BODY, parameters: { ...BODY.parameters, ...parameters } };
}

function withInstance(instance: object): object {
  return { ...BODY, instances: [{ prompt: 'x', ...instance }] };
}

describe('a Protocol A submission to the sandbox', () => {
  test('returns the operation', async () => {
    const gateway = await sandbox();
    const { status, body } = await post(gateway, BODY);
    expect(status).toBe(200);
    expect(body).toEqual({
      name: expect.stringMatching(/^models\/video-a\/operations\/[a-z0-9]+$/) as string,
      done: false,
    });
    expect(readBill(gateway.stateDir)).toMatchObject([
      { area: 'a', model: 'video-a', amount: 48, seconds: 4 },
    ]);
  });

  test('is accepted with every documented field, and is charged for each sample', async () => {
    const gateway = await sandbox();
    const parameters = {
      sampleCount: 2,
      durationSeconds: 8,
      aspectRatio: '9:16',
      resolution: '1080p',
      negativePrompt: 'rain',
      personGeneration: 'allow_adult',
      seed: 7,
      enhancePrompt: true,
      generateAudio: true,
    };
    const answer = await post(gateway, { instances: [{ prompt: 'x', image: PNG }], parameters });
    expect(answer.status).toBe(200);
    expect(readBill(gateway.stateDir)).toMatchObject([{ amount: 192, seconds: 16 }]);
  });

  const invalid: [string, unknown][] = [
    ['no instances', { parameters: {} }],
    ['instances that are empty', { instances: [] }],
    ['two instances', { instances: [{ prompt: 'x' }, { prompt: 'y' }] }],
    ['an empty prompt', withInstance({ prompt: '' })],
    ['a prompt that is not a string', withInstance({ prompt: 7 })],
    ['an unknown field', { ...BODY, model: 'video-a' }],
    ['an unknown field of the instance', withInstance({ lastFrame: PNG })],
    ['an unknown parameter', withParameters({ duration: 4 })],
    ['an unsupported duration', withParameters({ durationSeconds: 5 })],
    ['a duration as text', withParameters({ durationSeconds: '4' })],
    ['five samples', withParameters({ sampleCount: 5 })],
    ['an unsupported ratio', withParameters({ aspectRatio: '1:1' })],
    ['a resolution in upper case', withParameters({ resolution: '720P' })],
    ['an unsupported policy', withParameters({ personGeneration: 'all' })],
    ['a seed below zero', withParameters({ seed: -1 })],
    ['a boolean as text', withParameters({ enhancePrompt: 'true' })],
    ['an image without its type', withInstance({ image: { bytesBase64Encoded: 'iVBORw0KGgo=' } })],
    ['an image of another type', withInstance({ image: { ...PNG, mimeType: 'image/gif' } })],
    [
      'a data URL',
      withInstance({ image: { ...PNG, bytesBase64Encoded: 'data:image/png;base64,iVBORw0KGgo=' } }),
    ],
    ['an empty image', withInstance({ image: { ...PNG, bytesBase64Encoded: '' } })],
  ];
  test('is refused with INVALID_ARGUMENT, at no charge, if its body is invalid', async () => {
    const gateway = await sandbox();
    for (const [fault, body] of invalid) {
      const answer = await post(gateway, body);
      expect([answer.status, answer.at('error.status')], fault).toEqual([400, 'INVALID_ARGUMENT']);
    }
    expect(readBill(gateway.stateDir)).toEqual([]);
  });

  test('is refused by a model without its features, and by an unknown model', async () => {
    const gateway = await sandbox();
    const features: [string, object][] = [
      ['video-a-fast', withParameters({ generateAudio: true })],
      ['video-a-inline', withInstance({ image: PNG })],
    ];
    for (const [model, body] of features) {
      expect((await post(gateway, body, model)).status).toBe(400);
      expect((await post(gateway, body, 'video-a')).status).toBe(200);
    }
    const answer = await post(gateway, BODY, 'vendor-h3');
    expect([answer.status, answer.at('error.code')]).toEqual([503, 'model_not_found']);
  });
});

describe('a Protocol A operation in the sandbox', () => {
  test('is not done until it ends, and then contains a URL on the gateway', async () => {
    const gateway = await sandbox();
    const name = (await post(gateway, BODY)).at('name') as string;
    gateway.clock.now += 999;
    expect((await gateway.call('GET', `/v1beta/${name}`)).body).toEqual({ name, done: false });
    gateway.clock.now += 1;
    const done = await gateway.call('GET', `/v1beta/${name}`);
    expect([done.at('done'), done.at('error')]).toEqual([true, undefined]);
    const uri = done.at(`${RESPONSE}.generatedSamples.0.video.uri`) as string;
    expect(uri).toMatch(new RegExp(`^${gateway.url}/v1beta/files/[a-z0-9]+:download\\?alt=media$`));
    const file = await gateway.call('GET', uri);
    expect([file.status, file.headers.get('content-type')]).toEqual([200, 'video/mp4']);
  });

  test('contains a different URL and a different file for each sample', async () => {
    const gateway = await sandbox();
    const done = await finish(gateway, withParameters({ sampleCount: 3 }));
    const samples = done.at(`${RESPONSE}.generatedSamples`) as { video: { uri: string } }[];
    const files = await Promise.all(samples.map(({ video }) => gateway.call('GET', video.uri)));
    expect(new Set(files.map(({ bytes }) => bytes.toString('base64'))).size).toBe(3);
  });

  test('contains an error and no response if it failed', async () => {
    const gateway = await sandbox();
    const done = await finish(gateway, withInstance({ prompt: 'x [fail]' }));
    expect(done.at('error')).toEqual({ code: 13, message: 'The generation failed.' });
    expect([done.at('done'), done.at('response')]).toEqual([true, undefined]);
    expect(readBill(gateway.stateDir, gateway.clock.now)[0]?.refunded).toBe(true);
  });

  test('ends without an error or samples, and is refunded, if it was filtered', async () => {
    const gateway = await sandbox();
    const done = await finish(gateway, {
      ...withParameters({ sampleCount: 2 }),
      instances: [{ prompt: '[filtered]' }],
    });
    expect(done.at('error')).toBeUndefined();
    expect(done.at(`${RESPONSE}.generatedSamples`)).toBeUndefined();
    expect(done.at(`${RESPONSE}.raiMediaFilteredCount`)).toBe(2);
    expect(readBill(gateway.stateDir, gateway.clock.now)[0]?.refunded).toBe(true);
  });

  test('contains the remaining samples if it was partly filtered', async () => {
    const gateway = await sandbox();
    const body = { ...withParameters({ sampleCount: 3 }), instances: [{ prompt: '[partly-filtered]' }] };
    const done = await finish(gateway, body);
    expect(done.at(`${RESPONSE}.generatedSamples`)).toHaveLength(2);
    expect(done.at(`${RESPONSE}.raiMediaFilteredCount`)).toBe(1);
    const uri = done.at(`${RESPONSE}.generatedSamples.0.video.uri`) as string;
    expect((await gateway.call('GET', uri.replace('s0:', 's2:'))).status).toBe(404);
    expect(readBill(gateway.stateDir, gateway.clock.now)[0]?.refunded).toBeUndefined();
  });

  test('is found only under its full name', async () => {
    const gateway = await sandbox();
    const name = (await post(gateway, BODY)).at('name') as string;
    const other = await gateway.call('GET', `/v1beta/${name.replace('video-a', 'video-a-fast')}`);
    expect([other.status, other.at('error.status')]).toEqual([404, 'NOT_FOUND']);
    expect((await gateway.call('GET', `/v1beta/operations/${name.split('/')[3] ?? ''}`)).status).toBe(404);
  });

  test('can be queried, and its file downloaded, only with the key of the submission', async () => {
    const gateway = await sandbox({ keys: ['other-key'] });
    const name = (await post(gateway, BODY)).at('name') as string;
    gateway.clock.now += 1000;
    const uri = (await gateway.call('GET', `/v1beta/${name}`)).at(
      `${RESPONSE}.generatedSamples.0.video.uri`,
    ) as string;
    const other = { headers: { Authorization: 'Bearer other-key' } };
    expect((await gateway.call('GET', `/v1beta/${name}`, other)).status).toBe(403);
    expect((await gateway.call('GET', uri, other)).status).toBe(403);
    expect((await gateway.call('GET', uri, { headers: { Authorization: '' } })).status).toBe(401);
  });
});

test("the sandbox deletes an operation's file two days after the operation ends", async () => {
  const gateway = await sandbox();
  const done = await finish(gateway, BODY);
  const uri = done.at(`${RESPONSE}.generatedSamples.0.video.uri`) as string;
  gateway.clock.now += 2 * 24 * 3600 * 1000;
  expect((await gateway.call('GET', uri)).status).toBe(200);
  gateway.clock.now += 1;
  expect((await gateway.call('GET', uri)).status).toBe(404);
});
