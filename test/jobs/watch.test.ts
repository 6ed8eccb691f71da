import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import type { Job, JobEvent, JobState } from '../../src/job.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import type { StreamedReply } from '../../src/http/client.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { observe, query } from '../../src/jobs/observe.ts';
import { watch, type WatchedJob, type WatchOptions } from '../../src/jobs/watch.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Protocol } from '../../src/protocols/protocol.ts';
import { finished as finishedA, name as operation } from '../protocols/a/support.ts';
import { freshFolder, httpServer, says, type Answer, type HttpServer } from '../support/servers.ts';
import { depsFor, jobText, run, type TestDeps } from './harness.ts';

interface Scene {
  server: HttpServer;
  state: string;
  deps: TestDeps;
  job: Job;
}

/** Returns a job that has just been accepted. `more` changes the process's dependencies. */
async function scene(more: Parameters<typeof depsFor>[2] = {}): Promise<Scene> {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state, more);
  const { job } = await run(deps);
  if (job === undefined) throw new Error('nothing was submitted');
  server.requests.splice(0);
  return { server, state, deps, job };
}

/** Returns a scene whose job was accepted elsewhere, with the given protocol and handle. */
async function sceneOf(
  protocol: Protocol,
  handle: string,
  more: Parameters<typeof depsFor>[2] = {},
): Promise<Scene> {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state, more);
  const id = await deps.ledger.newId(deps.clock.now());
  await deps.ledger.create(id, [
    { type: 'prepared', protocol: protocol.name, base_url: 'test', fingerprint: '', account: 'test' },
    { type: 'accepted', handle },
  ]);
  const job = await deps.ledger.read(id);
  if (job === undefined) throw new Error('there is no job');
  return { server, state, deps, job };
}

const minutes = 60_000;

async function waitFor(
  { deps, job }: Pick<Scene, 'deps' | 'job'>,
  protocol: Protocol = c,
  options: Partial<WatchOptions> = {},
): Promise<WatchedJob & { exit: 0 }> {
  const deadline = deadlineIn(30 * minutes, deps.clock);
  return {
    exit: 0,
    ...(await watch(job, protocol, deps, { deadline, intervalMs: 5000, isImmediate: false, ...options })),
  };
}

async function failure(waiting: Promise<unknown>): Promise<MgwError> {
  const error = await waiting.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof MgwError) return error;
  throw error instanceof Error ? error : new Error('it succeeded');
}

const running = says({ task_id: 'task_0001', status: 'in_progress' });
const completed = says({
  task_id: 'task_0001',
  status: 'completed',
  result_url: 'https://files.example/v.mp4',
});
const missing = says({ error: { message: 'task not found' } }, 404);
const times = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);
const posts = ({ server }: Scene): number => server.requests.filter(({ method }) => method === 'POST').length;

describe('a command that waits', () => {
  it('first polls after 5 s, and then at intervals that grow from 5 to 10 s', async () => {
    const at = await scene();
    at.server.answers.push(...times(40, running), completed);
    await waitFor(at);
    const { pauses } = at.deps.clock;
    expect(pauses).toHaveLength(41);
    expect(pauses[0]).toBe(5000);
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(5000);
    expect(Math.max(...pauses)).toBeLessThanOrEqual(10_000);
    const mean = (list: number[]): number => list.reduce((sum, ms) => sum + ms, 0) / list.length;
    expect(mean(pauses.slice(-20))).toBeGreaterThan(mean(pauses.slice(0, 4)) + 1000);
    expect(new Set(pauses.slice(-20)).size).toBeGreaterThan(10);
  });

  it('never polls before Retry-After has passed, but after a success waits no longer than 5 min', async () => {
    const at = await scene();
    at.server.answers.push(
      says({}, 429, { 'retry-after': '42' }),
      says({}, 503, { 'retry-after': '90' }),
      says({ task_id: 'task_0001', status: 'in_progress' }, 200, { 'retry-after': '31' }),
      says({ task_id: 'task_0001', status: 'in_progress' }, 200, { 'retry-after': '86400' }),
      completed,
    );
    await waitFor(at);
    expect(at.deps.clock.pauses[1]).toBeGreaterThanOrEqual(42_000);
    expect(at.deps.clock.pauses[2]).toBeGreaterThanOrEqual(90_000);
    expect(at.deps.clock.pauses[3]).toBeGreaterThanOrEqual(31_000);
    expect(at.deps.clock.pauses[4]).toBe(300_000);
  });

  it('polls less often while responses fail, down to a limit, and as before after a success', async () => {
    const at = await scene();
    at.server.answers.push(...times(10, says({}, 502)), ...times(3, running), completed);
    await waitFor(at);
    const { pauses } = at.deps.clock;
    expect(Math.max(...pauses)).toBeLessThanOrEqual(37_500);
    expect(pauses[9]).toBeGreaterThan(20_000);
    expect(Math.max(...pauses.slice(11))).toBeLessThanOrEqual(10_000);
  });

  it('polls proportionally less often if a short interval was requested', async () => {
    const at = await scene();
    at.server.answers.push(...times(12, says('busy', 503)), completed);
    await waitFor(at, c, { intervalMs: 100 });
    expect(Math.max(...at.deps.clock.pauses)).toBeLessThanOrEqual(750);
  });
});

