import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canaryKey, type CliResult, type User } from '../support/cli.ts';
import { dialects, generated } from '../faults/dialects.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { fakeMp4 } from '../support/film.ts';
import { inlineVideo, peakMib } from '../support/inline-video.ts';
import { runHereAs, userHere } from '../support/one-process.ts';
import { startFileHost, type FileHost } from '../support/origin.ts';

const bare = ['video', 'a', 'submit', '--model', 'video-a', '--prompt', 'a paper boat'];
const submit = [...bare, '--duration', '8', '--resolution', '720p', '--audio'];
const fast = ['--poll-interval', '10ms'];
const save = [...submit, '-o', 'out.mp4', ...fast, '--json'];
const name = dialects.a.handle(1);
const videos = [fakeMp4(5000), fakeMp4(6000), fakeMp4(7000)];

let gateway: FaultGateway;
/** Returns the members of a finished operation besides `name` and `done`. */
let finish: () => object;
let user: User;
const closers: (() => Promise<void>)[] = [];

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'a' });
  finish = () => generated([{ uri: `${gateway.url}/files/0`, encoding: 'video/mp4' }]);
  gateway.succeeded = (name) => ({ name, done: true, ...finish() });
  gateway.always.content = ({ path, response }) =>
    response.writeHead(200, { 'content-type': 'video/mp4' }).end(videos[Number(path.at(-1))]);
  user = userHere(gateway.url);
  closers.push(() => gateway.close());
});

/** Runs the command in this process. The first test of each kind starts a real process. */
function here(args: string[]): Promise<CliResult> {
  return runHereAs(user, args);
}

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

function file(path: string): Buffer {
  return readFileSync(join(user.cwd, path));
}

/** Returns the user's files, without mgw's state. */
function found(): string[] {
  return readdirSync(user.cwd).filter((entry) => entry !== 'state' && entry !== 'config');
}

async function fileHost(host?: string): Promise<FileHost> {
  const files = await startFileHost(fakeMp4(8000), host);
  closers.push(() => files.close());
  return files;
}

function keysIn(requests: FileHost['requests'] | FaultGateway['seen']): (string | undefined)[] {
  return requests.map(({ headers }) => headers['authorization']);
}

/** Returns a sample with inline media, in strict Base64. `more` adds members to the sample. */
function inside(bytes: Buffer, more: object = {}): object {
  return { encodedVideo: bytes.toString('base64'), encoding: 'video/mp4', ...more };
}

