import { hurry } from '../support/one-process.ts';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { canaryKey, type CliJson } from '../support/cli.ts';
import { tcpServer } from '../support/servers.ts';
import { resetsUnread } from './blackhole.ts';
import type { Answer, Call } from './gateway.ts';
import { preloaded } from './preloads.ts';
import { it, shown, type Scene } from './scene.ts';

const unknown = { exit_code: 7, error: { code: 'submit_unknown', charged: 'maybe', retry: 'never' } };

/** Creates a task, and sends a response that does not report the task. */
const created =
  (answer: Exclude<Answer, (call: Call) => unknown>): Answer =>
  ({ gateway, response }) => {
    gateway.create();
    const { status = 200, body = '', headers = {} } = answer;
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
  };

/** Creates a task, and sends a truncated response. */
const cutAfter =
  (textOf: (whole: string, handle: string) => string, status = '200 OK'): Answer =>
  ({ gateway, socket }) => {
    const whole = gateway.accept();
    const text = textOf(whole, gateway.created.at(-1) ?? '');
    socket.end(`HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: 4096\r\n\r\n${text}`);
  };

/** Submits twice. Expects exit 7 from both runs, and one submission. Returns the document of the first run. */
async function expectUnknown(scene: Scene, ...flags: string[]): Promise<CliJson> {
  const { json } = await scene.submit(...flags);
  expect(json).toMatchObject(unknown);
  await scene.expectRerun(7);
  expect(scene.gateway.submissions).toHaveLength(1);
  await scene.expectInvariants(1);
  return json;
}

/** Submits under a key, and repeats the command. Expects exit 0 from both runs, and one creation. Returns the job. */
async function expectAccepted(scene: Scene): Promise<CliJson['job']> {
  const run = await scene.submit('--key', 'boat');
  expect(run.code, shown(run)).toBe(0);
  await scene.expectRerun(0);
  await scene.expectInvariants(1);
  return run.json.job;
}

/** Returns the content of all record files in the ledger. */
function records({ user }: Scene): string {
  const folder = join(user.cwd, 'state', 'jobs');
  return readdirSync(folder)
    .map((name) => readFileSync(join(folder, name), 'utf8'))
    .join('');
}

// These tests do not run concurrently, because the first test to end would close the other test's servers.
describe('a connection reset before the request is read', () => {
  it('leads to exit 7, and the rerun sends nothing', async ({ open }) => {
    const scene = await open('c');
    const server = await resetsUnread('127.0.0.5');
    scene.onEnd(() => server.stop());
    const run = await scene.submit('--base-url', server.url);
    expect(run.json).toMatchObject(unknown);
    await scene.expectRerun(7);
    expect(server.connections()).toBe(1);
    await scene.expectInvariants(0);
  });

  it('leads to exit 7 each time, even if the system reports a failed connect', async ({ open }) => {
    const scene = await open('c');
    const server = await tcpServer((socket) => socket.resetAndDestroy());
    const here = scene.command('--base-url', `http://127.0.0.1:${server.port}`, '--new', '--retries', '1');
    for (let take = 1; take <= 6; take++) {
      expect(await scene.here(here)).toMatchObject(unknown);
      expect(server.connections).toBe(take);
    }
    await scene.expectInvariants(0);
  });
});

