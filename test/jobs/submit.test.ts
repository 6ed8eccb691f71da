import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import type { JobEvent } from '../../src/job.ts';
import { fingerprintOf, type Order } from '../../src/jobs/order.ts';
import { resolveJob } from '../../src/flows/resolve.ts';
import { noHandleError } from '../../src/jobs/errors.ts';
import { shownState } from '../../src/jobs/reconcile.ts';
import { removeJob } from '../../src/jobs/remove.ts';
import { names } from '../../src/ledger/names.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import {
  closedPort,
  freshFolder,
  httpServer,
  says,
  type Answer,
  type HttpServer,
} from '../support/servers.ts';
import { depsFor, fakeClock, jobsOf, jobText, key, orderOf, run, runAgain, type Ran } from './harness.ts';

describe('a submission without a connection', () => {
  it('is retried, and leads to one job and one task once a connection succeeds', async () => {
    const port = await closedPort();
    const clock = fakeClock();
    clock.onSleep = async (count) => {
      if (count === 2) await httpServer(undefined, port);
    };
    const deps = await depsFor(`http://127.0.0.1:${port}`, freshFolder(), { clock });
    expect(await run(deps)).toMatchObject({ exit: 0, job: { handle: 'task_0001', state: 'queued' } });
    expect(clock.pauses).toHaveLength(2);
    expect(await jobsOf(deps.ledger)).toHaveLength(1);
  });

  it('exits with 6 after the last retry and leaves the job `prepared`, and the rerun sends the job', async () => {
    const [port, state] = [await closedPort(), freshFolder()];
    const url = `http://127.0.0.1:${port}`;
    const deps = await depsFor(url, state, { retries: 3 });
    const failed = await run(deps);
    expect(failed).toMatchObject({
      exit: 6,
      job: { state: 'prepared' },
      error: { charged: 'no', retry: 'safe' },
    });
    expect(failed.error?.code).toBe('unreachable');
    expect(deps.clock.pauses).toHaveLength(3);
    const server = await httpServer(undefined, port);
    const again = await run(await depsFor(url, state));
    expect(again).toMatchObject({ exit: 0, job: { id: failed.job?.id } });
    expect(server.created).toBe(1);
  });

  it('is recorded even if its body contains no model', async () => {
    const deps = await depsFor(`http://127.0.0.1:${await closedPort()}`, freshFolder(), { retries: 0 });
    expect((await run(deps, orderOf({ model: undefined }))).job).toMatchObject({ state: 'prepared' });
  });

  it('is recorded with its tags and its model, but without the API key', async () => {
    const deps = await depsFor(`http://127.0.0.1:${await closedPort()}`, freshFolder(), { retries: 0 });
    const { job } = await run(deps, orderOf({ model: `h3 ${key}`, tags: ['sea', key] }));
    expect([job?.model?.slice(0, 3), job?.tags?.[0]]).toEqual(['h3 ', 'sea']);
    expect(JSON.stringify([job?.model, job?.tags])).not.toContain(key);
  });

  it('is reported as an unreachable gateway, not a rate limit, if the deadline passes first', async () => {
    const deps = await depsFor(`http://127.0.0.1:${await closedPort()}`, freshFolder());
    const failed = await run(deps, orderOf({ deadline: deadlineIn(3000, deps.clock) }));
    expect(failed).toMatchObject({ exit: 6, error: { code: 'unreachable', retry: 'safe' } });
    expect(deps.clock.pauses.length).toBeLessThan(5);
  });
});