describe('submit -o', () => {
  it('sends the specified request once, and saves the video', async () => {
    const run = await user.run(save);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(videos[0]);
    expect(found()).toEqual(['out.mp4']);
    expect(gateway.created).toHaveLength(1);
    expect(gateway.seen.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /v1/models',
      'POST /v1beta/models/video-a:predictLongRunning',
      `GET /v1beta/${name}`,
      `GET /v1beta/${name}`,
      'GET /files/0',
    ]);
    expect(keysIn(gateway.seen)).toEqual(Array.from({ length: 5 }, () => `Bearer ${canaryKey}`));
    const [post] = gateway.submissions;
    expect(post?.headers['content-type']).toBe('application/json');
    expect(JSON.parse(post?.body ?? '')).toEqual({
      instances: [{ prompt: 'a paper boat' }],
      parameters: { durationSeconds: 8, resolution: '720p', generateAudio: true },
    });
    expect(run.json).toMatchObject({
      ok: true,
      exit_code: 0,
      job: { protocol: 'a', model: 'video-a', handle: name, state: 'succeeded' },
      files: [{ path: join(user.cwd, 'out.mp4'), bytes: videos[0]?.length, mime: 'video/mp4' }],
    });
    expect(run.stdout + run.stderr).not.toContain(canaryKey);
  });

  it('sends every field at the path that the specification defines', async () => {
    writeFileSync(join(user.cwd, 'photo.dat'), png);
    const more = ['--aspect-ratio', '9:16', '--negative-prompt', 'rain', '--sample-count', '1'];
    const rest = ['--person-generation', 'allow_adult', '--seed', '7', '--no-enhance-prompt'];
    await here([...submit, ...more, ...rest, '--image', 'photo.dat']);
    expect(JSON.parse(gateway.submissions[0]?.body ?? '')).toEqual({
      instances: [
        {
          prompt: 'a paper boat',
          image: { bytesBase64Encoded: png.toString('base64'), mimeType: 'image/png' },
        },
      ],
      parameters: {
        durationSeconds: 8,
        resolution: '720p',
        generateAudio: true,
        aspectRatio: '9:16',
        negativePrompt: 'rain',
        sampleCount: 1,
        personGeneration: 'allow_adult',
        seed: 7,
        enhancePrompt: false,
      },
    });
  });

  it('numbers the files of several samples', async () => {
    finish = () => generated([0, 1].map((index) => ({ uri: `${gateway.url}/files/${index}` })));
    const run = await here([...submit, '--sample-count', '2', '-o', 'clip.mp4', ...fast]);
    expect(run.code, run.stderr).toBe(0);
    expect(run.stdout).toBe(`${join(user.cwd, 'clip-1.mp4')}\n${join(user.cwd, 'clip-2.mp4')}\n`);
    expect([file('clip-1.mp4'), file('clip-2.mp4')]).toEqual(videos.slice(0, 2));
    expect(found()).toEqual(['clip-1.mp4', 'clip-2.mp4']);
    const { job } = (await here(['jobs', 'show', '@last', '--json'])).json;
    expect(job.files).toMatchObject([{ sample: 1 }, { sample: 2 }]);
    const requestCount = gateway.seen.length;
    const piped = await here(['jobs', 'fetch', '@last', '-o', '-', ...fast]);
    expect(piped.code, piped.stderr).toBe(10);
    expect(piped.stderr).toContain(` -o ${job.id}.mp4`);
    expect(gateway.seen).toHaveLength(requestCount);
  });

  it.each([
    ['an output that exists', ['-o', 'clip.mp4'], 10],
    ['several videos on standard output', ['-o', '-'], 2],
  ])('refuses %s before anything is paid for', async (_, output, code) => {
    writeFileSync(join(user.cwd, 'clip-2.mp4'), 'mine');
    const run = await here([...submit, '--sample-count', '2', ...output, ...fast]);
    expect(run.code, run.stderr).toBe(code);
    expect(gateway.submissions).toEqual([]);
    expect(file('clip-2.mp4').toString()).toBe('mine');
  });

  it.each([
    ['than were requested', []],
    ['than were requested by a body that is too large for the record', ['--image', 'large.png']],
  ])(
    'uses the output paths that were checked before payment, even if fewer videos arrive %s',
    async (_, image) => {
      const { parameters, ...filtered } = partlyFiltered(gateway);
      finish = () => filtered;
      writeFileSync(join(user.cwd, 'large.png'), Buffer.concat([png, Buffer.alloc(400_000)]));
      writeFileSync(join(user.cwd, 'clip.mp4'), 'mine');
      const run = await here([...submit, ...parameters, ...image, '-o', 'clip.mp4', ...fast]);
      expect(run.code, run.stderr).toBe(0);
      expect(run.stderr).toContain('Some videos were filtered: a face.');
      expect(run.stderr).toContain('2 videos were requested; the gateway returned 1.');
      expect(file('clip-1.mp4')).toEqual(videos[0]);
      expect(file('clip.mp4').toString()).toBe('mine');
    },
  );

  it('does not fetch existing files again, and leaves no temporary files', async () => {
    await here([...save, '--key', 'boat']);
    const before = gateway.seen.filter(({ path }) => path !== '/v1/models');
    const again = await here([...save, '--key', 'boat']);
    expect(again.code, again.stderr).toBe(0);
    expect(gateway.seen.filter(({ path }) => path !== '/v1/models')).toEqual(before);
  });
});

function partlyFiltered(from: FaultGateway): { parameters: string[]; response?: unknown } {
  const rai = { raiMediaFilteredCount: 1, raiMediaFilteredReasons: ['a face'] };
  return { parameters: ['--sample-count', '2'], ...generated([{ uri: `${from.url}/files/0` }], rai) };
}

const png = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(40, 1)]);
const jpeg = Buffer.concat([Buffer.from('ffd8ffe000104a46', 'hex'), Buffer.alloc(40, 1)]);

