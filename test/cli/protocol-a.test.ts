import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canaryKey, type CliResult, type User } from '../support/cli.ts';
import { dialects, generated } from '../faults/dialects.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { fakeMp4 } from '../support/film.ts';
import { userHere } from '../support/one-process.ts';
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

  it('numbers the files of several samples', async () => {
    finish = () => generated([0, 1].map((index) => ({ uri: `${gateway.url}/files/${index}` })));
    const run = await user.run([...submit, '--sample-count', '2', '-o', 'clip.mp4', ...fast]);
    expect(run.code, run.stderr).toBe(0);
    expect(run.stdout).toBe(`${join(user.cwd, 'clip-1.mp4')}\n${join(user.cwd, 'clip-2.mp4')}\n`);
    expect([file('clip-1.mp4'), file('clip-2.mp4')]).toEqual(videos.slice(0, 2));
    expect(found()).toEqual(['clip-1.mp4', 'clip-2.mp4']);
    const { job } = (await user.run(['jobs', 'show', '@last', '--json'])).json;
    expect(job.files).toMatchObject([{ sample: 1 }, { sample: 2 }]);
    const requestCount = gateway.seen.length;
    const piped = await user.run(['jobs', 'fetch', '@last', '-o', '-', ...fast]);
    expect(piped.code, piped.stderr).toBe(10);
    expect(piped.stderr).toContain(` -o ${job.id}.mp4`);
    expect(gateway.seen).toHaveLength(requestCount);
  });

  it.each([
    ['an output that exists', ['-o', 'clip.mp4'], 10],
    ['several videos on standard output', ['-o', '-'], 2],
  ])('refuses %s before anything is paid for', async (_, output, code) => {
    writeFileSync(join(user.cwd, 'clip-2.mp4'), 'mine');
    const run = await user.run([...submit, '--sample-count', '2', ...output, ...fast]);
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
      const run = await user.run([...submit, ...parameters, ...image, '-o', 'clip.mp4', ...fast]);
      expect(run.code, run.stderr).toBe(0);
      expect(run.stderr).toContain('Some videos were filtered: a face.');
      expect(run.stderr).toContain('2 videos were requested; the gateway returned 1.');
      expect(file('clip-1.mp4')).toEqual(videos[0]);
      expect(file('clip.mp4').toString()).toBe('mine');
    },
  );
});

describe('with --strict,', () => {
  const missing = '2 videos were requested; the gateway returned 1.';
  beforeEach(() => {
    finish = () => partlyFiltered(gateway);
  });

  it('fewer videos than requested lead to exit 9 each time, and are paid for once', async () => {
    const first = await user.run([...submit, '--sample-count', '2', '-o', 'clip.mp4', '--strict', ...fast]);
    expect(first.code, first.stderr).toBe(9);
    expect(first.stderr.split(missing)).toHaveLength(2);
    const again = await user.run(['jobs', 'fetch', '@last', '-o', 'copy.mp4', '--strict', ...fast]);
    expect([again.code, again.stderr.includes(missing)]).toEqual([9, true]);
    expect(gateway.submissions).toHaveLength(1);
    await user.run([...submit, '--sample-count', '2', '--new', ...fast]);
    const fetched = await user.run(['jobs', 'fetch', '@last', '-o', 'new.mp4', '--strict', ...fast]);
    expect([fetched.code, fetched.stderr.includes(missing)]).toEqual([9, true]);
  });

  it('a batch with fewer videos than requested exits with 11 each time, and pays once', async () => {
    writeFileSync(
      join(user.cwd, 'm.csv'),
      'protocol,model,duration,resolution,audio,sample-count,prompt\na,video-a,8,720p,true,2,a boat\n',
    );
    const output = ['-o', join(user.cwd, '{id}.{ext}')];
    for (const run of ['first', 'second']) {
      const { code, stderr } = await user.run(['batch', 'run', 'm.csv', ...output, '--strict', ...fast]);
      expect([code, stderr.includes(missing)], `${run}: ${stderr}`).toEqual([11, true]);
    }
    expect(gateway.submissions).toHaveLength(1);
  });
});

function partlyFiltered(from: FaultGateway): { parameters: string[]; response?: unknown } {
  const rai = { raiMediaFilteredCount: 1, raiMediaFilteredReasons: ['a face'] };
  return { parameters: ['--sample-count', '2'], ...generated([{ uri: `${from.url}/files/0` }], rai) };
}

