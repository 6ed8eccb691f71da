import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { film } from '../support/film.ts';
import { head, serve, type Served } from '../support/raw-server.ts';
import { clocked } from './clocked.ts';
import { canMount } from './disk.ts';
import { reply, type Answer } from './gateway.ts';
import { preloaded } from './preloads.ts';
import { fast, it, shown, type Scene } from './scene.ts';
import { until } from './until.ts';

/** Returns a response that serves the result with the given changes. */
const as =
  (change: Partial<Served>): Answer =>
  (call) => {
    call.gateway.sent += serve(call, call.socket, { ...call.gateway.served, ...change });
  };

/** Returns a response that is sent as raw bytes before the connection closes. */
const raw =
  (status: string, headers: Record<string, string | number>, body: Buffer | string = ''): Answer =>
  ({ socket }) => {
    socket.write(head(status, headers));
    socket.end(body);
  };

function saved(scene: Scene): Buffer {
  return readFileSync(scene.out);
}

/** Expects the given exit code, a job that has succeeded, and no published result. */
async function expectUnpublished(scene: Scene, code: number, ...flags: string[]): Promise<void> {
  const command = scene.command('--key', 'boat', ...flags);
  for (let runs = 0; runs < 2; runs += 1) {
    const json = await scene.here(command);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: code, job: { state: 'succeeded' } });
    expect(json.error).toMatchObject({ charged: 'yes', retry: code === 9 ? json.error.retry : 'resume' });
    expect(existsSync(scene.out)).toBe(false);
  }
  await scene.expectInvariants(1);
}

/** Submits, saves, and repeats the command. Expects exit 0 and the same file from both runs. */
async function expectSaved(scene: Scene, ...flags: string[]): Promise<void> {
  const run = await scene.submit('--key', 'boat', ...flags);
  expect(run.code, shown(run)).toBe(0);
  expect(saved(scene).equals(scene.gateway.served.content)).toBe(true);
  await scene.expectRerun(0);
  await scene.expectInvariants(1);
}

describe.concurrent('a connection that breaks at every sixteenth of the file', () => {
  it('does not damage the file, and less than a tenth of the file is sent twice', async ({ open }) => {
    const video = film(160_000);
    const scene = await open('c', { video });
    const cuts = Array.from({ length: 15 }, (_, index) => (video.length * (index + 1)) / 16);
    scene.gateway.script.content.push(...cuts.map((cutAt) => as({ cutAt })));
    await expectSaved(scene);
    expect(scene.gateway.sent).toBeLessThan(1.1 * video.length);
  });
});

describe.concurrent('a range response that does not continue the file', () => {
  // test/http/download/resume.test.ts tests other invalid responses.
  const video = film(40_000);
  const half = as({ cutAt: 20_000 });
  const content = film(30_000);
  const cases: [string, (scene: Scene) => void][] = [
    [
      'an ETag that changes between the attempts',
      ({ gateway }) => {
        gateway.served = { content, etag: '"two"' };
        gateway.script.content.push(as({ content: video, etag: '"one"', cutAt: 20_000 }));
      },
    ],
    [
      'a 206 with a wrong start',
      ({ gateway }) => {
        const range = { etag: '"one"', 'content-range': 'bytes 100-199/40000', 'content-length': 100 };
        gateway.script.content.push(half, raw('206 Partial Content', range, content.subarray(0, 100)));
      },
    ],
  ];
  it.for(cases)(
    'does not damage the file, and two responses are never mixed (%s)',
    async ([, arrange], { open }) => {
      const scene = await open('c', { video });
      arrange(scene);
      await expectSaved(scene);
    },
  );
});

describe.concurrent('a wrong Content-Length', () => {
  it('leads to exit 9 after retries, and nothing is published', async ({ open }) => {
    const video = film(5000);
    const scene = await open('c', { video });
    scene.gateway.always.content = raw('200 OK', { 'content-length': 6000 }, video);
    await expectUnpublished(scene, 9, '--retries', '1');
    expect(scene.gateway.seen.filter(({ step }) => step === 'content').length).toBeGreaterThanOrEqual(4);
  });
});

describe.concurrent('other content in place of the file', () => {
  it('leads to exit 9, and nothing is published', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.always.content = {
      body: '<!doctype html><p>Please sign in',
      headers: { 'content-type': 'video/mp4' },
    };
    await expectUnpublished(scene, 9);
  });
});

