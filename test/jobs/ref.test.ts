import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { JobEvent } from '../../src/job.ts';
import { enrol } from '../../src/ledger/chain.ts';
import { holderText, newJobId } from '../../src/ledger/names.ts';
import {
  checkKeyName,
  findJob,
  importHandle,
  keyConflict,
  keyOfRetry,
  latestRetry,
} from '../../src/jobs/ref.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { freshFolder, httpServer, says, type Answer } from '../support/servers.ts';
import { deadOwner, depsFor, type TestDeps } from './harness.ts';

let state: string;
let deps: TestDeps;
beforeEach(async () => {
  state = freshFolder();
  deps = await depsFor('http://127.0.0.1:9', state);
});

async function make(time: number, protocol: string, handle?: string, base_url = 'test'): Promise<string> {
  const id = newJobId(time);
  const prepared: JobEvent = { type: 'prepared', protocol, base_url, fingerprint: '', account: '' };
  await deps.ledger.create(id, handle === undefined ? [prepared] : [prepared, { type: 'accepted', handle }]);
  return id;
}

it('the key "last" is refused, because @last is the newest job', () => {
  expect(() => checkKeyName('last', undefined)).toThrow('@last is the newest job');
  expect(() => checkKeyName('last-2', undefined)).not.toThrow();
});

it.each([
  ['was never sent and has', 'rm', []],
  ['was submitted with', 'show', [{ type: 'accepted', handle: 't' }]],
  ['was submitted with', 'show', [{ type: 'sending', attempt: 1, owner: deadOwner() }]],
  ['was submitted with', 'show', [{ type: 'rejected', error: { code: 'rejected', message: 'm' } }]],
  ['was submitted with', 'show', [undefined]],
])(
  'the error for a used key says that its job %s a different request, and suggests jobs %s',
  async (past, command, events) => {
    const id = newJobId(1);
    const fields = { protocol: 'c', base_url: 'test', fingerprint: '', account: '', key: 'boat' };
    await deps.ledger.create(id, [{ type: 'prepared', ...fields }, ...(events as JobEvent[])]);
    const job = await deps.ledger.read(id);
    if (job === undefined) throw new Error(id);
    const { message, next } = keyConflict('boat', job, ['prompt']);
    expect(message).toContain(`${past} a different request: prompt`);
    expect(next).toEqual(['mgw', 'jobs', command, id]);
  },
);

describe('a REF', () => {
  it('may be a job id or a unique part of one', async () => {
    const [one, two] = [await make(1, 'a'), await make(2 ** 40, 'a')];
    expect((await findJob(deps.ledger, one))?.id).toBe(one);
    expect((await findJob(deps.ledger, two.slice(-10)))?.id).toBe(two);
    await expect(findJob(deps.ledger, 'job_')).rejects.toMatchObject({ exitCode: 2 });
    await expect(findJob(deps.ledger, newJobId(3))).rejects.toMatchObject({ exitCode: 2 });
    expect(await findJob(deps.ledger, 'zzzz')).toBeUndefined();
    expect(await findJob(deps.ledger, one.slice(4, 7))).toBeUndefined();
  });

  it('may be @last, which selects only jobs of the specified protocol, if any', async () => {
    await expect(findJob(deps.ledger, '@last')).rejects.toMatchObject({ exitCode: 2 });
    const [first, second] = [await make(1, 'a'), await make(2, 'b')];
    expect((await findJob(deps.ledger, '@last'))?.id).toBe(second);
    expect((await findJob(deps.ledger, '@last', 'a'))?.id).toBe(first);
    await expect(findJob(deps.ledger, '@last', 'c')).rejects.toMatchObject({ exitCode: 2 });
  });

  it("may be a job's key", async () => {
    const id = newJobId(1);
    const fields = { protocol: 'c', base_url: 'test', fingerprint: '', account: '', key: 'boat' };
    await deps.ledger.create(id, [{ type: 'prepared', ...fields }]);
    const holder = { job: id, fingerprint: 'f', owner: deadOwner() };
    await deps.ledger.claim('key.boat', holderText(holder));
    expect((await findJob(deps.ledger, '@boat'))?.id).toBe(id);
    await expect(findJob(deps.ledger, '@ship')).rejects.toMatchObject({ exitCode: 2 });
    await deps.ledger.claim(`send.${id}.1`, '{}');
    rmSync(join(state, 'jobs', `${id}.jsonl`));
    await expect(findJob(deps.ledger, '@boat')).rejects.toMatchObject({ exitCode: 7 });
    await deps.ledger.create(id, [undefined]);
    await deps.ledger.remove(id);
    await expect(findJob(deps.ledger, '@boat')).rejects.toMatchObject({ exitCode: 2 });
  });

  it.each(['task_1', '12345678901234567890', 'models/m/operations/x', 'é/../?#'])(
    'may be a handle: %s',
    async (handle) => {
      const id = await make(1, 'a', handle);
      await make(2, 'a', 'other');
      expect((await findJob(deps.ledger, handle))?.id).toBe(id);
    },
  );

  it('that is the handle of several jobs selects the job of the configured gateway and the specified protocol, or is refused as ambiguous', async () => {
    const [one, two] = [await make(1, 'c', '424', 'https://one.example'), await make(2, 'c', '424')];
    const find = (protocol?: string, gateway?: string): Promise<string | undefined> =>
      findJob(deps.ledger, '424', protocol, gateway).then((job) => job?.id);
    expect(await find('c', 'https://one.example/')).toBe(one);
    expect(await find('c', 'test')).toBe(two);
    for (const ambiguous of [find(), find('c'), find('c', 'https://other.example')])
      await expect(ambiguous).rejects.toMatchObject({
        exitCode: 2,
        message: expect.stringMatching(
          `^424 is the handle of 2 jobs: ${two} .*, ${one} .*one.example`,
        ) as string,
      });
    const three = await make(3, 'a', '424');
    expect([await find('a', 'test'), await find('c', 'test')]).toEqual([three, two]);
    await expect(find(undefined, 'test')).rejects.toMatchObject({ exitCode: 2 });
    expect(await find('c', 'https://one.example')).toBe(one);
  });

  it('selects the newest of several jobs with the same task if it is a handle', async () => {
    const [, newest] = [await make(1, 'c', 'task_1'), await make(2, 'c', 'task_1')];
    expect((await findJob(deps.ledger, 'task_1'))?.id).toBe(newest);
  });

  it('may be a handle even if the index is lost', async () => {
    const id = await make(1, 'a', 'task_1');
    await make(2, 'a', 'task_2');
    rmSync(join(state, 'handles.log'));
    expect((await findJob(deps.ledger, 'task_1'))?.id).toBe(id);
  });

  it('is never used as the handle of a task that was started elsewhere if it begins with job_ or @', async () => {
    for (const ref of ['job_zzz', 'job_', '@nothing'])
      await expect(findJob(deps.ledger, ref)).rejects.toMatchObject({ exitCode: 2 });
  });
});

