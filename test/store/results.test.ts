import { createHash } from 'node:crypto';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import type { User } from '../support/cli.ts';
import { film } from '../support/film.ts';
import { userHere } from '../support/one-process.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';
import { account, configureStore, s3Server, type S3Server } from './s3-server.ts';

interface Scene {
  user: User;
  gateway: HttpServer;
  store: S3Server;
  video: Buffer;
  posts: () => number;
  /** Returns the files that are waiting for their upload. */
  kept: () => string[];
}

async function scene(size = 2000): Promise<Scene> {
  const store = await s3Server();
  const video = film(size);
  const gateway: HttpServer = await httpServer((seen, response) => {
    if (seen.method === 'POST') sendJson(response, { task_id: gateway.create(), status: 'queued' });
    else if (/film.mp4|content$/.test(seen.path))
      response.writeHead(200, { 'content-type': 'video/mp4' }).end(video);
    else sendJson(response, { status: 'success', url: `${gateway.url}/film.mp4` });
  });
  const user = userHere(gateway.url, account);
  configureStore(user, store.url);
  const posts = (): number => gateway.requests.filter(({ method }) => method === 'POST').length;
  const kept: Scene['kept'] = () =>
    readdirSync(user.cwd, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.parentPath.endsWith('uploads'))
      .map(({ name }) => name);
  return { user, gateway, store, video, posts, kept };
}

/** Opens a scene whose gateway is the sandbox. The sandbox's object storage is not used. */
async function playScene(faults: string[] = []): Promise<Pick<Scene, 'user' | 'store' | 'kept'>> {
  const { user, store, kept } = await scene();
  const stateDir = join(user.cwd, 'gateway');
  const sandbox = await startSandbox({ stateDir, paceMs: 20, faults });
  onTestFinished(() => sandbox.close());
  Object.assign(user.env, { MGW_BASE_URL: sandbox.url, MGW_API_KEY: sandbox.key });
  return { user, store, kept };
}

const submit = [
  'video',
  'c',
  'submit',
  'a boat',
  '-m',
  'vendor-h3-mini',
  '-d',
  '5',
  '--json',
  '--poll-interval',
  '50ms',
];
const to = (url: string): string[] => [...submit, '-o', url];

interface Saved {
  id: string;
  files: { path: string }[];
}

