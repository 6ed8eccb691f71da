import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import {
  deliverFound,
  fetch,
  planFetches,
  queryJob,
  waitFor,
  type PlannedFetch,
} from '../../src/flows/fetch.ts';
import type { FlowDeps } from '../../src/flows/settings.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import type { Job, JobEvent } from '../../src/job.ts';
import type { Target } from '../../src/jobs/output.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Observation, Protocol, QueryVerdict } from '../../src/protocols/protocol.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { freshFolder } from '../support/servers.ts';
import { countingClient, flowDeps, jobWith } from './flow-deps.ts';

const failure = { code: 'unreachable', message: 'no', requestId: 'r1' } as const;
const anyId = expect.any(String) as string;
const none = [] as unknown as Parameters<GatewayClient['exchange']>;
const endless = { remainingMs: () => Infinity };

/** Returns a protocol and a client whose polls all have the given verdict. Counts the polls. */
function verdictOf(verdict: QueryVerdict): {
  protocol: Protocol;
  client: GatewayClient;
  callCount: () => number;
} {
  return { protocol: { ...c, readQuery: () => verdict }, ...countingClient() };
}

const seen = (state: Observation['state'], more: Partial<Observation> = {}): Observation => ({
  kind: 'observation',
  state,
  nativeStatus: state,
  results: [],
  ...more,
});
const running: JobEvent = {
  type: 'began',
  run: 'r',
  owner: currentOwner(),
  command: 'submit',
  ask: 'accept',
};
const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const result = {
  sources: [{ kind: 'url', url: 'https://files.example/1.mp4' }],
} as unknown as Observation['results'][number];

it('a command that waits for a job prints the handle if the job is removed, because nothing else identifies the task', async () => {
  const { protocol, client } = verdictOf(seen('running'));
  const deps = await flowDeps(freshFolder(), { client });
  const job = await jobWith(deps.ledger, 'c', accepted);
  const removing = {
    ...client,
    exchange: () => deps.ledger.remove(job.id).then(() => client.exchange(...none)),
  };
  const waiting = { ask: 'finish', force: false, deadline: endless } as const;
  const waited = deliverFound(job, protocol, 'wait', waiting, { ...deps, client: removing });
  const error = (await waited.catch((thrown: unknown) => thrown)) as MgwError;
  expect(error).toMatchObject({ exitCode: 10, charged: 'yes', retry: 'never', handle: 'task_1' });
  expect(error.next).toEqual(['mgw', 'video', 'c', 'fetch', 'task_1']);
  expect(error.message).toMatch(/^Job job_\w+ was removed/);
});

it.each<[string, JobEvent[], RegExp]>([
  [
    'suggests the command that created it if no process works on it',
    [],
    /To send it, repeat the command that created it/,
  ],
  // Running the same command again would pay for a second take.
  ['reports that the process that works on it will send it', [running], /is still running and will send it/],
])('the error about a wait for an unsent job %s', async (_, events, message) => {
  const deps = await flowDeps(freshFolder());
  const job = await jobWith(deps.ledger, 'c', ...events);
  const waiting = { ask: 'finish', force: false, deadline: endless } as const;
  const error = await deliverFound(job, c, 'wait', waiting, deps).catch(
    (thrown: unknown) => thrown as MgwError,
  );
  expect(error).toMatchObject({
    exitCode: 6,
    charged: 'no',
    message: expect.stringMatching(message) as string,
  });
});

it.each<[string, JobEvent[]]>([
  ['accepted', [accepted]],
  ['never sent', []],
])(
  'a command on a job that was %s exits with 2 with "No such job" if another command has just removed the job',
  async (_, events) => {
    const { protocol, client, callCount } = verdictOf(seen('running'));
    const deps = await flowDeps(freshFolder(), { client });
    const job = await jobWith(deps.ledger, 'c', ...events);
    await deps.ledger.remove(job.id);
    await expect(waitFor({ job, protocol }, endless, deps)).rejects.toMatchObject({
      exitCode: 2,
      message: `No such job: ${job.id}.`,
    });
    expect(callCount()).toBe(0);
  },
);

