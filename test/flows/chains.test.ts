import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { ffmpeg, hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { account, s3Server } from '../store/s3-server.ts';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';

const video = renderVideo({ prompt: 'a boat', seconds: 1, width: 320, height: 180 });
const sha256 = createHash('sha256').update(video).digest('hex');
const submit = [
  'video',
  'a',
  'submit',
  'a boat',
  '-m',
  'veo-3',
  '-d',
  '4',
  '--resolution',
  '720p',
  '--audio',
];

interface Scene {
  user: User;
  /** Returns the images that the submissions contain. */
  images: () => (Buffer | undefined)[];
  gateway: HttpServer;
  /** Whether the task has finished, and whether the gateway still has its file. */
  state: { isDone: boolean; isKept: boolean };
}

interface Sent {
  instances: { image?: { bytesBase64Encoded: string } }[];
}

async function scene(): Promise<Scene> {
  const state = { isDone: true, isKept: true };
  const gateway: HttpServer = await httpServer(({ method, path }, response) => {
    const name = `models/veo-3/operations/op-1`;
    if (method === 'POST') sendJson(response, { name });
    else if (path.startsWith('/files'))
      response.writeHead(state.isKept ? 200 : 404).end(state.isKept ? video : '');
    else if (path.includes('operations'))
      sendJson(response, {
        name,
        ...(state.isDone && {
          done: true,
          response: {
            generateVideoResponse: { generatedSamples: [{ video: { uri: `${gateway.url}/files/1.mp4` } }] },
          },
        }),
      });
    else sendJson(response, { data: [{ id: 'veo-3', protocol: 'a' }] });
  });
  const user = userHere(gateway.url);
  const images: Scene['images'] = () =>
    gateway.requests
      .filter(({ method }) => method === 'POST')
      .map(({ body }) => (JSON.parse(body) as Sent).instances[0]?.image?.bytesBase64Encoded)
      .map((text) => (text === undefined ? undefined : Buffer.from(text, 'base64')));
  return { user, images, gateway, state };
}

// Returns a hash of the decoded pixels, which does not depend on the compression of a PNG.
function pixels(media: Uint8Array, filter: string): string {
  const { output } = ffmpeg(
    media,
    [],
    ['-vf', filter, '-frames:v', '1', '-pix_fmt', 'rgb24', '-f', 'rawvideo'],
  );
  return createHash('sha256').update(output).digest('hex');
}

describe.skipIf(!hasFfmpeg)('a frame of an earlier job', () => {
  test("is sent in Protocol A's request, and recorded as the hash of its video", async () => {
    const { user, images } = await scene();
    await user.run([...submit, '--key', 'intro', '-o', 'intro.mp4', '--poll-interval', '50ms']);
    const last = await user.run([...submit, '--image', '@intro:last', '--key', 'two', '--json']);
    expect(last.code, last.stderr).toBe(0);
    expect(JSON.stringify(last.json.job['request'])).toContain(`"sha256:${sha256}.mp4#last"`);
    await user.run([...submit, '--image', '@intro#1:first', '--key', 'three']);
    const [, second, third] = images();
    expect(pixels(second ?? Buffer.alloc(0), 'null')).toBe(pixels(video, 'reverse'));
    expect(pixels(third ?? Buffer.alloc(0), 'null')).toBe(pixels(video, 'null'));
    expect(pixels(video, 'null')).not.toBe(pixels(video, 'reverse'));
  });

  test('is taken from a new download if the video file is missing, and the command exits 9 if the gateway has lost the video too', async () => {
    const { user, images, state } = await scene();
    await user.run([...submit, '--key', 'intro', '-o', 'intro.mp4', '--poll-interval', '50ms']);
    const next = [...submit, '--image', '@intro:last', '--key', 'two', '--json'];
    rmSync(join(user.cwd, 'intro.mp4'));
    const dry = await user.run([...next, '--dry-run']);
    expect([dry.code, existsSync(join(user.cwd, 'intro.mp4'))], dry.stderr).toEqual([0, false]);
    const first = await user.run(next);
    expect(first.code, first.stderr).toBe(0);
    const { job } = (await user.run(['jobs', 'show', '@intro', '--json'])).json;
    const record = readFileSync(join(user.env['MGW_STATE_DIR'] ?? '', 'jobs', `${job.id}.jsonl`), 'utf8');
    expect(record.match(/"type":"began"/g)).toHaveLength(2);
    expect(record.match(/"type":"delivered"/g)).toHaveLength(2);
    expect((await user.run(next, { env: { PATH: user.cwd } })).json.job.id).toBe(first.json.job.id);
    writeFileSync(join(user.cwd, 'intro.mp4'), 'edited');
    expect((await user.run(next)).json.job.id).toBe(first.json.job.id);
    expect(images()).toHaveLength(2);
    rmSync(join(user.cwd, 'intro.mp4'));
    state.isKept = false;
    expect((await user.run([...submit, '--image', '@intro:first', '--retries', '0'])).code).toBe(9);
    expect(images()).toHaveLength(2);
  });

  test('is read from the store if the video exists only as an object, and the gateway is not queried again', async () => {
    const { user, images, state, gateway } = await scene();
    const store = await s3Server();
    Object.assign(user.env, account);
    await user.run(['config', 'set', 'store.endpoint', store.url]);
    const saved = await user.run([
      ...submit,
      '--key',
      'intro',
      '-o',
      's3://media/clips/intro.mp4',
      '--poll-interval',
      '50ms',
    ]);
    expect(saved.code, saved.stderr).toBe(0);
    state.isKept = false;
    const fetched = gateway.requests.length;
    const left = (): string[] => readdirSync(join(user.env['MGW_STATE_DIR'] ?? '', 'uploads'));
    const next = [...submit, '--image', '@intro:last', '--json'];
    // The next run removes the partial copy of a run that was killed during its download.
    const killed = user.start(next);
    store.faults.push(({ method }, response) => {
      if (method !== 'GET') return false;
      response.writeHead(200, { 'content-length': video.length });
      return response.write(video.subarray(0, 1000), () => killed.child.kill('SIGKILL'));
    });
    expect([(await killed.result).code, left().length > 0]).toEqual([137, true]);
    const again = await user.run(next);
    expect(again.code, again.stderr).toBe(0);
    expect(pixels(images()[1] ?? Buffer.alloc(0), 'null')).toBe(pixels(video, 'reverse'));
    expect(gateway.requests.slice(fetched).filter(({ path }) => path.startsWith('/files'))).toHaveLength(0);
    expect(left()).toEqual([]);
    store.objects.set('/media/clips/intro.mp4', Buffer.from('another'));
    store.metadata.delete('/media/clips/intro.mp4');
    const changed = await user.run([...submit, '--image', '@intro:first', '--retries', '0']);
    expect(changed.code).toBe(9);
    state.isKept = true;
    const kept = await user.run([...submit, '--image', '@intro:first', '--json']);
    expect(kept.json).toMatchObject({ exit_code: 10, error: { code: 'output_exists', charged: 'no' } });
    expect(store.objects.get('/media/clips/intro.mp4')).toEqual(Buffer.from('another'));
    expect(images()).toHaveLength(2);
  });

  test('requires ffmpeg: without ffmpeg, the command exits 2, suggests the package to install, and sends nothing', async () => {
    const { user, images } = await scene();
    await user.run([...submit, '--key', 'intro', '-o', 'intro.mp4', '--poll-interval', '50ms']);
    const ran = await user.start([...submit, '--image', '@intro:last'], { env: { PATH: user.cwd } }).result;
    expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining('package ffmpeg')]);
    expect(images()).toHaveLength(1);
  });
});