describe('an established connection that breaks or stalls', () => {
  it('leads to exit 7, and the rerun sends nothing and exits with 7 until a handle is adopted', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push((_, response) => {
      server.create();
      response.socket?.resetAndDestroy();
    });
    const deps = await depsFor(server.url, state);
    const lost = await run(deps);
    expect(lost).toMatchObject({ exit: 7, job: { state: 'unknown' } });
    expect(lost.error).toMatchObject({ code: 'submit_unknown', charged: 'maybe', retry: 'never' });
    expect((await run(await depsFor(server.url, state))).exit).toBe(7);
    expect(server.connections).toBe(1);
    expect(server.created).toBe(1);
    if (lost.job === undefined) throw new Error('no job');
    await resolveJob(deps.ledger, lost.job, { how: 'adopted', handle: 'task_0001' });
    expect(await run(await depsFor(server.url, state))).toMatchObject({
      exit: 0,
      isResumed: true,
      job: { handle: 'task_0001' },
    });
    expect(server.requests).toHaveLength(1);
  });

  it('leads to exit 7 at the request timeout, and the message contains the timeout', async () => {
    const server = await httpServer(() => void server.create());
    const state = freshFolder();
    const ran = await run(await depsFor(server.url, state, { requestTimeoutMs: 150 }));
    expect(ran).toMatchObject({ exit: 7, job: { state: 'unknown' } });
    expect(ran.error?.message).toContain('no response within 0.15 s');
    const again = await run(await depsFor(server.url, state));
    expect(again).toMatchObject({ exit: 7, error: { message: ran.error?.message } });
    expect(server.created).toBe(1);
  });
});

describe('responses that prove nothing', () => {
  const cut: Answer = (_, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('{"task_', () => response.destroy());
  };
  it.each<[string, Answer, string]>([
    ['cut before the handle', cut, '{\\"task_'],
    ['not JSON', says('accepted!'), 'accepted!'],
    ['500', says({ error: 'busy?' }, 500), 'busy?'],
  ])('lead to exit 7 and are recorded raw, and the rerun sends nothing (%s)', async (_, answer, kept) => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push((seen, response) => {
      server.create();
      answer(seen, response);
    });
    expect(await run(await depsFor(server.url, state))).toMatchObject({
      exit: 7,
      error: { charged: 'maybe', retry: 'never' },
    });
    const text = jobText(state);
    expect(text).toContain(kept);
    expect((await run(await depsFor(server.url, state))).exit).toBe(7);
    expect(jobText(state)).toBe(text);
    expect(server.connections).toBe(1);
    expect(server.created).toBe(1);
  });

  it('have the same effect as any error after the first byte, because a task may have been created', async () => {
    const deps = await depsFor('http://127.0.0.1:9', freshFolder());
    const ran = await run(
      deps,
      orderOf({
        send: async (_, __, options) => {
          await options.onConnected?.();
          throw new RangeError('a bug');
        },
      }),
    );
    expect(ran).toMatchObject({ exit: 7, job: { state: 'unknown' }, error: { charged: 'maybe' } });
  });

  it('are reported with the error that the submission specifies for an unknown outcome, also by the rerun', async () => {
    const [server, state] = [await httpServer(says('accepted!')), freshFolder()];
    const unknownError: Order['unknownError'] = (job) =>
      new MgwError('submit_unknown', 'The speech may have been paid for', { job });
    const order = orderOf({ unknownError });
    const reports = [];
    while (reports.length < 2)
      reports.push((await run(await depsFor(server.url, state), order)).error?.message);
    expect(reports).toEqual(Array(2).fill('The speech may have been paid for'));
  });
});

describe('a submission with an upload', () => {
  it('sends the request that the upload returns', async () => {
    const server = await httpServer();
    const order = orderOf();
    const upload = (): Promise<Order['exchange']> =>
      Promise.resolve({ ...order.exchange, path: '/uploaded' });
    expect(await run(await depsFor(server.url, freshFolder()), { ...order, upload })).toMatchObject({
      exit: 0,
    });
    expect(server.requests.map(({ path }) => path)).toEqual(['/uploaded']);
  });

  it('exits with 130 and sends nothing if it is interrupted during the upload', async () => {
    const server = await httpServer();
    const deps = await depsFor(server.url, freshFolder());
    const upload = (): Promise<never> => {
      deps.soft.abort('SIGINT');
      return Promise.reject(new Error('the upload was aborted'));
    };
    expect(await run(deps, orderOf({ upload }))).toMatchObject({ exit: 130, error: { charged: 'no' } });
    expect(server.requests).toHaveLength(0);
  });
});