it('a wait ends with the task, saves no file, and reports that an earlier run paid', async () => {
  const { protocol, client } = verdictOf(seen('succeeded', { results: [result] }));
  const deps = await flowDeps(freshFolder(), { client });
  const job = await jobWith(deps.ledger, 'c', accepted);
  expect(await waitFor({ job, protocol }, endless, deps)).toMatchObject({
    job: { id: job.id, state: 'succeeded' },
    files: [],
    isResumed: true,
  });
});

describe('a single query', () => {
  const ask = async (
    verdict: QueryVerdict,
    events: JobEvent[] = [accepted],
  ): Promise<[string, number | undefined, MgwError | undefined, string[], number]> => {
    const { protocol, client, callCount } = verdictOf(verdict);
    const deps = await flowDeps(freshFolder(), { client });
    const { job, error } = await queryJob(await jobWith(deps.ledger, 'c', ...events), protocol, deps);
    return [job.state, error?.exitCode, error, deps.notes, callCount()];
  };

  it.each<[string, QueryVerdict, [state: string, exit: number | undefined], object]>([
    ['causes no error if the task is running', seen('running'), ['running', undefined], {}],
    [
      'reports success if it returns results',
      seen('succeeded', { results: [result] }),
      ['succeeded', undefined],
      {},
    ],
    [
      'leads to exit 9 if the task succeeded but the query returns no result',
      seen('succeeded'),
      ['succeeded', 9],
      { charged: 'yes', next: ['mgw', 'jobs', 'show', anyId] },
    ],
    ['leads to exit 5 if the task failed', seen('failed', { failure }), ['failed', 5], {}],
    [
      'leads to exit 3 if the key is refused',
      { kind: 'unauthorized', failure },
      ['queued', 3],
      { charged: 'yes', retry: 'resume', next: ['mgw', 'auth', 'status'] },
    ],
    [
      'leads to exit 9 if the gateway does not know the task',
      { kind: 'missing', failure },
      ['queued', 9],
      {
        ...{ charged: 'yes', retry: 'never', requestId: 'r1', next: ['mgw', 'jobs', 'show', anyId] },
        message: expect.stringContaining('does not know the task') as string,
      },
    ],
    [
      'leads to exit 6 if it gets no response',
      { kind: 'again', failure },
      ['queued', 6],
      { charged: 'no', retry: 'safe' },
    ],
    [
      'causes no error if it returns no new state',
      { kind: 'again', failure, hasNoStateYet: true },
      ['queued', undefined],
      {},
    ],
  ])('%s', async (_, verdict, outcome, error) => {
    const ran = await ask(verdict);
    expect(ran.slice(0, 2)).toEqual(outcome);
    expect(ran[2] ?? {}).toMatchObject(error);
  });

  it('leads to exit 6 for an unknown task just after its submission, because the gateway may not know the task yet', async () => {
    const sending: JobEvent = { type: 'sending', attempt: 1, owner: { pid: 1, start: '', host: '' } };
    const [, exit, error] = await ask({ kind: 'missing', failure }, [sending, accepted]);
    expect([exit, error?.charged, error?.retry]).toEqual([6, 'no', 'safe']);
    expect(error?.message).toBe('The gateway does not know the task task_1 yet: no');
    expect(error?.next).toEqual(['mgw', 'jobs', 'wait', anyId]);
  });

  it('leads to exit 9 for an unknown task just after its submission if the task has succeeded', async () => {
    const sending: JobEvent = { type: 'sending', attempt: 1, owner: { pid: 1, start: '', host: '' } };
    const finished: JobEvent = { type: 'finished', state: 'succeeded', native_status: '', results: 1 };
    const [, exit, error] = await ask({ kind: 'missing', failure }, [sending, accepted, finished]);
    expect([exit, error?.charged]).toEqual([9, 'yes']);
  });

  it("prints the gateway's warning", async () => {
    expect((await ask(seen('running', { warning: 'slow today' })))[3]).toEqual(['slow today']);
  });

  it('is not sent for a job without a handle', async () => {
    const owner = { pid: 1, start: '', host: '' };
    const sending: JobEvent = { type: 'sending', attempt: 1, owner };
    const unknown: JobEvent = { type: 'unknown', attempt: 1, error: { code: 'submit_unknown', message: '' } };
    expect(await ask(seen('running'), [sending])).toMatchObject(['sending', undefined, undefined, [], 0]);
    expect(await ask(seen('running'), [sending, unknown])).toMatchObject(['unknown', 7, {}, [], 0]);
    expect(await ask(seen('running'), [])).toMatchObject(['prepared', 6, {}, [], 0]);
  });
});