describe('a handle from elsewhere', () => {
  const answers = async (...replies: Answer[]): Promise<TestDeps> => {
    const server = await httpServer();
    server.answers.push(...replies);
    return depsFor(server.url, state);
  };

  it('becomes an accepted job once the gateway confirms it', async () => {
    const there = await answers(says({ task_id: 'task_9', status: 'processing' }));
    const job = await importHandle('task_9', c, there);
    expect(job).toMatchObject({ protocol: 'c', handle: 'task_9', state: 'running', base_url: 'test' });
    expect((await findJob(there.ledger, 'task_9'))?.id).toBe(job.id);
  });

  it.each([
    ['not found', says({ code: 'task_not_exist', message: 'task_not_exist', data: null }, 400), 9],
    ['no task', says({ code: 'success', data: null }), 9],
    ['a refused key', says({ error: { message: 'Invalid token' } }, 401), 3],
  ])('creates no job if the gateway responds: %s', async (_, answer, exitCode) => {
    const there = await answers(answer);
    await expect(importHandle('task_9', c, there)).rejects.toMatchObject({ exitCode });
    expect(await there.ledger.ids()).toEqual([]);
  });

  it('creates no job if the gateway does not respond', async () => {
    await expect(importHandle('task_9', c, deps)).rejects.toMatchObject({ exitCode: 6, retry: 'safe' });
    expect(await deps.ledger.ids()).toEqual([]);
  });
});

describe("a batch row's latest job", () => {
  // Creates the row's n-th job, and claims its key.
  async function makeRetry(number: number): Promise<string> {
    const id = newJobId(number);
    const key = keyOfRetry('film/boat', number);
    const fields = { protocol: 'c', base_url: 'test', fingerprint: 'f', account: '', key };
    await deps.ledger.create(id, [
      { type: 'prepared', ...fields },
      { type: 'accepted', handle: `t${number}` },
    ]);
    const job = await deps.ledger.read(id);
    if (job !== undefined) await enrol(deps.ledger, job, deadOwner());
    return id;
  }

  it('is found even if the user has removed earlier ones', async () => {
    const [first, second, third] = [await makeRetry(1), await makeRetry(2), await makeRetry(3)];
    for (const removed of [second, first]) {
      await deps.ledger.remove(removed);
      expect(await latestRetry(deps.ledger, 'film/boat')).toMatchObject({ number: 3, job: { id: third } });
    }
  });

  it('is found even if earlier ones were not imported', async () => {
    const third = await makeRetry(3);
    expect(await latestRetry(deps.ledger, 'film/boat')).toMatchObject({ number: 3, job: { id: third } });
  });
});