describe.concurrent('a connection reset while the request is handled', () => {
  it('leads to exit 7 after half of the body, and so does the rerun', async ({ open }) => {
    const scene = await open('c');
    let read = 0;
    scene.gateway.onTcp.push((socket) => {
      socket.on('data', (bytes) => {
        read += bytes.length;
        if (read > 50_000) socket.resetAndDestroy();
      });
      return true;
    });
    const long = '\u{1f6a2}'.repeat(29_000);
    const words = scene.command().map((word) => (word === 'a paper boat' ? long : word));
    expect(await scene.here(words)).toMatchObject(unknown);
    await scene.expectRerun(7);
    await scene.expectInvariants(0);
  });

  it('leads to exit 7 after the creation, until the handle is adopted', async ({ open }) => {
    const scene = await open('a');
    scene.gateway.script.submit.push(({ gateway, socket }) => {
      gateway.create();
      socket.resetAndDestroy();
    });
    const run = await scene.submit();
    expect(run.json).toMatchObject(unknown);
    await scene.expectRerun(7);
    await scene.expectInvariants(1);
    const [handle = ''] = scene.gateway.created;
    await scene.here(['jobs', 'resolve', run.json.job.id, '--adopt', handle]);
    const resumed = await scene.submit();
    expect(resumed.code, shown(resumed)).toBe(0);
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('no response after the task was created', () => {
  it('leads to exit 7 at the request timeout', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push(({ gateway }) => void gateway.create());
    const run = await scene.submit('--request-timeout', '1s');
    expect(run.json).toMatchObject(unknown);
    expect(run.json.error.message).toContain('within 1 s');
    await scene.expectRerun(7);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a slow response within the timeout', () => {
  it('is accepted', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.script.submit.push(async ({ gateway, response }) => {
      const text = gateway.accept();
      response.writeHead(200, { 'content-type': 'application/json' });
      for (const character of text) await new Promise((resolve) => response.write(character, resolve));
      response.end();
    });
    await expectAccepted(scene);
  });
});

describe.concurrent('a 200 without a handle', () => {
  const answers: [string, Answer][] = [
    [
      'truncated before the handle',
      cutAfter((whole, handle) => `${whole.slice(0, whole.indexOf(handle) + 5)}<marker>`),
    ],
    ['HTML', created({ body: '<html><marker></html>', headers: { 'content-type': 'text/html' } })],
  ];
  it.for(answers)('leads to exit 7, and the raw response is recorded (%s)', async ([, answer], { open }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push(answer);
    await expectUnknown(scene);
    expect(records(scene)).toContain('"type":"reply"');
    expect(records(scene)).toContain('<marker>');
  });
});

describe.concurrent("a 200 truncated right after the handle's closing quote", () => {
  it('is accepted', async ({ open }) => {
    const scene = await open('c');
    const answer = cutAfter((whole, handle) => whole.slice(0, whole.indexOf(handle) + handle.length + 1));
    scene.gateway.script.submit.push(answer);
    expect((await expectAccepted(scene)).handle).toBe(scene.gateway.created[0]);
  });
});

describe.concurrent('a server error after the task was created', () => {
  it('leads to exit 7, and the rerun sends nothing', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push(
      created({ status: 502, body: '{"error":{"message":"upstream failed"}}' }),
    );
    await expectUnknown(scene);
  });
});

describe.concurrent('a 503 from a proxy after the task was created', () => {
  it('leads to exit 7 and one creation, even after the rerun', async ({ open }) => {
    const scene = await open('c');
    const html = { 'content-type': 'text/html' };
    scene.gateway.script.submit.push(created({ status: 503, body: '<html>503</html>', headers: html }));
    await expectUnknown(scene, '--retries', '2');
  });
});

describe.concurrent('an error that contains a task id', () => {
  it('leads to exit 7, and the id is recorded', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.script.submit.push(({ gateway, response }) => {
      const body = { ...(JSON.parse(gateway.accept()) as object), error: { message: 'slow down' } };
      response.writeHead(429, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
    const first = await expectUnknown(scene, '--retries', '2');
    expect(first.error.message).toContain(scene.gateway.created[0]);
  });
});

describe.concurrent('an error whose message is the JSON of a task', () => {
  it('leads to exit 7 after one request', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.always.submit = ({ gateway, response }) => {
      const body = { code: 'fail_to_fetch_task', message: gateway.accept(), data: null };
      const headers = { 'content-type': 'application/json', 'retry-after': '0' };
      response.writeHead(503, headers).end(JSON.stringify(body));
    };
    const first = await expectUnknown(scene, '--retries', '3');
    expect(first.error.message).toContain(scene.gateway.created[0]);
  });
});

describe.concurrent('three temporary refusals, then an acceptance', () => {
  it.for([
    [429, '1'],
    [503, undefined],
  ] as const)('lead to exit 0 (HTTP %i, Retry-After %s)', async ([status, retryAfter], { open }) => {
    const scene = await open('c');
    const headers: Record<string, string> = retryAfter === undefined ? {} : { 'retry-after': retryAfter };
    const body = { error: { message: 'slow down' } };
    for (let times = 0; times < 3; times += 1) scene.gateway.script.submit.push({ status, headers, body });
    await expectAccepted(scene);
    const times = scene.gateway.submissions.map(({ at }) => at);
    expect(times).toHaveLength(4);
    const min = (Number(retryAfter ?? 0) * 1000) / hurry - 2;
    for (const [index, at] of times.slice(1).entries()) expect(at - (times[index] ?? 0)).toBeGreaterThan(min);
  });
});

describe.concurrent('a temporary refusal that does not end', () => {
  it('leads to exit 6 after the last retry, and nothing is created', async ({ open }) => {
    const scene = await open('a');
    scene.gateway.always.submit = { status: 429, body: { error: { message: 'slow down' } } };
    const run = await scene.submit('--retries', '1');
    const error = { code: 'rate_limited', charged: 'no', retry: 'safe' };
    expect(run.json).toMatchObject({ exit_code: 6, error });
    expect((await scene.again()).code).toBe(6);
    await scene.expectInvariants(0);
  });

  it('leads to exit 6 immediately if Retry-After is 86400, and the error contains the time of the next attempt', async ({
    open,
  }) => {
    const scene = await open('c');
    scene.gateway.always.submit = { status: 429, headers: { 'retry-after': '86400' } };
    const before = Date.now();
    const run = await scene.submit();
    expect(run.json).toMatchObject({ exit_code: 6, error: { code: 'rate_limited', retry: 'safe' } });
    const when = /\d{4}-\d\d-\d\dT[\d:.]+Z/.exec(run.json.error.message)?.[0] ?? '';
    expect(Date.parse(when) - before).toBeGreaterThanOrEqual(86_400_000);
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(0);
  });
});

describe.concurrent('an unusual Retry-After', () => {
  const cases: [string, string | string[], number][] = [
    ['1e99', '1e99', 6],
    ['sent twice, once as text', ['soon', '0'], 0],
  ];
  it.for(cases)('does not cause a crash or a hang (%s)', async ([, value, code], { open }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push({ status: 429, headers: { 'retry-after': value } });
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(code);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a definite refusal', () => {
  const refusals = [
    [401, 3, 'auth'],
    [422, 4, 'invalid_request'],
    [404, 4, 'not_found'],
  ] as const;
  it.for(refusals)(
    'is reported by the exit code: HTTP %i leads to exit %i',
    async ([status, code, name], { open }) => {
      const scene = await open('c');
      const message = status === 404 ? 'Invalid URL (POST /x)' : 'no';
      scene.gateway.always.submit = { status, body: { error: { message } } };
      for (let runs = 0; runs < 2; runs += 1) {
        const json = await scene.here(scene.command());
        expect(json).toMatchObject({ exit_code: code, error: { code: name, charged: 'no' } });
        expect(json.error.message).toContain(message);
        if (status === 404) expect(json.error.message).toMatch(/base URL/);
      }
      await scene.expectInvariants(0);
    },
  );
});

describe.concurrent('an ambiguous status', () => {
  it('leads to exit 7', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push(created({ status: 409, body: '{"error":{"message":"conflict"}}' }));
    await expectUnknown(scene);
  });
});

describe.concurrent('a redirect to another host', () => {
  it.for([303, 307])('is not followed (HTTP %i)', async (status, { open }) => {
    const scene = await open('c');
    const stranger = await scene.stranger((_, response) => response.end('{}'));
    const location = `${stranger.origin}/elsewhere`;
    scene.gateway.always.submit = { status, headers: { location } };
    const json = await scene.here(scene.command());
    expect(json.exit_code).toBe(status < 304 ? 7 : 4);
    if (status > 304) expect(json.error.message).toContain(stranger.origin);
    expect((await scene.again()).code).toBe(json.exit_code);
    expect(stranger.connections).toHaveLength(0);
    await scene.expectInvariants(status < 304 ? 1 : 0);
  });
});

describe.concurrent('errors of Protocol B with HTTP 200', () => {
  const answer = (Code: string): Exclude<Answer, (call: Call) => unknown> => ({
    body: JSON.stringify({ Response: { Error: { Code, Message: 'no' }, RequestId: 'r' } }),
  });
  it('lead to exit 4 for InvalidParameterValue', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.always.submit = answer('InvalidParameterValue');
    expect((await scene.submit()).json).toMatchObject({ exit_code: 4, error: { charged: 'no' } });
    await scene.expectInvariants(0);
  });
  it('cause a retry for RequestLimitExceeded', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.script.submit.push(answer('RequestLimitExceeded'), answer('RequestLimitExceeded'));
    await expectAccepted(scene);
  });
  it('lead to exit 7 for InternalError', async ({ open }) => {
    const scene = await open('b');
    scene.gateway.script.submit.push(created(answer('InternalError')));
    await expectUnknown(scene);
  });
});

describe.concurrent('a handle and an error in one response', () => {
  it('are accepted, with a warning', async ({ open }) => {
    const scene = await open('a');
    scene.gateway.script.submit.push(({ gateway, response }) => {
      const error = { code: 13, message: 'quota is nearly used up' };
      response.end(JSON.stringify({ ...(JSON.parse(gateway.accept()) as object), error }));
    });
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(0);
    expect(run.stderr).toContain('quota is nearly used up');
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('ids of Protocol C', () => {
  it('are read from task_id if id differs, and are queried without the loss of a digit if they have 20 digits', async ({
    open,
  }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push(({ gateway, response }) => {
      const id = gateway.create('12345678901234567891');
      response.end(`{"id":"request-77","task_id":${id},"status":"queued"}`);
    });
    expect((await expectAccepted(scene)).handle).toBe('12345678901234567891');
  });
});

describe.concurrent('operation names of Protocol A that cannot be queried', () => {
  it('lead to exit 9, and are neither queried nor sent again', async ({ open }) => {
    const scene = await open('a');
    const name = 'models/video-a/operations/../../../v1/models';
    scene.gateway.script.submit.push(({ gateway, response }) => {
      response.end(JSON.stringify({ name: gateway.create(name), done: false }));
    });
    const run = await scene.submit();
    expect(run.json, shown(run)).toMatchObject({ exit_code: 9, error: { charged: 'yes' } });
    await scene.expectRerun(9);
    const requests = scene.gateway.seen.filter(({ path }) => path !== '/v1/models');
    expect(requests).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('an endless response', () => {
  // test/http/client.test.ts tests endless headers.
  it('leads to exit 7 in bounded memory', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.script.submit.push(({ gateway, socket }) => {
      gateway.create();
      const pour = (): void => {
        while (!socket.destroyed && socket.write('x'.repeat(64 * 1024)));
      };
      const start = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"note":"';
      socket.on('drain', pour).write(start);
      pour();
    });
    const peak = join(scene.user.cwd, 'peak');
    const run = await scene.run(scene.command(), {
      env: preloaded('peak-memory', { MGW_TEST_PEAK: peak }),
    });
    expect(run.json).toMatchObject(unknown);
    expect(Number(readFileSync(peak, 'utf8')), 'kilobytes').toBeLessThan(120_000);
    await scene.expectRerun(7);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a different body under the same --key', () => {
  it('leads to exit 2, and nothing is sent', async ({ open }) => {
    const scene = await open('c');
    await scene.here([...scene.gateway.dialect.command, '--key', 'boat']);
    const other = await scene.here([...scene.gateway.dialect.other, '--key', 'boat']);
    expect(other).toMatchObject({ exit_code: 2, error: { code: 'conflict', charged: 'no' } });
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('the API key in a response', () => {
  it('is redacted in the record and in the output', async ({ open }) => {
    const scene = await open('c');
    const message = `bad key ${canaryKey}, ${Buffer.from(`Bearer ${canaryKey}`).toString('base64')}`;
    scene.gateway.script.submit.push(created({ status: 500, body: JSON.stringify({ error: { message } }) }));
    await expectUnknown(scene, '-v');
  });
});