async function planned(job: Job, target: Target, deps: FlowDeps, protocol?: Protocol): Promise<PlannedFetch> {
  const plan = await planFetches([job.id], target, deps, ['jobs', 'fetch']);
  const one = plan.get(job.id);
  if (one === undefined || 'error' in one) throw new Error('there is no plan');
  return { ...one, ...(protocol && { protocol }) };
}

it('a job that is named by two REFs is fetched once, under the first REF', async () => {
  const state = freshFolder();
  const deps = await flowDeps(state, {});
  const { id } = await jobWith(deps.ledger, 'c', accepted);
  const target = { kind: 'file', path: state } as const;
  const plan = await planFetches(['task_1', id], target, deps, ['jobs', 'fetch']);
  expect([...plan.keys()]).toEqual(['task_1']);
});

it('fetch waits for the task, unless --no-wait is set', async () => {
  const state = freshFolder();
  const { client, callCount } = countingClient();
  const readQuery = (): QueryVerdict => (callCount() < 3 ? seen('running') : seen('failed', { failure }));
  const deps = await flowDeps(state, { client });
  const target = { kind: 'file', path: join(state, 'boat.mp4') } as const;
  const plan = await planned(await jobWith(deps.ledger, 'c', accepted), target, deps, { ...c, readQuery });
  const wishes = { force: false, deadline: endless };
  await expect(fetch(plan, { ...wishes, wait: false }, deps)).rejects.toMatchObject({ exitCode: 8 });
  expect(callCount()).toBe(1);
  await expect(fetch(plan, wishes, deps)).rejects.toMatchObject({ exitCode: 5 });
  expect(callCount()).toBe(3);
});

it('fetch refuses an output that cannot be written before it waits, unless the job has succeeded', async () => {
  const state = freshFolder();
  const { client, callCount } = countingClient();
  const readQuery = (): QueryVerdict => seen('failed', { failure });
  const deps = await flowDeps(state, { client });
  const path = join(state, 'boat.mp4');
  writeFileSync(path, '');
  const job = await jobWith(deps.ledger, 'c', accepted);
  const plan = await planned(job, { kind: 'file', path }, deps, { ...c, readQuery });
  const fetched = fetch(plan, { force: false, deadline: endless }, deps);
  await expect(fetched).rejects.toMatchObject({ code: 'output_exists', charged: 'yes', retry: 'resume' });
  expect(callCount()).toBe(0);
  await deps.ledger.append(job.id, { type: 'finished', state: 'succeeded', native_status: '', results: 1 });
  const late = fetch(plan, { force: false, deadline: { remainingMs: () => 0 } }, deps);
  await expect(late).rejects.toMatchObject({ exitCode: 8 });
});

it('fetch finds a file that the job saved through another symbolic link', async () => {
  const state = freshFolder();
  mkdirSync(join(state, 'real'));
  symlinkSync('real', join(state, 'link'));
  const [real, link] = [join(state, 'real', 'boat.mp4'), join(state, 'link', 'boat.mp4')];
  writeFileSync(real, 'a boat at sea');
  const sha256 = createHash('sha256').update('a boat at sea').digest('hex');
  const { protocol } = verdictOf(seen('succeeded', { results: [result] }));
  const deps = await flowDeps(state, countingClient());
  const job = await jobWith(
    deps.ledger,
    'c',
    accepted,
    { type: 'finished', state: 'succeeded', native_status: '', results: 1 },
    { type: 'file', file: { path: real, bytes: 13, sha256 } },
  );
  const plan = await planned(job, { kind: 'file', path: link }, deps, protocol);
  const done = await fetch(plan, { force: false, deadline: endless }, deps);
  expect(done.files).toMatchObject([{ path: link, sha256 }]);
});