describe('fetch', () => {
  it('imports an operation that was started elsewhere, by its full name', async () => {
    await user.run(submit);
    const other = userHere(gateway.url);
    const run = await other.run(['video', 'a', 'fetch', name, '-o', 'out.mp4', ...fast]);
    expect(run.code, run.stderr).toBe(0);
    expect(readFileSync(join(other.cwd, 'out.mp4'))).toEqual(videos[0]);
    expect(gateway.created).toHaveLength(1);
  });

  it('exits 9 for an operation unknown to the gateway, and sends no POST', async () => {
    const run = await here(['video', 'a', 'fetch', 'models/video-a/operations/none', '--json']);
    expect(run.json).toMatchObject({ exit_code: 9, error: { code: 'not_found', retry: 'never' } });
    expect(gateway.submissions).toEqual([]);
  });
});

describe('the request', () => {
  it.each([
    ['image/png', png],
    ['image/jpeg', jpeg],
  ])(
    'gives an image the MIME type %s according to its bytes, regardless of its file name',
    async (mimeType, bytes) => {
      writeFileSync(join(user.cwd, 'picture.gif'), bytes);
      const run = await user.run([...submit, '--image', 'picture.gif']);
      expect(run.code, run.stderr).toBe(0);
      const { instances } = JSON.parse(gateway.submissions[0]?.body ?? '') as {
        instances: { image: unknown }[];
      };
      expect(instances[0]?.image).toEqual({ bytesBase64Encoded: bytes.toString('base64'), mimeType });
    },
  );

  it('is not sent if a URL is given as an image, because Protocol A accepts only files', async () => {
    const run = await here([...submit, '--image', 'https://example.com/a.png']);
    expect([run.code, gateway.seen]).toEqual([2, []]);
    expect(run.stderr).toContain(
      '--image: https://example.com/a.png is a URL, but only a local file is accepted',
    );
  });

  it.each([
    ['a text file', Buffer.from('no image'), 'an image'],
    ['an empty file', Buffer.alloc(0), 'an image'],
  ])(
    'is not sent if %s is given as an image, and the error contains the file name',
    async (_, bytes, words) => {
      writeFileSync(join(user.cwd, 'x.png'), bytes);
      const run = await here([...submit, '--image', 'x.png']);
      expect(run.code).toBe(2);
      expect(run.stderr).toMatch(new RegExp(`--image.*${words}`));
      expect(gateway.seen).toEqual([]);
    },
  );

  it("is sent with a note on stderr that lists the fields for which the model's defaults are used", async () => {
    const run = await here([...bare, '--no-audio']);
    expect(run.stderr).toMatch(
      /^Using the model's defaults.*: --duration, --resolution\. .*: mgw config set defaults\.video\.a\.video-a\.duration VALUE$/m,
    );
    expect(run.stdout).toMatch(/^job_\w+\n$/);
  });

  it("uses the model's configured defaults, unless a flag overrides them", async () => {
    const set = (field: string, value: string): Promise<CliResult> =>
      here(['config', 'set', `defaults.video.a.video-a.${field}`, value]);
    for (const [field, value] of [
      ['duration', '6'],
      ['resolution', '1080p'],
      ['audio', 'false'],
    ] as const)
      expect((await set(field, value)).code).toBe(0);
    const run = await here([...bare, '--resolution', '720p']);
    expect(run.stderr).not.toContain('Using the model');
    expect(JSON.parse(gateway.submissions[0]?.body ?? '')).toMatchObject({
      parameters: { durationSeconds: 6, resolution: '720p', generateAudio: false },
    });
  });

  it('is printed exactly by --dry-run, and not sent', async () => {
    const run = await here([...submit, '--dry-run', '--json']);
    const shown = run.json['request'] as Record<string, unknown>;
    const plain = await here([...submit, '--dry-run']);
    expect(gateway.seen).toEqual([]);
    await here(submit);
    const [post] = gateway.submissions;
    expect(shown).toMatchObject({
      method: 'POST',
      url: `${gateway.url}${post?.path ?? ''}`,
      headers: { 'content-type': 'application/json', Authorization: 'Bearer [redacted]' },
      body: JSON.parse(post?.body ?? '') as unknown,
    });
    expect(plain.stdout).toContain(`POST ${gateway.url}/v1beta/models/video-a:predictLongRunning\n`);
    expect(run.stdout + plain.stdout).not.toContain(canaryKey);
    expect(run.stderr + plain.stderr).toBe('');
    expect((await here([...bare, '--dry-run'])).stderr).toContain("Using the model's defaults");
  });
});

