import { describe, expect } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import { seededRandom } from '../../src/sandbox/media/scene.ts';
import type { CliJson } from '../support/cli.ts';
import { clocked } from './clocked.ts';
import { dialects } from './dialects.ts';
import { reply, type Answer, type Call } from './gateway.ts';
import { fast, it, shown, type Scene } from './scene.ts';

const protocols = ['a', 'b', 'c'] as const;

/** Returns a response with a task in the given state, for any handle. */
const task =
  (bodyOf: (handle: string, call: Call) => unknown): Answer =>
  (call) =>
    reply(call.response, { body: bodyOf(call.gateway.dialect.asked(call), call) });

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

describe.concurrent('"not found" three times after the submission', () => {
  it.for(protocols)('leads to exit 0 (%s)', async (protocol, { open }) => {
    const scene = await open(protocol);
    const { missing } = dialects[protocol];
    scene.gateway.script.query.push(missing, missing, missing);
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(0);
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('"not found" without end', () => {
  it.for(protocols)('leads to exit 9 after 60 s (%s)', async (protocol, { open }) => {
    const scene = await open(protocol);
    scene.gateway.always.query = dialects[protocol].missing;
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
  it.for(protocols)('lead to exit 0 after thirty random errors (%s)', async (protocol, { open }) => {
    const scene = await open(protocol);
    const kinds = Object.values(troubles);
    const random = seededRandom(30);
    const mix = Array.from({ length: 30 }, () => kinds[Math.floor(random() * kinds.length)] ?? {});
    scene.gateway.script.query.push(...mix);
    const { job } = await submitted(scene);
    const { wait, clock } = await clocked(scene);
    const ended = await wait(job, { deadline: deadlineIn(24 * 3_600_000, clock) });
    expect(ended.job.state).toBe('succeeded');
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(1);
  });

  it.for(protocols)('lead to exit 0 after one error of each kind (%s)', async (protocol, { open }) => {
    const scene = await open(protocol);
    scene.gateway.script.query.push(...Object.values(troubles));
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(0);
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a 401 while waiting', () => {
  it.for(protocols)(
    'leads to exit 3, then to exit 0 once the key is valid again (%s)',
    async (protocol, { open }) => {
      const scene = await open(protocol);
      const { running } = dialects[protocol];
      scene.gateway.script.query.push(task(running), {
        status: 401,
        body: { error: { message: 'invalid key' } },
      });
      const run = await scene.submit();
      const error = { code: 'auth', charged: 'yes', retry: 'resume' };
      expect(run.json, shown(run)).toMatchObject({ exit_code: 3, error });
      await scene.expectRerun(0);
      await scene.expectInvariants(1);
    },
  );

  it('leads to exit 3 and the suggestion to check the key, and then to exit 0 with a different key', async ({
    open,
  }) => {
    const scene = await open('c');
    scene.gateway.script.query.push({ status: 401, body: { error: { message: 'invalid key' } } });
    const run = await scene.submit();
    expect(run.json.error.next).toEqual(['mgw', 'auth', 'status']);
    const env = { MGW_API_KEY: 'sk-another-0123456789' };
    const fetched = await scene.here(['video', 'c', 'fetch', '@last', '-o', scene.out, ...fast], { env });
    expect(fetched, JSON.stringify(fetched)).toMatchObject({ exit_code: 0 });
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a task that never finishes', () => {
  it.for(protocols)(
    'leads to exit 8 at the deadline, and the printed command resumes the job (%s)',
    async (protocol, { open }) => {
      const scene = await open(protocol);
      scene.gateway.always.query = task(dialects[protocol].running);
      // On a busy machine, the submission may take longer than the timeout below.
      await scene.here(['--json', ...scene.gateway.dialect.command, '--key', 'boat']);
      const run = await scene.submit('--key', 'boat', '--timeout', '500ms');
      const error = { code: 'pending', charged: 'yes', retry: 'resume' };
      expect(run.json, shown(run)).toMatchObject({ exit_code: 8, error });
      delete scene.gateway.always.query;
      const [mgw, ...next] = run.json.error.next ?? [];
      expect(mgw).toBe('mgw');
      const waited = await scene.seen([...next, ...fast]);
      expect(waited.code, shown(waited)).toBe(0);
      expect((await scene.submit('--key', 'boat')).code).toBe(0);
      expect(scene.gateway.submissions).toHaveLength(1);
      await scene.expectInvariants(1);
    },
  );
});

/**
 * Runs a command whose task ends in an unusual way or never ends. Runs the command twice, because the
 * rerun must not pay again.
 */
async function expectOdd(
  scene: Scene,
  body: (handle: string, call: Call) => unknown,
  code: number,
): Promise<void> {
  scene.gateway.always.query = task(body);
  // Submits first, because on a busy machine the submission may take longer than the timeout below.
  if (code === 8) await scene.here(['--json', ...scene.gateway.dialect.command, '--key', 'boat']);
  const command = scene.command('--key', 'boat', '--timeout', code === 8 ? '500ms' : '5m');
  expect(await scene.here(command)).toMatchObject({ exit_code: code });
  expect(await scene.here(command)).toMatchObject({ exit_code: code });
  await scene.expectInvariants(1);
}

describe.concurrent('a finished operation of Protocol A', () => {
  const samples = {
    generateVideoResponse: { generatedSamples: [{ video: { uri: 'https://example.com/v' } }] },
  };
  const error = { code: 13, message: 'it failed' };
  const cases: [string, object, number][] = [
    ['with an error', { done: true, error }, 5],
    ['with neither error nor response', { done: true }, 9],
    ['with both error and response', { done: true, error, response: samples }, 5],
    ['with no samples', { done: true, response: { generateVideoResponse: { generatedSamples: [] } } }, 5],
    ['with the text "true" as `done`', { done: 'true', response: samples }, 8],
  ];
  it.for(cases)('does not lead to exit 0 if it is reported %s', async ([, body, code], { open }) => {
    const scene = await open('a');
    await expectOdd(scene, (name) => ({ name, ...body }), code);
  });
});

describe.concurrent('a task of Protocol B at FINISH', () => {
  type Body = { Response: { Status: string; AigcVideoTask: Record<string, unknown> } };
  const finished = (handle: string, change: (body: Body) => void): Body => {
    const body = dialects.b.succeeded(handle, 'http://127.0.0.1:9/never') as Body;
    change(body);
    return body;
  };
  const cases: [string, (body: Body) => void, number][] = [
    ['without ErrCode', ({ Response }) => delete Response.AigcVideoTask['ErrCode'], 9],
    ['with an ErrCodeExt', ({ Response }) => (Response.AigcVideoTask['ErrCodeExt'] = 'InternalError'), 5],
    ['with ErrCode 7', ({ Response }) => (Response.AigcVideoTask['ErrCode'] = 7), 5],
    [
      'with PROCESSING as the inner status',
      ({ Response }) => (Response.AigcVideoTask['Status'] = 'PROCESSING'),
      8,
    ],
    ['without a file', ({ Response }) => (Response.AigcVideoTask['Output'] = { FileInfos: [] }), 9],
  ];
  it.for(cases)('does not lead to exit 0 if it is reported %s', async ([, change, code], { open }) => {
    const scene = await open('b');
    await expectOdd(scene, (handle) => finished(handle, change), code);
  });
});

describe.concurrent('status words of Protocol C', () => {
  it('lead to exit 0 if ten of them are unknown before success', async ({ open }) => {
    const scene = await open('c');
    const odd = task((task_id) => ({ task_id, status: 'simmering' }));
    scene.gateway.script.query.push(...Array.from({ length: 10 }, () => odd));
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(0);
    expect(run.stderr).toContain('simmering');
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });

  it('lead to exit 0 if the first of them is "unknown"', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.script.query.push(task((task_id) => ({ task_id, status: 'unknown' })));
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(0);
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a status that reverts after success', () => {
  it.for(protocols)(
    'does not stop the fetch if the result is being fetched (%s)',
    async (protocol, { open }) => {
      const scene = await open(protocol);
      const { running, failed } = dialects[protocol];
      scene.gateway.polls = 0;
      scene.gateway.script.content.push({ status: 410 }, { status: 410 });
      const back = [task(running), task(failed)];
      scene.gateway.script.query.push(
        task((handle, { gateway }) => gateway.shown(handle)),
        ...back,
      );
      const run = await scene.submit('--key', 'boat');
      expect(run.json, shown(run)).toMatchObject({ exit_code: 0, job: { state: 'succeeded' } });
      await scene.expectRerun(0);
      await scene.expectInvariants(1);
    },
  );

  it.for(protocols)(
    'does not undo the success if the result has not been fetched yet (%s)',
    async (protocol, { open }) => {
      const scene = await open(protocol);
      const { running, failed } = dialects[protocol];
      scene.gateway.polls = 0;
      const { job } = await submitted(scene);
      await scene.here(['jobs', 'wait', job.id, ...fast]);
      scene.gateway.script.query.push(task(running), task(failed));
      const json = await scene.here(['video', protocol, 'fetch', job.id, '-o', scene.out, ...fast]);
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 0, job: { state: 'succeeded' } });
      await scene.expectInvariants(1);
    },
  );
});

describe.concurrent('kill -9 four times at random', () => {
  it('is followed by a rerun that exits 0 after one creation', async ({ open }) => {
    const scene = await open('c');
    let left = 1;
    let kill = (): unknown => undefined;
    scene.gateway.always.query = (call) => {
      left -= 1;
      if (left === 0) return kill();
      reply(call.response, { body: dialects.c.running(dialects.c.asked(call)) });
    };
    const random = seededRandom(10);
    for (let times = 0; times < 4; times += 1) {
      const running = scene.start(scene.command());
      kill = () => running.child.kill('SIGKILL');
      expect((await running.result).code).toBe(137);
      left = 1 + Math.floor(random() * 3);
    }
    delete scene.gateway.always.query;
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});