describe('fetch --no-wait', () => {
  const fetched = async (verdict: QueryVerdict, ...events: JobEvent[]): Promise<[MgwError, number]> => {
    const state = freshFolder();
    const { protocol, client, callCount } = verdictOf(verdict);
    const deps = await flowDeps(state, { client });
    const target = { kind: 'file', path: join(state, 'boat.mp4') } as const;
    const plan = await planned(await jobWith(deps.ledger, 'c', ...events), target, deps, protocol);
    const wishes = { force: false, deadline: { remainingMs: () => 0 }, wait: false };
    const error: unknown = await fetch(plan, wishes, deps).catch((reason: unknown) => reason);
    if (!(error instanceof MgwError)) throw error;
    return [error, callCount()];
  };

  it.each<[string, QueryVerdict]>([
    ['is in the queue', seen('queued')],
    ['runs', seen('running')],
    ['cannot be queried', { kind: 'again', failure, hasNoStateYet: true }],
  ])('exits with 8 after one query if the task %s', async (_, verdict) => {
    const [error, callCount] = await fetched(verdict, accepted);
    expect([error.exitCode, error.job?.handle, callCount]).toEqual([8, 'task_1', 1]);
  });

  it("exits with the query's error if the query fails", async () => {
    const [error, callCount] = await fetched({ kind: 'unauthorized', failure }, accepted);
    expect([error.exitCode, error.job?.handle, callCount]).toEqual([3, 'task_1', 1]);
  });

  it('fetches the result if the task has ended', async () => {
    expect((await fetched(seen('failed', { failure }), accepted))[0].exitCode).toBe(5);
  });

  it('sends no query if the success is recorded or the job has no handle', async () => {
    const finished: JobEvent = { type: 'finished', state: 'succeeded', native_status: '', results: 1 };
    // Only the download sends a query, and the query ends at the deadline.
    expect((await fetched(seen('running'), accepted, finished))[1]).toBe(1);
    expect(await fetched(seen('running'))).toMatchObject([{ exitCode: 6 }, 0]);
  });
});