describe('a finished operation', () => {
  it.each<[string, object, string]>([
    ['neither error nor response', {}, 'neither an error nor a response'],
    ['an empty sample', generated([{}]), 'neither content nor a'],
  ])('is not treated as a success by any command if it contains %s', async (_, end, words) => {
    finish = () => end;
    const run = await here(save);
    expect(run.json, run.stderr).toMatchObject({ exit_code: 9, error: { code: 'result_unavailable' } });
    expect(run.json.error.message).toContain(words);
    expect(run.json.error.next).toEqual(['mgw', 'jobs', 'show', run.json.job.id]);
    expect(found()).toEqual([]);
    expect((await here(['jobs', 'wait', '@last', ...fast])).code).toBe(9);
    expect((await here(['video', 'a', 'status', '@last'])).code).toBe(9);
    expect(gateway.created).toHaveLength(1);
  });

  it('succeeds with a note if some of its samples are filtered, even if mgw saves no file', async () => {
    finish = () => partlyFiltered(gateway);
    const run = await here([...submit, '--wait', ...fast]);
    expect(run.code).toBe(0);
    expect(run.stderr).toContain('Some videos were filtered: a face.');
  });
});

describe('media inside the response', () => {
  const good = fakeMp4(30_000);

  it('are saved to a file, without leftover files next to it', async () => {
    finish = () => generated([inside(good)]);
    const run = await user.run(save);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(good);
    expect(run.json.files).toMatchObject([{ bytes: good.length, mime: 'video/mp4' }]);
    expect(found()).toEqual(['out.mp4']);
  });

  it('are written completely to standard output', async () => {
    finish = () => generated([inside(fakeMp4())]);
    const run = await here([...submit, '-o', '-', ...fast]);
    expect(Buffer.from(run.stdout)).toEqual(fakeMp4());
  });

  it('can be fetched later after a damaged response', async () => {
    finish = () => generated([{ encodedVideo: 'A*==' }]);
    expect((await here(save)).code).toBe(9);
    finish = () => generated([inside(good)]);
    expect((await here(save)).code).toBe(0);
    expect(gateway.created).toHaveLength(1);
  });

  it('are requested again if the connection breaks in the middle of the response', async () => {
    const text = JSON.stringify({ name, done: true, ...generated([inside(good)]) });
    const cut = text.slice(0, text.length / 2);
    gateway.script.query.push(({ response }) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length });
      response.write(cut, () => response.destroy());
    });
    gateway.script.query.push({ body: cut }, { body: text });
    const run = await here(save);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(good);
    expect(found()).toEqual(['out.mp4']);
  });

  it('are requested again if the response stalls', async () => {
    const text = JSON.stringify({ name, done: true, ...generated([inside(good)]) });
    gateway.script.query.push(({ response }) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length });
      response.write(text.slice(0, -20_000));
    });
    gateway.script.query.push({ body: text });
    const run = await here([...save, '--request-timeout', '300ms']);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(good);
  });

  it('are saved as one file, without leftovers, if two processes fetch one job', async () => {
    await user.run([...submit, '--key', 'boat']);
    gateway.polls = 0;
    finish = () => generated([inside(good)]);
    const fetch = ['video', 'a', 'fetch', '@boat', '-o', 'out.mp4', ...fast];
    const runs = await Promise.all([user.run(fetch), user.run(fetch), user.run(fetch)]);
    expect(runs.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(file('out.mp4')).toEqual(good);
    expect(found()).toEqual(['out.mp4']);
  });

  it('are not saved if the output folder is missing (exit 10), and are saved by a rerun once the folder exists again', async () => {
    mkdirSync(join(user.cwd, 'sub'));
    finish = () => {
      rmSync(join(user.cwd, 'sub'), { recursive: true, force: true });
      return generated([inside(good)]);
    };
    const command = [...submit, '-o', 'sub/out.mp4', ...fast, '--json'];
    const run = await here(command);
    expect(run.json).toMatchObject({
      exit_code: 10,
      error: { code: 'local_io', charged: 'yes', retry: 'resume' },
    });
    mkdirSync(join(user.cwd, 'sub'));
    finish = () => generated([inside(good)]);
    expect((await here(command)).code).toBe(0);
    expect(file('sub/out.mp4')).toEqual(good);
    expect(gateway.created).toHaveLength(1);
  });

  it('are saved even if other samples are invalid, and the command then exits 9', async () => {
    const address = { uri: `${gateway.url}/files/2` };
    finish = () => generated([inside(good), { encodedVideo: 'A*==' }, address, {}]);
    const run = await here(save);
    expect(run.json, run.stderr).toMatchObject({ exit_code: 9, job: { state: 'succeeded' } });
    expect(run.json.error.message).toMatch(
      /^2 of 4 files are saved\. .*Sample 2 of 4 is broken.*Sample 4 of 4/,
    );
    expect(found()).toEqual(['out-1.mp4', 'out-3.mp4']);
    expect([file('out-1.mp4'), file('out-3.mp4')]).toEqual([good, videos[2]]);
    const before = gateway.seen.filter(({ path }) => path === '/files/2').length;
    expect((await here(save)).code).toBe(9);
    expect(gateway.seen.filter(({ path }) => path === '/files/2')).toHaveLength(before);
  });

  it('are replaced by the file at the URL if the Base64 is invalid', async () => {
    finish = () => generated([{ encodedVideo: 'A*==', uri: `${gateway.url}/files/1` }]);
    expect((await here(save)).code).toBe(0);
    expect(file('out.mp4')).toEqual(videos[1]);
  });

  it.runIf(process.platform === 'linux')('use no more memory at 64 MiB than any other response', async () => {
    const video = inlineVideo(64 * 1024 * 1024);
    gateway.script.query.push(({ response }) => void video.send(response, name));
    const running = user.start(save);
    const [run, peak] = await Promise.all([running.result, peakMib(running.child)]);
    expect(run.code, run.stderr).toBe(0);
    expect(run.json.files[0]?.sha256).toBe(video.sha256);
    expect(createHash('sha256').update(file('out.mp4')).digest('hex')).toBe(video.sha256);
    expect(peak).toBeGreaterThan(20);
    expect(peak).toBeLessThan(150);
  });
});