describe('the flag -o s3://BUCKET/OBJECT', () => {
  test('saves a video as an object named after its job, leaves no local file, and makes a mismatch note name the object', async () => {
    const { user, store, kept } = await playScene(['short-video']);
    const ran = await user.run(to('s3://bucket/clips/boat-{id}.mp4'));
    expect(ran.code, ran.stderr).toBe(0);
    const { id, files } = ran.json.job as unknown as Saved;
    expect(files.map(({ path }) => path)).toEqual([`s3://bucket/clips/boat-${id}.mp4`]);
    expect([...store.objects.keys()]).toEqual([`/bucket/clips/boat-${id}.mp4`]);
    expect(ran.stderr).toMatch(/^boat-job_\w+\.mp4 differs from the request/m);
    expect(kept()).toEqual([]);
  });

  test("is refused for a gallery and in a manifest's output column", async () => {
    const { user, posts } = await scene();
    expect((await user.run(['jobs', 'gallery', '-o', 's3://bucket/review/'])).code).toBe(2);
    for (const url of ['s3://bucket/a.mp4', 'gs://bucket/a.mp4']) {
      const row = `id,model,duration,prompt,output\na,vendor-h3-mini,5,a boat,${url}\n`;
      writeFileSync(join(user.cwd, 'm.csv'), row);
      const ran = await user.run(['batch', 'run', 'm.csv']);
      expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining('use -o s3://BUCKET/FOLDER')]);
    }
    expect([posts(), existsSync(join(user.cwd, 's3:'))]).toEqual([0, false]);
  });

  test('refuses to replace an existing object before anything is paid for', async () => {
    const { user, store, posts } = await scene();
    store.objects.set('/bucket/boat.mp4', Buffer.from('other'));
    const ran = await user.run(to('s3://bucket/boat.mp4'));
    expect(ran.json).toMatchObject({ exit_code: 10, error: { code: 'output_exists', charged: 'no' } });
    expect(posts()).toBe(0);
    expect((await user.run([...to('s3://bucket/boat.mp4'), '--force'])).code).toBe(0);
    expect(store.objects.get('/bucket/boat.mp4')).toHaveLength(2000);
  });

  test('is refused with exit 2 if it does not specify an object', async () => {
    const { user, posts } = await scene();
    for (const output of [
      ...['s3://bucket', 's3://bucket/clips/', 's3://bucket/../x.mp4', 's3://bucket/{slug}.mp4'],
    ])
      expect((await user.run(to(output))).json, output).toMatchObject({
        exit_code: 2,
        error: { code: 'usage' },
      });
    expect(posts()).toBe(0);
  });

  test('keeps a video that could not be uploaded, and suggests a command that uploads it at no charge', async () => {
    const { user, gateway, store, video, posts, kept } = await scene();
    store.faults.push((request, response) => {
      if (request.method !== 'PUT') return false;
      return response.writeHead(403).end();
    });
    const ran = await user.run(to('s3://bucket/boat.mp4'));
    expect(ran.json).toMatchObject({ exit_code: 10, error: { code: 'store', charged: 'yes' } });
    expect(kept()).toHaveLength(1);
    const { next } = ran.json.error as unknown as { next: string[] };
    const { id } = ran.json.job;
    expect((await user.run(['doctor'])).stdout).toMatch(new RegExp(`uploads +warn[^]*mgw jobs fetch ${id}`));
    const uploads = join(user.env['MGW_STATE_DIR'] ?? '', 'uploads');
    cpSync(uploads, join(user.cwd, 'copy'), { recursive: true });
    const downloads = gateway.requests.filter(({ path }) => path.endsWith('content')).length;
    const again = await user.run(next.slice(1));
    expect(again.code, again.stderr).toBe(0);
    expect(store.objects.get('/bucket/boat.mp4')).toEqual(video);
    // Restore the file, as if the process had been killed before removing the file.
    cpSync(join(user.cwd, 'copy'), uploads, { recursive: true });
    expect((await user.run(['jobs', 'fetch', id])).stdout).toBe('s3://bucket/boat.mp4\n');
    expect(gateway.requests.filter(({ path }) => path.endsWith('content'))).toHaveLength(downloads);
    expect([posts(), kept()]).toEqual([1, []]);
  });

  test('downloads a video again if the file kept for its upload is damaged', async () => {
    const { user, store, video, posts, kept } = await scene();
    store.faults.push(({ method }, response) => method === 'PUT' && response.writeHead(403).end());
    const ran = await user.run(to('s3://bucket/boat.mp4'));
    const [name = ''] = kept();
    writeFileSync(join(user.env['MGW_STATE_DIR'] ?? '', 'uploads', name), 'damaged');
    const again = await user.run(['jobs', 'fetch', ran.json.job.id, '-o', 's3://bucket/boat.mp4']);
    expect(again.code, again.stderr).toBe(0);
    expect(store.objects.get('/bucket/boat.mp4')).toEqual(video);
    expect([posts(), kept()]).toEqual([1, []]);
  });

  test('saves a fetched video to a bucket', async () => {
    const { user, store, video } = await scene();
    const { id } = (await user.run(submit)).json.job as unknown as Saved;
    const fetched = await user.run(['jobs', 'fetch', id, '-o', 's3://bucket/all/']);
    expect(fetched.stdout.trim(), fetched.stderr).toBe(`s3://bucket/all/${id}.mp4`);
    expect(store.objects.get(`/bucket/all/${id}.mp4`)).toEqual(video);
  });

  test('saves speech as an object', async () => {
    const { store, kept, user } = await playScene();
    const speak = ['tts', 'Good morning', '-o', 's3://bucket/{id}.mp3', '--json'];
    const ran = await user.run(speak);
    expect(ran.code, ran.stderr).toBe(0);
    const { id, files } = ran.json.job as unknown as Saved;
    expect(files.map(({ path }) => path)).toEqual([`s3://bucket/${id}.mp3`]);
    const speech = store.objects.get(`/bucket/${id}.mp3`);
    expect(speech?.length).toBeGreaterThan(100);
    expect(kept()).toEqual([]);
    // The gateway does not store speech, so mgw fetches it from the bucket.
    for (const output of ['here.mp3', 's3://bucket/copy.mp3']) {
      const fetched = await user.run(['jobs', 'fetch', id, '-o', output]);
      expect(fetched.code, fetched.stderr).toBe(0);
    }
    expect(readFileSync(join(user.cwd, 'here.mp3'))).toEqual(speech);
    expect(store.objects.get('/bucket/copy.mp3')).toEqual(speech);
  });
});

test('a batch saves its rows as objects, and costs nothing when it is run again', async () => {
  const { user, store } = await playScene();
  writeFileSync(
    join(user.cwd, 'rows.csv'),
    'id,protocol,model,duration,prompt,text\nboat,c,vendor-h3-mini,5,a boat,\nhello,tts,,,,Hello\n',
  );
  const run = ['batch', 'run', 'rows.csv', '-o', 's3://bucket/out/{id}.{ext}', '--json'];
  const ran = await user.run(run);
  expect(ran.code, ran.stderr + ran.stdout).toBe(0);
  expect([...store.objects.keys()].sort()).toEqual(['/bucket/out/boat.mp4', '/bucket/out/hello.mp3']);
  const calls = store.calls.length;
  const again = await user.run(run);
  expect(again.code, again.stderr + again.stdout).toBe(0);
  expect(store.calls).toHaveLength(calls);
  expect(existsSync(join(user.cwd, 's3:'))).toBe(false);
});

test('a rerun after kill -9 during the upload of a result costs nothing, saves the complete object, and leaves no other files', async () => {
  const { user, store, video, posts, kept } = await scene(9 * 1024 * 1024);
  const running = user.start(to('s3://bucket/boat.mp4'));
  store.faults.push((request) => {
    if (request.method !== 'PUT' || !(request.url ?? '').includes('partNumber=2')) return false;
    // The store executes the request, but its response is lost.
    running.child.kill('SIGKILL');
    store.faults.shift();
    return false;
  });
  expect((await running.result).code).toBe(137);
  const again = await user.run(to('s3://bucket/boat.mp4'));
  expect(again.code, again.stderr).toBe(0);
  expect([posts(), kept(), store.uploads.size]).toEqual([1, [], 0]);
  const sha256 = createHash('sha256').update(video).digest('hex');
  expect(store.metadata.get('/bucket/boat.mp4')).toEqual({
    'content-type': 'video/mp4',
    'x-amz-meta-sha256': sha256,
  });
  expect(video.equals(store.objects.get('/bucket/boat.mp4') ?? Buffer.alloc(0))).toBe(true);
});
