import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { ffmpeg, hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { account, s3Server } from '../store/s3-server.ts';
import { onEnd } from '../support/clean-ups.ts';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';

const video = renderVideo({ prompt: 'a boat', seconds: 1, width: 320, height: 180 });
const sha256 = createHash('sha256').update(video).digest('hex');
const submit = ['video', 'a', 'submit', 'a boat', ...'-m veo-3 -d 4 --resolution 720p --audio'.split(' ')];
const intro = [...submit, '--key', 'intro', '--poll-interval', '50ms', '-o'];

interface Scene {
  user: User;
  /** Returns the images that the submissions contain. */
  images: () => (Buffer | undefined)[];
  gateway: HttpServer;
  /** Whether the gateway still has the task's file. */
  state: { isKept: boolean };
}

interface Sent {
  instances: { image?: { bytesBase64Encoded: string } }[];
}

async function scene(): Promise<Scene> {
  const state = { isKept: true };
  const gateway: HttpServer = await httpServer(({ method, path }, response) => {
    const name = `models/veo-3/operations/op-1`;
    if (method === 'POST') sendJson(response, { name });
    else if (path.startsWith('/files'))
      response.writeHead(state.isKept ? 200 : 404).end(state.isKept ? video : '');
    else if (path.includes('operations'))
      sendJson(response, {
        name,
        done: true,
        response: {
          generateVideoResponse: { generatedSamples: [{ video: { uri: `${gateway.url}/files/1.mp4` } }] },
        },
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
  test("is sent in Protocol A's request and recorded as the hash of its video, but not without ffmpeg", async () => {
    const { user, images } = await scene();
    await user.run([...intro, 'intro.mp4']);
    const path = process.env['PATH'];
    process.env['PATH'] = user.cwd;
    onEnd(() => void (process.env['PATH'] = path));
    const without = await user.run([...submit, '--image', '@intro:last', '--key', 'two']);
    expect([without.code, without.stderr]).toEqual([2, expect.stringContaining('package ffmpeg')]);
    expect(images()).toHaveLength(1);
    process.env['PATH'] = path;
    const last = await user.run([...submit, '--image', '@intro:last', '--key', 'two', '--json']);
    expect(last.code, last.stderr).toBe(0);
    expect(JSON.stringify(last.json.job['request'])).toContain(`"sha256:${sha256}.mp4#last"`);
    await user.run([...submit, '--image', '@intro#1:first', '--key', 'three']);
    const [, second, third] = images().map((image = Buffer.alloc(0)) => image);
    const [first, end] = [pixels(video, 'null'), pixels(video, 'reverse')];
    expect(first).not.toBe(end);
    expect([pixels(second ?? video, 'null'), pixels(third ?? video, 'reverse')]).toEqual([end, first]);
  });

  test('is taken from a new download if the video file is missing, and the command exits 9 if the gateway has lost the video too', async () => {
    const { user, images, state } = await scene();
    await user.run([...intro, 'intro.mp4']);
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
    writeFileSync(join(user.cwd, 'intro.mp4'), 'edited');
    expect((await user.run(next)).json.job.id).toBe(first.json.job.id);
    rmSync(join(user.cwd, 'intro.mp4'));
    state.isKept = false;
    expect((await user.run([...submit, '--image', '@intro:first', '--retries', '0'])).code).toBe(9);
    expect(images()).toHaveLength(2);
  });

  test("is taken from a new download if the job's own download failed", async () => {
    const { user, state } = await scene();
    state.isKept = false;
    expect((await user.run([...intro, 'intro.mp4', '--retries', '0'])).code).toBe(9);
    state.isKept = true;
    const used = await user.run([...submit, '--image', '@intro:last', '--key', 'two', '--json']);
    expect(used.code, used.stderr).toBe(0);
    expect(JSON.stringify(used.json.job['request'])).toContain(`"sha256:${sha256}.mp4#last"`);
  });

  test('is read from the store if the video exists only as an object, and the gateway is not queried again', async () => {
    const { user, images, state, gateway } = await scene();
    const store = await s3Server();
    Object.assign(user.env, account);
    await user.run(['config', 'set', 'store.endpoint', store.url]);
    const saved = await user.run([...intro, 's3://media/clips/intro.mp4']);
    expect(saved.code, saved.stderr).toBe(0);
    state.isKept = false;
    const fetched = gateway.requests.length;
    const again = await user.run([...submit, '--image', '@intro:last', '--json']);
    expect(again.code, again.stderr).toBe(0);
    expect(images()[1]?.toString('latin1', 1, 4)).toBe('PNG');
    expect(gateway.requests.slice(fetched).filter(({ path }) => path.startsWith('/files'))).toHaveLength(0);
    expect(readdirSync(join(user.env['MGW_STATE_DIR'] ?? '', 'uploads'))).toEqual([]);
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
});

test('a video that the gateway has not returned cannot be used, and nothing is submitted', async () => {
  const { user, images } = await scene();
  await user.run([...intro, 'intro.mp4', '--sample-count', '2']);
  const used = await user.run([...submit, '--image', '@intro#2:last']);
  expect([used.code, used.stderr]).toEqual([2, expect.stringContaining('has only 1 video')]);
  expect(images()).toHaveLength(1);
});

test('a different file in place of a missing video leads to exit 10 without a submission, and is not overwritten', async () => {
  const { user, images } = await scene();
  await user.run([...intro, 'intro.mp4']);
  writeFileSync(join(user.cwd, 'intro.mp4'), 'mine');
  const ran = await user.run([...submit, '--image', '@intro:last', '-o', 'next.mp4', '--json']);
  expect(ran.json).toMatchObject({ exit_code: 10, error: { code: 'local_io', charged: 'no' } });
  expect(readFileSync(join(user.cwd, 'intro.mp4'), 'utf8')).toBe('mine');
  expect(images()).toHaveLength(1);
  const { next } = ran.json.error as unknown as { next: string[] };
  expect((await user.run([...next.slice(1), '--poll-interval', '50ms'])).code).toBe(0);
});
