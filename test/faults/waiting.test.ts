import { describe, expect } from 'vitest';
import { seededRandom } from '../../src/sandbox/media/scene.ts';
import type { CliJson, CliResult } from '../support/cli.ts';
import { clocked } from './clocked.ts';
import { detail, dialects } from './dialects.ts';
import { reply, type Answer, type Call } from './gateway.ts';
import { fast, it, shown, type Scene } from './scene.ts';

/** Returns a response with a task in the given state, for any handle. */
const task =
  (bodyOf: (handle: string, call: Call) => unknown): Answer =>
  (call) =>
    reply(call.response, { body: bodyOf(call.gateway.dialect.queriedHandle(call), call) });

const troubles: Record<string, Answer> = {
  429: { status: 429 },
  500: { status: 500, body: { error: { message: 'internal' } } },
  502: { status: 502, body: '<html>Bad Gateway</html>', headers: { 'content-type': 'text/html' } },
  503: { status: 503 },
  504: { status: 504, body: '' },
  reset: ({ socket }) => socket.resetAndDestroy(),
  HTML: { body: '<html>Please sign in</html>', headers: { 'content-type': 'text/html' } },
};

/** Submits without waiting, and returns the JSON document. */
async function submitted(scene: Scene): Promise<CliJson> {
  const json = await scene.here(scene.gateway.dialect.command);
  expect(json.exit_code).toBe(0);
  return json;
}

/** Submits under a key, and repeats the command. Expects exit 0 from both runs. Returns the first run. */
async function expectSuccess(scene: Scene): Promise<CliResult> {
  const run = await scene.submit('--key', 'boat');
  expect(run.json, shown(run)).toMatchObject({ exit_code: 0, job: { state: 'succeeded' } });
  await scene.expectRerun(0);
  await scene.expectInvariants(1);
  return run;
}

describe.concurrent('"not found" three times after the submission', () => {
  it('leads to exit 0', async ({ open }) => {
    const scene = await open('b');
    const { missing } = dialects.b;
    scene.gateway.script.query.push(missing, missing, missing);
    await expectSuccess(scene);
  });
});

