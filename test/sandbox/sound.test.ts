import { expect, test } from 'vitest';
import { listTasks } from '../../src/sandbox/tasks.ts';
import { videoOf } from '../../src/sandbox/files.ts';
import { sandbox } from './harness.ts';

const A = { path: '/v1beta/models/video-a:predictLongRunning' };
const B = { path: '/', headers: { 'X-TC-Action': 'CreateAigcVideoTask', 'X-TC-Version': '2018-07-17' } };
const C = { path: '/v1/videos' };

const operation = (parameters: object): object => ({
  instances: [{ prompt: 'a red kite' }],
  parameters: { durationSeconds: 4, ...parameters },
});
const action = (output: object): object => ({
  ...{ ModelName: 'Video-B', ModelVersion: '1.0', Prompt: 'a red kite' },
  OutputConfig: { Duration: 4, ...output },
});
const task = (fields: object): object => ({ model: 'vendor-h3-mini', prompt: 'a red kite', ...fields });
const song = 'https://assets.example.com/song.mp3';

const videos: [string, { path: string; headers?: Record<string, string> }, object, boolean][] = [
  ['Protocol A, not mentioned', A, operation({}), false],
  ['Protocol A, off', A, operation({ generateAudio: false }), false],
  ['Protocol A, on', A, operation({ generateAudio: true }), true],
  ['Protocol B, not mentioned', B, action({}), false],
  ['Protocol B, off', B, action({ AudioGeneration: 'Disabled' }), false],
  ['Protocol B, on', B, action({ AudioGeneration: 'Enabled' }), true],
  ['Protocol C, not mentioned', C, task({}), false],
  ['Protocol C, by its native mode', C, task({ mode: 't2va' }), true],
  ['Protocol C, with an audio reference', C, task({ reference_audio_urls: [song] }), true],
];

test('a sandbox video has sound only on request', async () => {
  for (const [form, { path, ...call }, body, sounds] of videos) {
    const gateway = await sandbox();
    expect((await gateway.call('POST', path, { body, ...call })).status, form).toBe(200);
    const [made] = listTasks(gateway.stateDir);
    expect(made && Buffer.from(videoOf(made)).includes('mp4a'), form).toBe(sounds);
  }
});