describe('a wait', () => {
  it('ends with the result when the task succeeds', async () => {
    const at = await scene();
    at.server.answers.push(running, completed);
    const states: JobState[] = [];
    const seen = await waitFor(at, c, { onUpdate: ({ state }) => states.push(state) });
    expect(seen.job).toMatchObject({ state: 'succeeded', native_status: 'completed' });
    expect(seen.observation.results).toHaveLength(1);
    expect(states).toEqual(['running', 'succeeded']);
    expect(posts(at)).toBe(0);
  });

  it("ends with exit 5 and the gateway's message, without signatures, when the task fails", async () => {
    const at = await scene();
    const url = 'https://s3.example/in/a.png?X-Amz-Signature=';
    const text = `cannot read ${url}28912c`;
    at.server.answers.push(says({ task_id: 'task_0001', status: 'failed', error: { message: text } }));
    const message = `cannot read ${url}[redacted]`;
    expect(await failure(waitFor(at))).toMatchObject({ exitCode: 5, charged: 'maybe', message });
    expect(await at.deps.ledger.read(at.job.id)).toMatchObject({ state: 'failed', error: { message } });
  });

  it('ends with exit 8 at the deadline after one last poll, and the next wait continues', async () => {
    const at = await scene();
    at.server.answers.push(...times(1000, running));
    const deadline = deadlineIn(61_234, at.deps.clock);
    const end = at.deps.clock.monotonic() + 61_234;
    const pending = await failure(waitFor(at, c, { deadline }));
    expect(pending).toMatchObject({ exitCode: 8, code: 'pending', charged: 'yes', retry: 'resume' });
    expect(pending.next).toEqual(['mgw', 'jobs', 'wait', at.job.id]);
    expect(at.deps.clock.monotonic()).toBe(end);
    expect(at.deps.clock.pauses).toHaveLength(at.server.requests.length);
    at.server.answers.splice(0);
    at.server.answers.push(completed);
    expect((await waitFor(at)).exit).toBe(0);
  });

  it('ends with exit 8 if the deadline has passed, without a poll for a new job and after one poll otherwise', async () => {
    const at = await scene();
    at.server.answers.push(running);
    const deadline = deadlineIn(-1, at.deps.clock);
    expect((await failure(waitFor(at, c, { deadline }))).exitCode).toBe(8);
    expect(at.server.requests).toHaveLength(0);
    expect((await failure(waitFor(at, c, { deadline, isImmediate: true }))).exitCode).toBe(8);
    expect(at.server.requests).toHaveLength(1);
  });

  it('ends with exit 8 if the deadline passes during a poll', async () => {
    const at = await scene();
    const leftMs: (number | undefined)[] = [];
    const { client } = at.deps;
    const stalling: typeof client = {
      ...client,
      exchange: (request, options) => {
        leftMs.push(options.deadline?.remainingMs());
        return client.exchange(request, { ...options, timeoutMs: 1 });
      },
    };
    at.server.answers.push(...times(3, () => undefined));
    const deadline = deadlineIn(12_000, at.deps.clock);
    const pending = await failure(
      waitFor({ ...at, deps: { ...at.deps, client: stalling } }, c, { deadline }),
    );
    expect(pending).toMatchObject({ exitCode: 8, retry: 'resume' });
    expect(leftMs[0]).toBe(7000);
    expect(leftMs.at(-1)).toBe(0);
  });

  it('ends with exit 8 at the deadline if Retry-After is later', async () => {
    const at = await scene();
    at.server.answers.push(...times(2, says({}, 429, { 'retry-after': '1e99' })));
    const deadline = deadlineIn(10 * minutes, at.deps.clock);
    const end = at.deps.clock.monotonic() + 10 * minutes;
    expect((await failure(waitFor(at, c, { deadline }))).exitCode).toBe(8);
    expect(at.deps.clock.monotonic()).toBe(end);
  });

  it.each([-24, 24])(
    'ends at the deadline after the requested duration, even if the clock is changed by %i hours',
    async (hours) => {
      const at = await scene();
      at.server.answers.push(...times(1000, running));
      const { clock } = at.deps;
      clock.onSleep = (count) => (count === 2 ? clock.set(hours * 60 * minutes) : undefined);
      const deadline = deadlineIn(61_234, clock);
      const end = clock.monotonic() + 61_234;
      expect((await failure(waitFor(at, c, { deadline }))).exitCode).toBe(8);
      expect(clock.monotonic()).toBe(end);
    },
  );

  it('ends with exit 3 if the key is refused, and the next wait succeeds with a valid key', async () => {
    const at = await scene();
    at.server.answers.push(running, says({ error: { message: 'bad key' } }, 401));
    expect(await failure(waitFor(at))).toMatchObject({
      exitCode: 3,
      code: 'auth',
      charged: 'yes',
      retry: 'resume',
      next: ['mgw', 'auth', 'status'],
    });
    at.server.answers.push(completed);
    const job = await at.deps.ledger.read(at.job.id);
    expect((await waitFor({ ...at, job: job ?? at.job })).exit).toBe(0);
    expect(posts(at)).toBe(0);
  });

  it('ends with exit 130 if interrupted in a pause, and the job continues', async () => {
    const at = await scene();
    at.server.answers.push(...times(10, running));
    at.deps.clock.onSleep = (count) => {
      if (count === 3) at.deps.soft.abort('SIGINT');
    };
    expect(await failure(waitFor(at))).toMatchObject({
      exitCode: 130,
      charged: 'yes',
      retry: 'resume',
      next: ['mgw', 'jobs', 'wait', at.job.id],
    });
  });

  it('ends with exit 143 immediately if interrupted while a response is pending', async () => {
    const at = await scene();
    at.server.answers.push(() => at.deps.soft.abort('SIGTERM'));
    expect(await failure(waitFor(at))).toMatchObject({ exitCode: 143, charged: 'yes' });
  });
});