describe('the API key of Protocol A', () => {
  const own = `Bearer ${canaryKey}`;

  it('is sent to another origin on the same host', async () => {
    const files = await fileHost('127.0.0.1');
    files.wants = own;
    finish = () => generated([{ uri: `${files.url}/v.mp4?alt=media&x=%20y` }]);
    expect((await user.run(save)).code).toBe(0);
    expect(keysIn(files.requests)).toEqual([own]);
    expect(files.requests[0]?.path).toBe('/v.mp4?alt=media&x=%20y');
  });

  it.each([401, 403])(
    'is not sent to another host that responds with %i, and the error (exit 3) suggests how to trust that host',
    async (status) => {
      const files = await fileHost('127.0.0.2');
      files.wants = own;
      if (status === 403) files.answers.push({ status, body: { error: { message: 'no key' } } });
      finish = () => generated([{ uri: `${files.url}/v.mp4` }]);
      const run = await here(save);
      expect(run.json).toMatchObject({
        exit_code: 3,
        error: { code: 'auth', charged: 'yes', retry: 'resume' },
      });
      expect(run.json.error.message).toContain(`--trust-origin ${files.url}`);
      expect(keysIn(files.requests)).toEqual([undefined]);
      const next = run.json.error.next ?? [];
      expect((await here([...next.slice(1), ...fast])).code).toBe(0);
      expect(keysIn(files.requests)).toEqual([undefined, own]);
      expect(file('out.mp4')).toEqual(fakeMp4(8000));
      expect(gateway.created).toHaveLength(1);
    },
  );

  it('is sent only to permitted origins at each redirect', async () => {
    const [near, far] = [await fileHost('127.0.0.1'), await fileHost('127.0.0.2')];
    const hop = (to: string): { status: number; headers: Record<string, string> } => ({
      status: 302,
      headers: { location: to },
    });
    near.answers.push(hop(`${far.url}/b`));
    far.answers.push(hop(`${near.url}/c`));
    near.answers.push(hop(`${far.url}/d?sign=1`));
    finish = () => generated([{ uri: `${near.url}/a` }]);
    const run = await here(save);
    expect(run.code, run.stderr).toBe(0);
    expect(keysIn(near.requests)).toEqual([own, own]);
    expect(keysIn(far.requests)).toEqual([undefined, undefined]);
    expect(near.requests.concat(far.requests).map(({ path }) => path)).toEqual([
      '/a',
      '/c',
      '/b',
      '/d?sign=1',
    ]);
  });
});