const png = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(40, 1)]);

describe('the request', () => {
  it('is not sent if a URL is given as an image, because Protocol A accepts only files', async () => {
    const run = await user.run([...submit, '--image', 'https://example.com/a.png']);
    expect([run.code, gateway.seen]).toEqual([2, []]);
    expect(run.stderr).toContain(
      '--image: https://example.com/a.png is a URL, but only a local file is accepted',
    );
  });

  it("uses the model's configured defaults, unless a flag overrides them", async () => {
    const set = (field: string, value: string): Promise<CliResult> =>
      user.run(['config', 'set', `defaults.video.a.video-a.${field}`, value]);
    for (const [field, value] of [
      ['duration', '6'],
      ['resolution', '1080p'],
      ['audio', 'false'],
    ] as const)
      expect((await set(field, value)).code).toBe(0);
    const run = await user.run([...bare, '--resolution', '720p']);
    expect(run.stderr).not.toContain('Using the model');
    expect(JSON.parse(gateway.submissions[0]?.body ?? '')).toMatchObject({
      parameters: { durationSeconds: 6, resolution: '720p', generateAudio: false },
    });
  });

  it('is printed exactly by --dry-run, and not sent', async () => {
    const run = await user.run([...submit, '--dry-run', '--json']);
    const shown = run.json['request'] as Record<string, unknown>;
    const plain = await user.run([...submit, '--dry-run']);
    expect(gateway.seen).toEqual([]);
    await user.run(submit);
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
    expect((await user.run([...bare, '--dry-run'])).stderr).toContain("Using the model's defaults");
  });
});

describe('media inside the response', () => {
  const good = fakeMp4(30_000);

  it('are written completely to standard output', async () => {
    finish = () => generated([inside(fakeMp4())]);
    const run = await user.run([...submit, '-o', '-', ...fast]);
    expect(Buffer.from(run.stdout)).toEqual(fakeMp4());
  });

  it('are requested again if the connection breaks in the middle of the response', async () => {
    const text = JSON.stringify({ name, done: true, ...generated([inside(good)]) });
    const cut = text.slice(0, text.length / 2);
    gateway.script.query.push(({ response }) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length });
      response.write(cut, () => response.destroy());
    });
    gateway.script.query.push({ body: cut }, { body: text });
    const run = await user.run(save);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(good);
    expect(found()).toEqual(['out.mp4']);
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

  it('are saved even if other samples are invalid, and the command then exits with 9', async () => {
    const address = { uri: `${gateway.url}/files/2` };
    finish = () => generated([inside(good), { encodedVideo: 'A*==' }, address, {}]);
    const run = await user.run(save);
    expect(run.json, run.stderr).toMatchObject({ exit_code: 9, job: { state: 'succeeded' } });
    expect(run.json.error.message).toMatch(
      /^2 of 4 files are saved\. .*Sample 2 of 4 is broken.*Sample 4 of 4/,
    );
    expect(found()).toEqual(['out-1.mp4', 'out-3.mp4']);
    expect([file('out-1.mp4'), file('out-3.mp4')]).toEqual([good, videos[2]]);
    const before = gateway.seen.filter(({ path }) => path === '/files/2').length;
    expect((await user.run(save)).code).toBe(9);
    expect(gateway.seen.filter(({ path }) => path === '/files/2')).toHaveLength(before);
  });
});

describe('the API key of Protocol A', () => {
  const own = `Bearer ${canaryKey}`;

  it('is not sent to another host that responds with 403, and the error (exit 3) suggests how to trust that host', async () => {
    const files = await fileHost('127.0.0.2');
    files.wants = own;
    files.answers.push({ status: 403, body: { error: { message: 'no key' } } });
    finish = () => generated([{ uri: `${files.url}/v.mp4` }]);
    const run = await user.run(save);
    expect(run.json).toMatchObject({
      exit_code: 3,
      error: { code: 'auth', charged: 'yes', retry: 'resume' },
    });
    expect(run.json.error.message).toContain(`--trust-origin ${files.url}`);
    expect(keysIn(files.requests)).toEqual([undefined]);
    const next = run.json.error.next ?? [];
    expect((await user.run([...next.slice(1), ...fast])).code).toBe(0);
    expect(keysIn(files.requests)).toEqual([undefined, own]);
    expect(file('out.mp4')).toEqual(fakeMp4(8000));
    expect(gateway.created).toHaveLength(1);
  });

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
    const run = await user.run(save);
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