describe('the response "not found" for a task', () => {
  it('does not prevent exit 0 if it occurs three times while the clock is set forward by a day', async () => {
    const at = await scene();
    at.server.answers.push(missing, missing, missing, running, completed);
    at.deps.clock.onSleep = (count) => (count === 1 ? at.deps.clock.set(24 * 60 * minutes) : undefined);
    expect((await waitFor(at)).exit).toBe(0);
  });

  it.each([0, -24])(
    'leads to exit 9 without a POST if it continues for 60 s (clock changed by %i hours)',
    async (hours) => {
      const at = await scene();
      at.server.answers.push(...times(100, missing));
      const from = at.deps.clock.monotonic();
      at.deps.clock.set(hours * 60 * minutes);
      expect(await failure(waitFor(at))).toMatchObject({
        exitCode: 9,
        code: 'not_found',
        charged: 'yes',
        retry: 'never',
      });
      expect(at.deps.clock.monotonic() - from).toBeGreaterThan(60_000);
      expect(at.deps.clock.monotonic() - from).toBeLessThan(75_000);
      expect(posts(at)).toBe(0);
    },
  );

  it('leads to exit 9 immediately if the task was started elsewhere at an unknown time', async () => {
    const at = await sceneOf(c, 'task_77');
    at.server.answers.push(missing);
    expect((await failure(waitFor(at, c, { isImmediate: true }))).exitCode).toBe(9);
    expect(at.server.requests).toHaveLength(1);
  });

  it('leads to exit 9 if the user adopted the task, and the error suggests the command that resolves the job again', async () => {
    const at = await sceneOf(c, 'task_77');
    const { id } = at.job;
    const job = { ...at.job, record: { ...at.job.record, isUnconfirmed: true } };
    at.server.answers.push(missing);
    const error = await failure(waitFor({ ...at, job }, c, { isImmediate: true }));
    const next = ['mgw', 'jobs', 'resolve', id];
    expect(error).toMatchObject({ exitCode: 9, charged: 'maybe', retry: 'never', next });
    expect(error.message).toContain('resolve the job again');
  });
});