describe('saved speech', () => {
  // An MP3 frame begins with these two bytes.
  const audio = Buffer.from('\xff\xfbaudio', 'latin1');
  const sha256 = createHash('sha256').update(audio).digest('hex');

  const spoken = async (
    folder: string,
  ): Promise<{ deps: Awaited<ReturnType<typeof flowDeps>>; job: Job }> => {
    const deps = await flowDeps(join(folder, 'state'));
    const path = join(folder, 'speech.mp3');
    writeFileSync(path, audio);
    const job = await jobWith(
      deps.ledger,
      'tts',
      { type: 'accepted', handle: 'speech' },
      { type: 'finished', state: 'succeeded', native_status: '' },
      { type: 'file', file: { path, bytes: audio.length, sha256, mime: 'audio/mpeg' } },
    );
    return { deps, job };
  };
  const wishes = { force: false, deadline: endless };

  it('is copied to a second file, and the copy is recorded for the job', async () => {
    const folder = freshFolder();
    const { deps, job } = await spoken(folder);
    const path = join(folder, 'copy.mp3');
    const done = await fetch(await planned(job, { kind: 'file', path }, deps), wishes, deps);
    expect(readFileSync(path)).toEqual(audio);
    expect(done.files).toMatchObject([{ path, sha256, mime: 'audio/mpeg' }]);
    expect(done.job.files.map((file) => file.path)).toContain(path);
    expect((await deps.ledger.read(job.id))?.files).toHaveLength(2);
  });

  it('is one file, so {n} in the output is 1', async () => {
    const folder = freshFolder();
    const { deps, job } = await spoken(folder);
    const target = { kind: 'file', path: join(folder, 'copy{n}.mp3') } as const;
    const done = await fetch(await planned(job, target, deps), wishes, deps);
    expect(done.files).toMatchObject([{ path: join(folder, 'copy1.mp3') }]);
  });

  it.each(['copy.wav', 's3://media/copy.ogg'])(
    'is not copied to %s, whose extension belongs to a different format',
    async (name) => {
      const folder = freshFolder();
      const { deps, job } = await spoken(folder);
      const path = name.includes(':') ? name : join(folder, name);
      await expect(
        fetch(await planned(job, { kind: 'file', path }, deps), wishes, deps),
      ).rejects.toMatchObject({ exitCode: 2, message: expect.stringContaining('extension .mp3') as string });
      expect(readdirSync(folder)).toEqual(['speech.mp3', 'state']);
      const other = { kind: 'file', path: join(folder, 'copy.bin') } as const;
      expect((await fetch(await planned(job, other, deps), wishes, deps)).files).toHaveLength(1);
    },
  );

  it('is marked in the copy if a mark is requested', async () => {
    const folder = freshFolder();
    const { deps, job } = await spoken(folder);
    const path = join(folder, 'copy.mp3');
    const plan = await planned(job, { kind: 'file', path }, deps);
    const done = await fetch(plan, { ...wishes, mark: true }, deps);
    expect(done.files).toMatchObject([{ path, unmarked_sha256: sha256 }]);
    expect(readFileSync(path).includes('trainedAlgorithmicMedia')).toBe(true);
    expect(deps.notes).toEqual([]);
  });

  it('is written to standard output, with a note that the stream cannot be marked', async () => {
    const { deps, job } = await spoken(freshFolder());
    const plan = await planned(job, { kind: 'stdout' }, deps);
    const stdout = new PassThrough();
    const done = await fetch(plan, { ...wishes, mark: true }, deps, { stdout });
    expect([stdout.read(), done.files]).toEqual([audio, []]);
    expect(deps.notes).toHaveLength(1);
    await fetch(plan, wishes, deps, { stdout });
    expect(deps.notes).toHaveLength(1);
    await expect(fetch(plan, wishes, deps)).rejects.toMatchObject({ code: 'internal' });
  });

  it('is uploaded once if the output is an object, without a leftover file even after a killed run', async () => {
    const { deps: own, job } = await spoken(freshFolder());
    const calls: string[] = [];
    let local = '';
    const store = {
      has: (url: string) => Promise.resolve(calls.includes(`put ${url}`)),
      put: (url: string, { path }: { path: string }) => {
        expect(readFileSync(path)).toEqual(audio);
        local = path;
        calls.push(`put ${url}`);
        return Promise.resolve();
      },
    } as Partial<ObjectStore> as ObjectStore;
    const deps = { ...own, objects: () => Promise.resolve(store) };
    const target = { kind: 'file', path: 's3://media/speech.mp3' } as const;
    const left = (): string[] => (existsSync(deps.uploadFolder) ? readdirSync(deps.uploadFolder) : []);
    for (let run = 1; run <= 2; run += 1) {
      const last = (await deps.ledger.read(job.id)) ?? job;
      const done = await fetch(await planned(last, target, deps), wishes, deps);
      expect(done.files).toMatchObject([{ path: target.path, sha256, mime: 'audio/mpeg' }]);
      expect(done.job.files.map(({ path }) => path)).toContain(target.path);
      expect(left()).toEqual([]);
      // A run that is killed after the upload leaves this local file.
      writeFileSync(local, audio);
    }
    expect(calls).toEqual(['put s3://media/speech.mp3']);
  });

  it('is available without a wait', async () => {
    const { deps, job } = await spoken(freshFolder());
    const done = await waitFor({ job }, endless, deps);
    expect([done.job, done.files, done.isResumed]).toEqual([job, [], true]);
    const failed = await jobWith(deps.ledger, 'tts', {
      type: 'rejected',
      error: { code: 'auth', message: '' },
    });
    await expect(waitFor({ job: failed }, endless, deps)).rejects.toMatchObject({ job: { id: failed.id } });
  });
});