test('an unfinished job as an input is refused with exit 2, and the error suggests the command that saves its video', async () => {
  const { user, images, state } = await scene();
  state.isDone = false;
  await user.run([...submit, '--key', 'intro']);
  const ran = await user.run([...submit, '--image', '@intro:last', '--json']);
  expect(ran.code).toBe(2);
  expect(ran.json.error).toMatchObject({ message: expect.stringContaining('has not finished') as string });
  expect(JSON.stringify(ran.json)).toContain('"jobs","fetch"');
  expect(images()).toHaveLength(1);
});

test('a reference that the flag does not support, or that matches no job, is refused with exit 2', async () => {
  const { user, images } = await scene();
  writeFileSync(join(user.cwd, '@intro'), 'no image');
  for (const ref of ['@intro', '@nothing:last', '@intro:middle'])
    expect((await user.run([...submit, '--image', ref])).code).toBe(2);
  expect(images()).toHaveLength(0);
});

test('a different file in place of a missing video leads to exit 10 without a submission, and is not overwritten', async () => {
  const { user, images } = await scene();
  await user.run([...submit, '--key', 'intro', '-o', 'intro.mp4', '--poll-interval', '50ms']);
  writeFileSync(join(user.cwd, 'intro.mp4'), 'mine');
  const ran = await user.run([...submit, '--image', '@intro:last', '-o', 'next.mp4', '--json']);
  expect(ran.json).toMatchObject({ exit_code: 10, error: { code: 'local_io', charged: 'no' } });
  expect(ran.json.error.message).toMatch(/intro\.mp4 has changed since it was saved/);
  expect(readFileSync(join(user.cwd, 'intro.mp4'), 'utf8')).toBe('mine');
  expect(images()).toHaveLength(1);
  const { next } = ran.json.error as unknown as { next: string[] };
  expect((await user.run([...next.slice(1), '--poll-interval', '50ms'])).code).toBe(0);
  expect((await user.run([...submit, '--image', '@intro:last'])).code).toBe(0);
});

test('a reference to a video that was requested but never made is refused with exit 2, and nothing is submitted', async () => {
  const { user, images } = await scene();
  const two = [
    ...submit,
    '--sample-count',
    '2',
    '--key',
    'intro',
    '-o',
    'intro.mp4',
    '--poll-interval',
    '50ms',
  ];
  await user.run(two);
  const ran = await user.run([...submit, '--image', '@intro#2:last', '--json']);
  expect(ran.json).toMatchObject({ exit_code: 2, error: { code: 'usage' } });
  expect(ran.stderr + ran.stdout).toContain('has only 1 video.');
  expect(images()).toHaveLength(1);
});