describe.concurrent('"not found" without end', () => {
  it('leads to exit 9 after 60 s', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.always.query = dialects.c.missing;
    const { job } = await submitted(scene);
    const { clock, wait } = await clocked(scene);
    const began = clock.now();
    await expect(wait(job)).rejects.toMatchObject({ exitCode: 9, code: 'not_found', charged: 'yes' });
    expect(clock.now() - began).toBeGreaterThanOrEqual(55_000);
    expect(clock.now() - began).toBeLessThan(120_000);
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('repeated poll errors, then success', () => {
  it('lead to exit 0 after one error of each kind', async ({ open }) => {
    const scene = await open('a');
    scene.gateway.script.query.push(...Object.values(troubles));
    await expectSuccess(scene);
  });
});

describe.concurrent('a 401 while waiting', () => {
  it('leads to exit 3 and the suggestion to check the key, and then to exit 0 with a different key', async ({
    open,
  }) => {
    const scene = await open('c');
    scene.gateway.script.query.push(task(dialects.c.running), {
      status: 401,
      body: { error: { message: 'invalid key' } },
    });
    const run = await scene.submit();
    const error = { code: 'auth', charged: 'yes', retry: 'resume', next: ['mgw', 'auth', 'status'] };
    expect(run.json, shown(run)).toMatchObject({ exit_code: 3, error });
    const env = { MGW_API_KEY: 'sk-another-0123456789' };
    const fetched = await scene.here(['video', 'c', 'fetch', '@last', '-o', scene.out, ...fast], { env });
    expect(fetched, JSON.stringify(fetched)).toMatchObject({ exit_code: 0 });
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a task that never finishes', () => {
  it('leads to exit 8 at the deadline, and the printed command resumes the job', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.always.query = task(dialects.b.running);
    // On a busy machine, the submission may take longer than the timeout below.
    await scene.here([...scene.gateway.dialect.command, '--key', 'boat']);
    const run = await scene.submit('--key', 'boat', '--timeout', '500ms');
    const error = { code: 'pending', charged: 'yes', retry: 'resume' };
    expect(run.json, shown(run)).toMatchObject({ exit_code: 8, error });
    delete scene.gateway.always.query;
    const [mgw, ...next] = run.json.error.next ?? [];
    expect(mgw).toBe('mgw');
    const waited = await scene.seen([...next, ...fast]);
    expect(waited.code, shown(waited)).toBe(0);
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

/** Runs a command whose task ends in an unusual way. Runs the command twice, because the rerun must not pay again. */
async function expectOdd(
  scene: Scene,
  body: (handle: string, call: Call) => unknown,
  code: number,
): Promise<void> {
  scene.gateway.always.query = task(body);
  const command = scene.command('--key', 'boat');
  expect(await scene.here(command)).toMatchObject({ exit_code: code });
  expect(await scene.here(command)).toMatchObject({ exit_code: code });
  await scene.expectInvariants(1);
}

describe.concurrent('a finished operation of Protocol A', () => {
  // test/protocols/a/query.test.ts tests other responses.
  it.for<[string, object, number]>([
    ['with neither error nor response', { done: true }, 9],
    ['with no samples', { done: true, response: { generateVideoResponse: { generatedSamples: [] } } }, 5],
  ])('does not lead to exit 0 if it is reported %s', async ([, body, code], { open }) => {
    const scene = await open('a');
    await expectOdd(scene, (name) => ({ name, ...body }), code);
  });
});

describe.concurrent('a task of Protocol B at FINISH', () => {
  // test/protocols/b/query.test.ts tests other responses.
  it.for<[string, object, number]>([
    ['without ErrCode', { ErrCode: undefined }, 9],
    ['with an ErrCodeExt', { ErrCodeExt: 'InternalError' }, 5],
  ])('does not lead to exit 0 if it is reported %s', async ([, change, code], { open }) => {
    const scene = await open('b');
    const files = { Output: { FileInfos: [{ FileUrl: 'http://127.0.0.1:9/never' }] } };
    await expectOdd(scene, (handle) => detail(handle, 'FINISH', { ...files, ...change }), code);
  });
});

describe.concurrent('status words of Protocol C', () => {
  it('lead to exit 0 if they are unknown before success', async ({ open }) => {
    const scene = await open('c');
    const words = ['unknown', 'simmering', 'simmering', 'unknown'];
    scene.gateway.script.query.push(...words.map((status) => task((task_id) => ({ task_id, status }))));
    expect((await expectSuccess(scene)).stderr).toContain('simmering');
  });
});

describe.concurrent('a status that reverts after success', () => {
  const { running, failed } = dialects.c;
  const back = [task(running), task(failed)];

  it('does not stop the fetch if the result is being fetched', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.polls = 0;
    scene.gateway.script.content.push({ status: 410 }, { status: 410 });
    scene.gateway.script.query.push(
      task((handle, { gateway }) => gateway.shown(handle)),
      ...back,
    );
    await expectSuccess(scene);
  });

  it('does not undo the success if the result has not been fetched yet', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.polls = 0;
    const { job } = await submitted(scene);
    await scene.here(['jobs', 'wait', job.id, ...fast]);
    scene.gateway.script.query.push(...back);
    const json = await scene.here(['video', 'c', 'fetch', job.id, '-o', scene.out, ...fast]);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 0, job: { state: 'succeeded' } });
    await scene.expectInvariants(1);
  });
});

describe.concurrent('kill -9 four times at random', () => {
  it('is followed by a rerun that exits with 0 after one creation', async ({ open }) => {
    const scene = await open('c');
    let remaining = 1;
    let kill = (): unknown => undefined;
    scene.gateway.always.query = (call) => {
      remaining -= 1;
      if (remaining === 0) return kill();
      reply(call.response, { body: dialects.c.running(dialects.c.queriedHandle(call)) });
    };
    const random = seededRandom(10);
    for (let times = 0; times < 4; times += 1) {
      const running = scene.start(scene.command());
      kill = () => running.child.kill('SIGKILL');
      expect((await running.result).code).toBe(137);
      remaining = 1 + Math.floor(random() * 3);
    }
    delete scene.gateway.always.query;
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});