describe('responses with a handle', () => {
  it('provide the handle even if the body is truncated right after the handle', async () => {
    const server = await httpServer((_, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write(`{"task_id":"${server.create()}"`, () => response.destroy());
    });
    const state = freshFolder();
    expect(await run(await depsFor(server.url, state))).toMatchObject({
      exit: 0,
      job: { handle: 'task_0001' },
    });
    expect(jobText(state)).toContain('"complete":false');
  });

  it('are accepted with a warning if they also contain an error', async () => {
    const server = await httpServer(says({ task_id: 'task_9', error: { message: 'half of it broke' } }));
    const deps = await depsFor(server.url, freshFolder());
    expect(await run(deps)).toMatchObject({ exit: 0, job: { handle: 'task_9' } });
    expect(deps.notes.join()).toContain('half of it broke');
  });

  it('are recorded with the whole handle, even if the handle is longer than any text of a response', async () => {
    const handle = 't'.repeat(4001);
    const server = await httpServer(says({ task_id: handle }));
    expect((await run(await depsFor(server.url, freshFolder()))).job?.handle).toBe(handle);
  });

  it('are recorded without the API key, and the request was sent as specified', async () => {
    const server = await httpServer(
      says({ task_id: 'task_1', echo: `Bearer ${key}` }, 200, { 'x-echo': key }),
    );
    const state = freshFolder();
    expect((await run(await depsFor(server.url, state))).exit).toBe(0);
    expect(jobText(state)).not.toContain(key);
    expect(jobText(state)).toContain('task_1');
    expect(server.requests[0]).toMatchObject({ method: 'POST', headers: { authorization: `Bearer ${key}` } });
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual(orderOf().body);
  });

  it.each([
    [65_536, true],
    [65_537, false],
  ])(
    'are recorded as complete if they have at most 65,536 characters: %i characters, complete: %s',
    async (length, complete) => {
      const around = JSON.stringify({ filler: '', task_id: 'task_1' }).length;
      const filler = 'x'.repeat(length - around);
      const server = await httpServer(says({ filler, task_id: 'task_1' }));
      const state = freshFolder();
      expect(await run(await depsFor(server.url, state))).toMatchObject({
        exit: 0,
        job: { handle: 'task_1' },
      });
      expect(jobText(state)).toContain(`"complete":${complete}`);
    },
  );
});

describe('refusals', () => {
  it.each<[number, number, string]>([
    [401, 3, 'auth'],
    [422, 4, 'invalid_request'],
  ])(
    'are reported by the exit code, and the rerun submits again: HTTP %i leads to exit %i',
    async (status, exit, code) => {
      const [server, state] = [await httpServer(), freshFolder()];
      server.answers.push(says({ error: { message: 'no' } }, status));
      expect(await run(await depsFor(server.url, state))).toMatchObject({
        exit,
        error: { code, charged: 'no' },
        job: { state: 'rejected' },
      });
      expect((await run(await depsFor(server.url, state))).exit).toBe(0);
      expect(server.created).toBe(1);
    },
  );

  it("are recorded without the signature of an upload's URL, and unchanged if nothing was uploaded", async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const message = 'cannot read https://store.example/boat.png?X-Amz-Signature=0123456789abcdef';
    server.answers.push(says({ error: { message } }, 400));
    const order = orderOf();
    const upload = (): Promise<Order['exchange']> => Promise.resolve(order.exchange);
    const { error } = await run(await depsFor(server.url, state), { ...order, upload });
    expect(error?.message).toContain('boat.png?X-Amz-Signature=');
    for (const text of [error?.message, jobText(state)]) expect(text).not.toContain('0123456789abcdef');
    const other = await httpServer(says({ error: { message } }, 400));
    expect((await run(await depsFor(other.url, freshFolder()))).error?.message).toContain(message);
  });

  it.each([
    [307, 4],
    [302, 7],
  ])(
    'include an HTTP %i redirect to another host only if it proves that nothing was created, and the host receives no request: exit %i',
    async (status, exit) => {
      const other = await httpServer();
      const server = await httpServer(says('', status, { location: `${other.url}/v1/videos` }));
      const ran = await run(await depsFor(server.url, freshFolder()));
      expect(ran.exit).toBe(exit);
      expect(other.connections).toBe(0);
    },
  );
});