describe.concurrent('an expired URL', () => {
  it('leads to a request for a new URL and to exit 0 if it occurs in one response', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.script.content.push({ status: 403, body: '<Error>Request has expired</Error>' });
    await expectSaved(scene);
    const paths = scene.gateway.seen.filter(({ step }) => step === 'content').map(({ path }) => path);
    expect(new Set(paths).size).toBe(2);
  });

  it('leads to exit 9 if it occurs in every response, and the job remains succeeded', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.always.content = { status: 410, body: 'gone' };
    await expectUnpublished(scene, 9);
    delete scene.gateway.always.content;
    expect((await scene.submit('--key', 'boat')).code).toBe(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a redirected result', () => {
  it('is requested without the key if it is at another site', async ({ open }) => {
    const scene = await open('c');
    const stranger = await scene.stranger((_, response) => {
      response.writeHead(200, { 'content-type': 'video/mp4' }).end(scene.gateway.served.content);
    });
    scene.gateway.script.content.push({ status: 302, headers: { location: `${stranger.origin}/film` } });
    await expectSaved(scene);
    expect(stranger.connections.length).toBeGreaterThan(0);
  });
});

describe.concurrent('the uri of Protocol A', () => {
  const at = (scene: Scene, origin: string): void => {
    scene.gateway.polls = 0;
    scene.gateway.always.query = (call) =>
      reply(call.response, {
        body: scene.gateway.dialect.succeeded(scene.gateway.dialect.queriedHandle(call), `${origin}/film`),
      });
  };

  it('receives the key if it is at another origin of the same site', async ({ open }) => {
    const scene = await open('a');
    const keys: unknown[] = [];
    const own = await scene.server('127.0.0.1', (request, response) => {
      keys.push(request.headers.authorization);
      response.writeHead(200, { 'content-type': 'video/mp4' }).end(scene.gateway.served.content);
    });
    at(scene, own.origin);
    await expectSaved(scene);
    expect(keys[0]).toMatch(/^Bearer sk-/);
  });

  it('makes mgw exit with 3 if it is at another site that responds with 401, and the error suggests how to trust that site', async ({
    open,
  }) => {
    const scene = await open('a');
    const stranger = await scene.stranger((_, response) => response.writeHead(401).end());
    at(scene, stranger.origin);
    const run = await scene.submit();
    expect(run.json, shown(run)).toMatchObject({
      exit_code: 3,
      job: { state: 'succeeded' },
      error: { charged: 'yes' },
    });
    expect(run.json.error.message).toContain(`--trust-origin ${stranger.origin}`);
    await scene.expectRerun(3);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('the file host of Protocol B', () => {
  it('receives no key in any header', async ({ open }) => {
    const scene = await open('b');
    await expectSaved(scene);
    const { host } = new URL(scene.gateway.filesUrl);
    const there = scene.gateway.seen.filter(({ headers }) => headers['host'] === host);
    expect(there.length).toBeGreaterThan(0);
    for (const { headers } of there) expect(Object.keys(headers)).not.toContain('authorization');
  });
});

describe.concurrent('a slow download', () => {
  it('is aborted after the idle timeout if it stalls, and is then resumed', async ({ open }) => {
    const video = film(40_000);
    const scene = await open('c', { video });
    const { clock, save } = await clocked(scene, 50_000);
    let receivedBytes = 0;
    scene.gateway.script.content.push(async (call) => {
      const { etag = '' } = scene.gateway.served;
      call.socket.write(
        head('200 OK', { 'content-type': 'video/mp4', 'content-length': video.length, etag }),
      );
      call.socket.write(video.subarray(0, 20_000));
      await until(() => existsSync(`${scene.out}.part`) && readFileSync(`${scene.out}.part`).length >= 16);
      const before = clock.now();
      await until(() => (clock.advance(1000), clock.now() - before >= 61_000));
    });
    const { job } = await scene.here(scene.gateway.dialect.command);
    await save(job, (bytes) => (receivedBytes = bytes));
    expect(receivedBytes).toBe(video.length);
    expect(saved(scene).equals(video)).toBe(true);
    expect(scene.gateway.seen.filter(({ step }) => step === 'content')).toHaveLength(2);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('kill -9 during the download', () => {
  // `npm run storm -- --power-cut` tries every disk operation.
  it('leaves the output absent, and the rerun exits with 0', async ({ open }) => {
    const video = film(400_000);
    const scene = await open('c', { video });
    const running = scene.start(scene.command());
    scene.gateway.script.content.push((call) => {
      const { content, etag = '' } = scene.gateway.served;
      call.socket.write(
        head('200 OK', { 'content-type': 'video/mp4', 'content-length': content.length, etag }),
      );
      call.socket.write(content.subarray(0, content.length / 2), () => running.child.kill('SIGKILL'));
    });
    expect((await running.result).code).toBe(137);
    expect(existsSync(scene.out)).toBe(false);
    await scene.expectRerun(0);
    expect(saved(scene).equals(video)).toBe(true);
    expect(readdirSync(scene.user.cwd).filter((name) => name.includes('.part'))).toEqual([]);
    await scene.expectInvariants(1);
  });
});

describe.skipIf(!canMount)('a disk that fills up during the download', { concurrent: true }, () => {
  it('leads to exit 10, the .part file is kept, and a rerun exits with 0 once space is available', async ({
    open,
  }) => {
    const video = film(600_000);
    const scene = await open('c', { video });
    const disk = scene.mount('films', 256);
    const out = join(scene.user.cwd, 'films', 'out.mp4');
    scene.outputs.push(out);
    const json = await scene.here([...scene.gateway.dialect.command, '-o', out, ...fast]);
    const error = { code: 'local_io', charged: 'yes', retry: 'resume' };
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 10, job: { state: 'succeeded' }, error });
    expect(existsSync(`${out}.part`)).toBe(true);
    disk.resize(4096);
    await scene.expectRerun(0);
    expect(readFileSync(out).equals(video)).toBe(true);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('an output that is not writable', () => {
  // test/security/files.test.ts tests links and FIFOs.
  it('leads to exit 10 before payment and remains unchanged if it exists', async ({ open }) => {
    const scene = await open('c');
    writeFileSync(scene.out, 'mine');
    const run = await scene.submit();
    expect(run.json).toMatchObject({ exit_code: 10, error: { code: 'output_exists', charged: 'no' } });
    await scene.expectRerun(10);
    expect(scene.gateway.seen).toEqual([]);
    await scene.expectInvariants(0, [Buffer.from('mine')]);
  });
});

describe.concurrent('two processes that fetch one job', () => {
  it('both exit 0 with one file', async ({ open }) => {
    const scene = await open('c', { video: film(400_000) });
    const { job } = await scene.here(scene.gateway.dialect.command);
    const command = ['video', 'c', 'fetch', job.id, '-o', scene.out, ...fast, '--json'];
    const runs = await Promise.all([scene.run(command), scene.run(command)]);
    for (const run of runs) expect(run.code, shown(run)).toBe(0);
    expect(saved(scene).equals(scene.gateway.served.content)).toBe(true);
    expect(scene.gateway.seen.filter(({ step }) => step === 'content')).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a video inside the response of Protocol A', () => {
  const inline = (scene: Scene, encoded: string): void => {
    scene.gateway.always.query = (call) => {
      const name = JSON.stringify(scene.gateway.dialect.queriedHandle(call));
      const sample = `{"video":{"encodedVideo":"${encoded}","encoding":"video/mp4"}}`;
      const body = `{"name":${name},"done":true,"response":{"generateVideoResponse":{"generatedSamples":[${sample}]}}}`;
      reply(call.response, { body });
    };
  };
  const video = film(3000);
  const encoded = video.toString('base64');

  it('is not saved if its Base64 is invalid, and the command exits with 9', async ({ open }) => {
    const scene = await open('a', { video });
    inline(scene, `${encoded.slice(0, 100)}*${encoded.slice(101)}`);
    await expectUnpublished(scene, 9);
  });

  it('is saved without changes if its string contains escapes', async ({ open }) => {
    const scene = await open('a', { video });
    inline(scene, encoded.replaceAll('/', '\\/').replaceAll('=', '\\u003d'));
    await expectSaved(scene);
  });

  it('is saved without changes in bounded memory if it is large', async ({ open }) => {
    // Even an idle process with this text in memory would exceed the limit below.
    const pieces = 16;
    const piece = Buffer.alloc(3 * 1024 * 1024, 'frame');
    const encodedPiece = piece.toString('base64');
    const scene = await open('a', { video: Buffer.concat(Array.from({ length: pieces }, () => piece)) });
    scene.gateway.script.query.push(async ({ gateway, response, path }) => {
      const name = gateway.dialect.queriedHandle({ path, body: '' });
      const operation = JSON.stringify({ name, done: true, response: { generateVideoResponse: {} } });
      response.write(`${operation.slice(0, -3)}"generatedSamples":[{"video":{"encodedVideo":"`);
      for (let count = 0; count < pieces; count += 1)
        await new Promise((resolve) => response.write(encodedPiece, resolve));
      response.end('"}}]}}}');
    });
    const peak = join(scene.user.cwd, 'peak');
    const env = preloaded('peak-memory', { MGW_TEST_PEAK: peak });
    const run = await scene.run(scene.command('--key', 'boat'), { env });
    expect(run.code, shown(run)).toBe(0);
    expect(scene.gateway.seen.filter(({ step }) => step === 'content')).toEqual([]);
    expect(Number(readFileSync(peak, 'utf8')), 'kilobytes').toBeLessThan(120_000);
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('URLs of Protocol B that are not fetched', () => {
  // test/http/trust.test.ts tests other addresses.
  it('lead to exit 9 without a request', async ({ open }) => {
    const scene = await open('b');
    const stranger = await scene.stranger((_, response) => response.end(), '127.0.0.1');
    const address = `http://[::ffff:127.0.0.1]:${stranger.port}/film`;
    scene.gateway.always.query = (call) =>
      reply(call.response, {
        body: scene.gateway.dialect.succeeded(scene.gateway.dialect.queriedHandle(call), address),
      });
    await expectUnpublished(scene, 9);
    expect(stranger.connections).toHaveLength(0);
  });
});