describe('a wait with irregular responses', () => {
  const troubles: Answer[] = [
    says({}, 429),
    says({ error: 'x' }, 500),
    says('<html>bad gateway</html>', 502, { 'content-type': 'text/html' }),
    says('', 503),
    says({}, 504),
    (_, response) => response.destroy(),
    (_, response) => response.socket?.resetAndDestroy(),
    says('<html>hello</html>', 200, { 'content-type': 'text/html' }),
    says('{"status":'),
    (_, response) => {
      response.writeHead(200, { 'content-length': '50' });
      response.write('{"task_id":"task_0001",', () => response.destroy());
    },
  ];

  it('continues after twenty errors of various kinds until the task finishes', async () => {
    const at = await scene();
    at.server.answers.push(...troubles, ...troubles, completed);
    expect((await waitFor(at)).exit).toBe(0);
    expect(at.server.requests).toHaveLength(21);
    expect(posts(at)).toBe(0);
  });

  it('continues after repeated errors, reports each error once, and reports the last error at its deadline', async () => {
    const at = await scene();
    const refused = says({ error: { message: 'bad param' } }, 400);
    at.server.answers.push(says('', 502), running, ...times(1000, refused));
    const deadline = deadlineIn(10 * minutes, at.deps.clock);
    const pending = await failure(waitFor(at, c, { deadline }));
    expect(pending.message).toBe(
      `Job ${at.job.id} is still running (in_progress). The last status query failed: bad param`,
    );
    expect(at.deps.notes).toEqual([`${at.job.id}: the status query failed (bad param); trying again.`]);
  });

  it('continues after polls that end at their timeout because the gateway does not respond', async () => {
    const at = await sceneOf(c, 'task_0001', { requestTimeoutMs: 400 });
    at.server.answers.push(
      () => undefined,
      (_, response) => void response.writeHead(200).write('{'),
      completed,
    );
    expect((await waitFor(at)).exit).toBe(0);
    expect(at.server.requests).toHaveLength(3);
  });

  it('continues after an unknown status word and after the status "unknown"', async () => {
    const at = await scene();
    const word = (status: string): Answer => says({ task_id: 'task_0001', status });
    at.server.answers.push(word('unknown'), ...times(10, word('simmering')), completed);
    const words = new Set<string | undefined>();
    const seen = await waitFor(at, c, { onUpdate: ({ native_status: native }) => words.add(native) });
    expect(seen.exit).toBe(0);
    expect([...words]).toEqual(['unknown', 'simmering', 'completed']);
    // Ten identical polls are recorded as one line.
    expect(jobText(at.state).match(/simmering/g)).toHaveLength(1);
  });

  it('keeps the success if the status then reverts, and requests the result again', async () => {
    const at = await scene();
    at.server.answers.push(completed);
    const { job } = await waitFor(at);
    const failed = says({ task_id: 'task_0001', status: 'failed' });
    at.server.answers.push(running, failed, running, completed);
    const again = await waitFor({ ...at, job }, c, { isImmediate: true });
    expect(again.job).toMatchObject({ state: 'succeeded', finished_at: job.finished_at });
    expect(at.server.answers).toHaveLength(0);
    // The gateway no longer has the result.
    at.server.answers.push(...Array.from({ length: 11 }, () => failed));
    const error = await failure(waitFor({ ...at, job }, c, { isImmediate: true }));
    expect(error).toMatchObject({ code: 'result_unavailable', exitCode: 9, charged: 'yes', retry: 'resume' });
    expect(at.server.answers).toHaveLength(0);
  });

  describe('with a failure', () => {
    const failed = says({ task_id: 'task_0001', status: 'failed', error: { message: 'no frames' } });
    const polled = { type: 'observed', state: 'running', native_status: 'in_progress' } as const;

    /** Returns a scene in which another process appends an event as soon as the failure is recorded. */
    async function sceneWith(event: JobEvent): Promise<Scene> {
      const at = await scene();
      const { ledger } = at.deps;
      const append: Ledger['append'] = async (id, recorded) => {
        await ledger.append(id, recorded);
        if (recorded.type === 'finished') await ledger.append(id, event);
      };
      return { ...at, deps: { ...at.deps, ledger: { ...ledger, append } } };
    }

    it('reports the failure even if another process records an earlier poll late', async () => {
      const at = await sceneWith(polled);
      at.server.answers.push(failed);
      const error = await failure(waitFor(at));
      expect([error.message, error.job?.state]).toEqual(['no frames', 'failed']);
    });

    it('continues if another process records that the gateway revoked the failure', async () => {
      const at = await sceneWith({ ...polled, revokes: true });
      at.server.answers.push(failed, completed);
      expect((await waitFor(at)).job.state).toBe('succeeded');
    });

    it('is followed by the state "running" if the gateway later reports it', async () => {
      const at = await scene();
      at.server.answers.push(failed, running);
      const { job = at.job } = await failure(waitFor(at));
      expect([job.state, (await observe(job, c, at.deps)).job.state]).toEqual(['failed', 'running']);
    });
  });
});