describe('a submission to a busy gateway', () => {
  it('creates one task after three temporary refusals, with pauses of at least Retry-After', async () => {
    const server = await httpServer();
    server.answers.push(
      ...[1, 2, 3].map(() => says({ error: { message: 'slow down' } }, 429, { 'retry-after': '7' })),
    );
    const deps = await depsFor(server.url, freshFolder());
    expect(await run(deps)).toMatchObject({ exit: 0, job: { record: { attempts: 4 } } });
    expect(deps.clock.pauses).toHaveLength(3);
    expect(Math.min(...deps.clock.pauses)).toBeGreaterThanOrEqual(7000);
    expect(server.created).toBe(1);
  });

  it('exits with 6 after the last retry if every response is a 429, and the rerun submits again', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(...Array.from({ length: 6 }, () => says({}, 429)));
    const failed = await run(await depsFor(server.url, state));
    expect(failed).toMatchObject({ exit: 6, error: { code: 'rate_limited', charged: 'no', retry: 'safe' } });
    expect(server.requests).toHaveLength(6);
    expect(await run(await depsFor(server.url, state))).toMatchObject({
      exit: 0,
      job: { id: failed.job?.id },
    });
    expect(server.created).toBe(1);
  });

  it('exits with 6 immediately if Retry-After is longer than the timeout, and the error states when to try again', async () => {
    const server = await httpServer(says({}, 429, { 'retry-after': '86400' }));
    const deps = await depsFor(server.url, freshFolder());
    const ran = await run(deps, orderOf({ deadline: deadlineIn(1_800_000, deps.clock) }));
    expect(ran.exit).toBe(6);
    expect(ran.error?.message).toContain(new Date(deps.clock.now() + 86_400_000).toISOString().slice(0, 13));
    expect(server.requests).toHaveLength(1);
  });
});