describe('a wait for a Protocol A operation', () => {
  it.each(['https://elsewhere.example/x', '../../etc', 'models/m/operations/a?b'])(
    'does not query the invalid handle %s, and ends with exit 9',
    async (handle) => {
      const at = await sceneOf(a, handle);
      expect(await failure(waitFor(at, a))).toMatchObject({ exitCode: 9, charged: 'yes' });
      expect(at.server.requests).toHaveLength(0);
    },
  );

  const video = Buffer.alloc(60_000, 'v').toString('base64');
  const inline = JSON.stringify(finishedA([{ video: { encodedVideo: video } }]));

  /** Sends text in the given number of pieces, at the given interval in ms. */
  function inPieces(text: string, pieces: number, everyMs: number, response: ServerResponse): void {
    const size = Math.ceil(text.length / pieces);
    const next = (at: number): void => {
      if (at >= text.length) return void response.end();
      response.write(text.slice(at, at + size));
      setTimeout(() => next(at + size), everyMs);
    };
    next(0);
  }

  it('receives media inside a response for longer than the request timeout if data keeps arriving', async () => {
    const at = await sceneOf(a, operation, { requestTimeoutMs: 1500 });
    at.server.answers.push((_, response) => inPieces(inline, 20, 100, response));
    const seen = await waitFor(at, a);
    expect(seen.spooled).toEqual([{ bytes: 60_000 }]);
    expect(at.server.requests).toHaveLength(1);
  });

  it('aborts a response and requests it again if its media stall, or if data without media arrives slowly', async () => {
    const at = await sceneOf(a, operation, { requestTimeoutMs: 500 });
    at.server.answers.push(
      (_, response) => void response.write(inline.slice(0, 40_000)),
      (_, response) => {
        const trickle = setInterval(() => {
          response.write(' ');
          at.deps.clock.advance(200);
        }, 10);
        response.once('close', () => clearInterval(trickle));
      },
      says(inline),
    );
    const seen = await waitFor(at, a);
    expect(seen.spooled).toEqual([{ bytes: 60_000 }]);
    expect(at.deps.notes.slice(0, 2)).toEqual([
      'The response ended early: no data arrived for 0.5 s',
      'The response ended early: the deadline passed',
    ]);
    expect(at.server.requests).toHaveLength(3);
  });

  it('reads exactly 16 MiB of the text of an endless response', async () => {
    const { deps } = await sceneOf(a, operation);
    let sent = 0;
    const body = async function* (): AsyncGenerator<Uint8Array> {
      for (; sent < 64; sent += 1) yield await Promise.resolve(Buffer.alloc(1024 * 1024, ' '));
    };
    const stream = (): Promise<StreamedReply> =>
      Promise.resolve({ status: 200, headers: {}, body: body(), close: () => undefined });
    const client = { ...deps.client, stream };
    expect((await query(operation, undefined, a, { ...deps, client })).verdict.kind).toBe('again');
    expect(sent).toBe(16);
  });
});

it('a wait reports the job as paid and resumable if an event cannot be recorded', async () => {
  const at = await scene();
  at.server.answers.push(running);
  const ledger: Ledger = {
    ...at.deps.ledger,
    append: () => Promise.reject(new MgwError('local_io', 'the disk is full', { retry: 'safe' })),
  };
  expect(await failure(waitFor({ ...at, deps: { ...at.deps, ledger } }))).toMatchObject({
    exitCode: 10,
    charged: 'yes',
    retry: 'resume',
  });
});

it('a poll fails if the proxy cannot be used, because polling again cannot help', async () => {
  const { deps, job } = await scene();
  const exchange = (): Promise<never> =>
    Promise.reject(new TransportError('unsent', 'proxy', 'a socks5 proxy'));
  const observed = observe(job, c, { ...deps, client: { ...deps.client, exchange } });
  await expect(observed).rejects.toMatchObject({ exitCode: 2, code: 'config', message: 'a socks5 proxy.' });
});