describe('a repeated command', () => {
  it('resumes a job whose run died after the job was accepted, and makes a second take of a job that succeeded', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    const first = await run(deps);
    const resumed = await run(await depsFor(server.url, state));
    expect(resumed).toMatchObject({ isResumed: true, job: { id: first.job?.id } });
    await resumed.delivered?.();
    const second = await depsFor(server.url, state);
    expect(await run(second)).toMatchObject({ exit: 0, isResumed: false });
    const note = `This is a second take of ${first.job?.id} (queued). It is charged again.`;
    expect(second.notes).toEqual([note]);
    expect(server.created).toBe(2);
  });

  it.each([
    [undefined, 1],
    ['one', 0],
  ])(
    'with --key two reports a second take of an open job only if that has no key (%s)',
    async (key, count) => {
      const [server, state] = [await httpServer(), freshFolder()];
      await run(await depsFor(server.url, state), orderOf({ key }));
      const second = await depsFor(server.url, state);
      await run(second, orderOf({ key: 'two' }));
      expect([server.created, second.notes.length]).toEqual([2, count]);
    },
  );

  it('reports a second take of the newest job, with its file, even if an older job has a key', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    await (await run(deps, orderOf({ key: 'k' }))).delivered?.();
    const newest = await run(deps, orderOf({ fresh: true }));
    const id = newest.job?.id ?? '';
    const file = { path: '/videos/boat.mp4', bytes: 1, sha256: '' };
    await deps.ledger.append(id, { type: 'file', file });
    const notes = deps.notes.splice(0);
    await run(deps, orderOf({ fresh: true }));
    expect([notes.length, deps.notes]).toEqual([
      1,
      [`This is a second take of ${id} (queued, saved as /videos/boat.mp4). It is charged again.`],
    ]);
  });

  it('makes a second take while the first run is alive, and reports this even if the first run has sent nothing', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const first = await depsFor(server.url, state, { owner: currentOwner() });
    const second = await depsFor(server.url, state);
    first.priceOf = async () => {
      await run(second);
      return { subject: 'a test' };
    };
    const { job } = await run(first);
    expect(second.notes.at(-1)).toContain(`second take of ${job?.id}`);
    expect(server.created).toBe(2);
  });

  it('makes a second take of a job in doubt with --new, and reports this before anything is paid for', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(says({}, 500));
    const first = await run(await depsFor(server.url, state));
    const second = await depsFor(server.url, state);
    let before: string[] = [];
    second.priceOf = () => {
      before = [...second.notes];
      return Promise.resolve({ subject: 'a test' });
    };
    expect([first.exit, (await run(second, orderOf({ fresh: true }))).exit]).toEqual([7, 0]);
    expect(before).toEqual([
      expect.stringContaining(`${first.job?.id}, which may have been accepted and charged`),
    ]);
  });

  it.each([false, true])(
    'does not report a second take if the first was refused (--new: %s)',
    async (fresh) => {
      const [server, state] = [await httpServer(), freshFolder()];
      server.answers.push(says({ error: { message: 'no such model' } }, 400));
      const first = await run(await depsFor(server.url, state));
      const second = await depsFor(server.url, state);
      const { exit, isResumed, job } = await run(second, orderOf({ fresh }));
      expect([first.exit, exit, isResumed, server.created, second.notes]).toEqual([4, 0, false, 1, []]);
      expect(job?.id).not.toBe(first.job?.id);
    },
  );

  it.each<[string, Partial<Order>, Partial<Order>]>([
    ['key', { key: 'k' }, { key: 'l' }],
    ['variant', { variant: 'mp3' }, { variant: 'wav' }],
  ])('does not report a second take if it has a different %s', async (_, one, other) => {
    const [server, state] = [await httpServer(), freshFolder()];
    await (await run(await depsFor(server.url, state), orderOf(one))).delivered?.();
    const second = await depsFor(server.url, state);
    expect((await run(second, orderOf(other))).isResumed).toBe(false);
    expect([server.created, second.notes]).toEqual([2, []]);
  });

  it('does not resume a job that was removed and imported with a different body', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    const id = (await run(deps)).job?.id ?? '';
    await deps.ledger.remove(id);
    const imported = {
      protocol: 'c',
      base_url: deps.gateway,
      fingerprint: 'other',
      account: 'test',
    } as const;
    await deps.ledger.create(id, [{ type: 'prepared', ...imported }], true);
    const again = await run(deps);
    expect([again.exit, again.job?.id === id, server.created]).toEqual([0, false, 2]);
    expect(await deps.ledger.read(id)).toMatchObject({ state: 'prepared' });
  });

  it('is a different submission if the gateway or the body differs, but not if the API key differs', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    for (const more of [{}, { gateway: 'other' }]) await run(await depsFor(server.url, state, more));
    await run(await depsFor(server.url, state), orderOf({ body: { model: 'vendor-h3', prompt: 'b' } }));
    expect(server.created).toBe(3);
    expect(await run(await depsFor(server.url, state, { account: 'other' }))).toMatchObject({
      isResumed: true,
    });
    expect(server.created).toBe(3);
  });

  it('is blocked by a job in doubt under any API key, unless the two commands have different --key values', async () => {
    for (const [first, second, exit] of [
      [undefined, 'k', 7],
      ['k', undefined, 7],
      ['k', 'k', 7],
      ['k', 'l', 0],
    ] as const) {
      const [server, state] = [await httpServer(), freshFolder()];
      server.answers.push(says({ error: { message: 'oops' } }, 500));
      expect((await run(await depsFor(server.url, state), orderOf({ key: first }))).exit).toBe(7);
      const again = await depsFor(server.url, state, { account: 'other' });
      expect((await run(again, orderOf({ key: second }))).exit, `${first} ${second}`).toBe(exit);
      expect(server.requests).toHaveLength(exit === 7 ? 1 : 2);
    }
  });

  it("exits with 7 if an earlier job's record is lost, but submits with --new", async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const { job } = await run(await depsFor(server.url, state));
    rmSync(join(state, 'jobs', `${job?.id ?? ''}.jsonl`));
    expect((await run(await depsFor(server.url, state))).exit).toBe(7);
    for (const name of ['index.log', 'handles.log']) rmSync(join(state, name));
    expect((await run(await depsFor(server.url, state))).exit).toBe(7);
    expect(server.requests).toHaveLength(1);
    expect((await run(await depsFor(server.url, state), orderOf({ fresh: true }))).exit).toBe(0);
  });

  it.each<[string, string | undefined, Partial<Order>, RegExp]>([
    ['--new', undefined, { fresh: true }, /--new submits it anyway/],
    ['a different key', 'k', { key: 'l' }, /A different --key submits it anyway/],
  ])(
    'exits with 7 if its claim is damaged and no job belongs to the claim, but submits with %s',
    async (_, key, other, way) => {
      const [server, state] = [await httpServer(), freshFolder()];
      const deps = await depsFor(server.url, state);
      const order = orderOf({ key });
      const fingerprint = fingerprintOf(order, deps.gateway);
      await deps.ledger.claim(names.first({ key, fingerprint }), 'damaged');
      const lost = await run(deps, order);
      expect(lost).toMatchObject({ exit: 7, error: { next: ['mgw', 'jobs', 'ls'] } });
      expect(lost.error?.message).toMatch(way);
      expect(server.requests).toHaveLength(0);
      expect(await run(deps, orderOf({ key, ...other }))).toMatchObject({ exit: 0 });
      expect(server.created).toBe(1);
      if (key === undefined)
        expect(await run(await depsFor(server.url, state), order)).toMatchObject({ exit: 0 });
    },
  );

  it('exits with 7 if a damaged claim appears just before the run makes its own claim', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    const name = names.first({ fingerprint: fingerprintOf(orderOf(), deps.gateway) });
    const checkBeforePaying = async (): Promise<void> => {
      await deps.ledger.claim(name, 'damaged');
    };
    expect((await run(deps, orderOf({ checkBeforePaying }))).exit).toBe(7);
    expect(server.requests).toHaveLength(0);
  });

  it("finds a key's job by reading all jobs if the claim and the index are lost", async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const { job } = await run(await depsFor(server.url, state), orderOf({ key: 'k' }));
    rmSync(join(state, 'claims'), { recursive: true });
    for (const name of ['index.log', 'handles.log']) rmSync(join(state, name));
    const again = await run(await depsFor(server.url, state), orderOf({ key: 'k' }));
    expect(again).toMatchObject({ exit: 0, isResumed: true, job: { id: job?.id } });
    const other = await run(await depsFor(server.url, state), orderOf({ key: 'k', body: { model: 'm' } }));
    expect(other.exit).toBe(2);
    expect(server.requests).toHaveLength(1);
  });

  it('resumes the job of its key if only a default was specified explicitly', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const body = { model: 'vendor-h3', prompt: 'a paper boat', duration: 5 };
    const userBody = { model: 'vendor-h3', prompt: 'a paper boat' };
    await run(await depsFor(server.url, state), orderOf({ key: 'boat', body, userBody }));
    const explicit = await run(await depsFor(server.url, state), orderOf({ key: 'boat', body }));
    expect(explicit).toMatchObject({ exit: 0, isResumed: true });
    const other = orderOf({ key: 'boat', body: { ...body, duration: 6 } });
    expect((await run(await depsFor(server.url, state), other)).exit).toBe(2);
    expect(server.requests).toHaveLength(1);
  });

  it('resumes a delivered job even if the claim of its key is lost', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const order = orderOf({ key: 'boat' });
    await run(await depsFor(server.url, state), order).then((ran) => ran.delivered?.());
    rmSync(join(state, 'claims', 'key.boat'));
    expect(await run(await depsFor(server.url, state), order)).toMatchObject({ exit: 0, isResumed: true });
    expect(server.requests).toHaveLength(1);
  });

  it('checks the output before anything is paid for, but not if nothing needs to be paid for', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    const order = orderOf({ checkBeforePaying: () => Promise.reject(new TypeError('it exists')) });
    await expect(run(await depsFor(server.url, state), order)).rejects.toThrow('it exists');
    expect(server.connections).toBe(0);
    await run(await depsFor(server.url, state));
    expect((await run(await depsFor(server.url, state), order)).exit).toBe(0);
    expect(server.created).toBe(1);
    const unsent = await depsFor(`http://127.0.0.1:${await closedPort()}`, freshFolder(), { retries: 0 });
    expect((await run(unsent)).exit).toBe(6);
    await expect(run(unsent, order)).rejects.toThrow('it exists');
    const doubt = await depsFor((await httpServer(says('accepted!'))).url, freshFolder());
    expect((await run(doubt)).exit).toBe(7);
    expect((await run(doubt, order)).exit).toBe(7);
  });

  it('records the path that the user chose, so that --resubmit uses it again', async () => {
    const deps = await depsFor((await httpServer()).url, freshFolder());
    expect((await run(deps, orderOf({ endpoint: 'videos' }))).job?.record.endpoint).toBe('videos');
  });

  it.each<[string, Answer[], number, number, string]>([
    ['is rejected', [says('{"error":{"message":"no"}}', 400)], 7, 2, 'no'],
    ['is refused for now', [says('{}', 429)], 7, 2, 'Not accepted after 1 attempt'],
    ['cannot be sent', [], 7, 1, 'Nothing was sent: cannot reach'],
    ['is accepted after a refusal', [says('{}', 429)], 0, 3, ''],
  ])(
    'leaves its job in doubt after --resubmit unless the new attempt is accepted: it %s',
    async (_, ...given) => {
      const [answers, exit, requests, reason] = given;
      const [server, state] = [await httpServer(), freshFolder()];
      server.answers.push((_, response) => response.destroy(), ...answers);
      const { job } = await run(await depsFor(server.url, state));
      if (job === undefined) throw new Error('no job');
      const url = answers.length > 0 ? server.url : `http://127.0.0.1:${await closedPort()}`;
      const deps = await depsFor(url, state, { retries: exit === 0 ? 1 : 0, owner: currentOwner() });
      const again = await runAgain(deps, job);
      expect([again.exit, server.requests.length]).toEqual([exit, requests]);
      if (exit === 0) return;
      expect(again).toMatchObject({ job: { state: 'unknown' }, error: { charged: 'maybe', retry: 'never' } });
      // The record of a rejection is enough.
      const doubts = (await deps.ledger.events(job.id)).filter((event) => event?.type === 'unknown');
      expect(doubts).toHaveLength(reason === 'no' ? 1 : 2);
      const rerun = await run(deps);
      const messages = [again.error, again.job?.error, rerun.error].map((each) => each?.message);
      const expected = new RegExp(`^An earlier attempt is in doubt; the new attempt failed: ${reason}`);
      expect(messages).toEqual(messages.map(() => expect.stringMatching(expected) as string));
      expect(await removeJob(deps.ledger, job, false, () => Promise.resolve([]))).toBe('open');
      const seen = (await deps.ledger.read(job.id)) ?? job;
      expect((await resolveJob(deps.ledger, seen, { how: 'adopted', handle: 't' })).handle).toBe('t');
    },
  );

  it('does not put the job in doubt while another process is about to send it again', async () => {
    const server = await httpServer();
    server.answers.push((_, response) => response.destroy());
    const deps = await depsFor(server.url, freshFolder(), { owner: currentOwner() });
    const { job } = await run(deps);
    if (job === undefined) throw new Error('no job');
    const other = { ...currentOwner(), instance: undefined };
    const began = { type: 'began', run: 'other', owner: other, command: 'submit', ask: 'accept' } as const;
    const upload = async (): Promise<never> => {
      await deps.ledger.append(job.id, began);
      throw new MgwError('budget', 'full', { charged: 'no' });
    };
    expect(await runAgain(deps, job, orderOf({ upload }))).toMatchObject({ exit: 12 });
    expect((await deps.ledger.read(job.id))?.state).toBe('prepared');
  });

  it('has a job that is in doubt again if a process died before it sent the job again', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push((_, response) => response.destroy());
    const deps = await depsFor(server.url, state);
    const { job } = await run(deps);
    if (job === undefined) throw new Error('no job');
    const resent = await resolveJob(deps.ledger, job, { how: 'resubmit' });
    expect(shownState(resent)).toBe('unknown');
    const liveRun = {
      ...{ run: 'r', owner: currentOwner(), output: undefined },
      command: 'submit',
      ask: 'accept',
    } as const;
    const live = { ...resent, record: { ...resent.record, runs: [liveRun], lifeOf: () => 'alive' as const } };
    expect(noHandleError(live)).toMatchObject({ code: 'unreachable', charged: 'maybe' });
    for (const again of [{}, { key: 'other' }]) expect((await run(deps, orderOf(again))).exit).toBe(7);
    expect(server.requests).toHaveLength(1);
    expect(noHandleError(resent)).toMatchObject({ code: 'submit_unknown', charged: 'maybe' });
    expect(await removeJob(deps.ledger, resent, false, () => Promise.resolve([]))).toBe('open');
    expect((await resolveJob(deps.ledger, resent, { how: 'not-created' })).state).toBe('rejected');
  });
});

describe('an event that cannot be recorded', () => {
  /** Submits with a ledger that refuses one type of event. */
  async function without(
    type: JobEvent['type'],
    ...answers: Answer[]
  ): Promise<{ server: HttpServer; state: string; first: Ran; notes: string[] }> {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(...answers);
    const { ledger, ...deps } = await depsFor(server.url, state);
    const append: typeof ledger.append = (id, event) =>
      event.type === type
        ? Promise.reject(new MgwError('local_io', 'the disk is full'))
        : ledger.append(id, event);
    const first = await run({ ...deps, ledger: { ...ledger, append } });
    return { server, state, first, notes: deps.notes };
  }

  it('leads to exit 10 with the handle if it is `accepted`, and the rerun reads the handle from the recorded response', async () => {
    const { first, server, state } = await without('accepted');
    expect(first).toMatchObject({ exit: 10, error: { charged: 'yes', retry: 'never' } });
    expect(first.error?.handle).toBe('task_0001');
    expect(first.error?.message).toContain('task_0001');
    expect(first.error?.next).toEqual(['mgw', 'jobs', 'resolve', first.job?.id, '--adopt', 'task_0001']);
    const again = await run(await depsFor(server.url, state));
    expect(again).toMatchObject({ exit: 0, job: { handle: 'task_0001' } });
    expect(server.created).toBe(1);
  });

  it('leads to exit 10 with the handle, and a command that fetches it, if the job was removed before it is `accepted`', async () => {
    const server = await httpServer();
    const { ledger, ...deps } = await depsFor(server.url, freshFolder());
    const append: typeof ledger.append = async (id, event) => {
      if (event.type === 'accepted') await ledger.remove(id);
      await ledger.append(id, event);
    };
    const { exit, error } = await run({ ...deps, ledger: { ...ledger, append } });
    expect([exit, error?.handle]).toEqual([10, 'task_0001']);
    expect(error?.next).toEqual(['mgw', 'video', 'c', 'fetch', 'task_0001']);
    expect(error?.message).toMatch(
      /^Job job_\w+ was removed while this command ran. Its task is task_0001.$/,
    );
  });

  it('does not prevent the handle from being recorded if it is `reply`', async () => {
    const { first, state, notes } = await without('reply');
    expect(notes).toEqual(['Could not record the response: the disk is full']);
    expect(first).toMatchObject({ exit: 0, job: { handle: 'task_0001' } });
    expect(jobText(state)).toContain('"type":"accepted"');
  });

  it('leads to exit 10 if it belongs to a resumed job, unless the job was removed: then a new job is created', async () => {
    for (const isRemoved of [false, true]) {
      const [server, state] = [await httpServer(), freshFolder()];
      server.answers.push(says({}, 429));
      const { job } = await run(await depsFor(server.url, state, { retries: 0 }));
      const { ledger, ...deps } = await depsFor(server.url, state);
      const append: typeof ledger.append = async (id, event) => {
        if (id !== job?.id) return ledger.append(id, event);
        if (isRemoved) await ledger.remove(id);
        throw new MgwError('local_io', 'it cannot be written');
      };
      const ran = await run({ ...deps, ledger: { ...ledger, append } });
      expect(ran.exit).toBe(isRemoved ? 0 : 10);
      expect(ran.job?.id).not.toBe(job?.id);
      expect(server.created).toBe(isRemoved ? 1 : 0);
    }
  });

  it('leads to exit 10 with the handle if it is `accepted`, even if the ledger reports no error', async () => {
    const server = await httpServer();
    const { ledger, ...deps } = await depsFor(server.url, freshFolder());
    const append: typeof ledger.append = (id, event) =>
      event.type === 'accepted' ? Promise.resolve() : ledger.append(id, event);
    const ran = await run({ ...deps, ledger: { ...ledger, append } });
    expect(ran).toMatchObject({ exit: 10, error: { charged: 'yes', handle: 'task_0001' } });
  });

  it.each<[JobEvent['type'], Answer, number, string]>([
    ['rejected', says({ error: { message: 'no' } }, 422), 4, 'no'],
    ['unknown', says('<html>'), 7, 'maybe'],
  ])('does not change the exit code for the response if it is `%s`', async (type, answer, exit, charged) => {
    const { first, notes } = await without(type, answer);
    expect(first).toMatchObject({ exit, error: { charged } });
    expect(notes).toEqual(['Could not record the outcome of the submission: the disk is full']);
  });
});
