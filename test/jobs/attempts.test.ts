import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import type { Job, JobEvent, Owner } from '../../src/job.ts';
import { submit } from '../../src/jobs/submit.ts';
import { resolveJob } from '../../src/flows/resolve.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { names } from '../../src/ledger/names.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { freshFolder, httpServer, says, type Answer } from '../support/servers.ts';
import { deadOwner, depsFor, jobsOf, orderOf, run } from './harness.ts';

const busy = says({ error: { message: 'busy' } }, 429);
const refused = says({ error: { message: 'no' } }, 422);
const afar: Owner = { pid: 7, start: '1', host: 'afar' };
const error = { code: 'submit_unknown', message: 'reset' };

/** Returns a ledger that refuses events of the given types. */
function refusing(ledger: Ledger, ...types: JobEvent['type'][]): Ledger {
  const append: Ledger['append'] = (id, event) =>
    types.includes(event.type)
      ? Promise.reject(new MgwError('local_io', 'the disk is full'))
      : ledger.append(id, event);
  return { ...ledger, append };
}

/** Prepares a job without sending it. */
async function prepared(ledger: Ledger, deps: Parameters<typeof run>[0]): Promise<Job> {
  const unknown = new MgwError('local_io', 'the prices cannot be read');
  await run({ ...deps, priceOf: () => Promise.reject(unknown) });
  const [job] = await jobsOf(ledger);
  if (job === undefined) throw new Error('no job');
  return job;
}

describe('another attempt', () => {
  it('is not made if the refusal of the first attempt could not be recorded', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(busy);
    const deps = await depsFor(server.url, state);
    const ran = await run({ ...deps, ledger: refusing(deps.ledger, 'unavailable') });
    expect(ran).toMatchObject({ exit: 10 });
    expect(deps.clock.pauses).toEqual([]);
    expect(server.requests).toHaveLength(1);
  });

  it('blocks this run only until this run is interrupted, if another process makes the attempt', async () => {
    const deps = await depsFor('http://127.0.0.1:9', freshFolder());
    const job = await prepared(deps.ledger, deps);
    await deps.ledger.claim(`send.${job.id}.1`, JSON.stringify(currentOwner()));
    deps.clock.onSleep = () => deps.soft.abort('SIGINT');
    const waiting = submit(job, orderOf(), deps);
    await expect(waiting).rejects.toMatchObject({ exitCode: 130, charged: 'maybe', job: { id: job.id } });
    const late = submit(job, orderOf({ deadline: { remainingMs: () => 0 } }), deps);
    await expect(late).rejects.toMatchObject({ exitCode: 8, charged: 'maybe' });
  });

  it('is left to another process if that process has started it in the meantime', async () => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(busy);
    const deps = await depsFor(server.url, state, { owner: currentOwner() });
    deps.clock.onSleep = async (count) => {
      const [job] = await jobsOf(deps.ledger);
      const id = job?.id ?? '';
      if (count === 1) await deps.ledger.claim(`send.${id}.2`, JSON.stringify(currentOwner()));
      if (count === 1) await deps.ledger.append(id, { type: 'sending', attempt: 2, owner: currentOwner() });
      if (count === 2) await deps.ledger.append(id, { type: 'accepted', handle: 'task_of_other' });
    };
    expect(await run(deps)).toMatchObject({ exit: 0, isResumed: true, job: { handle: 'task_of_other' } });
    expect(server.requests).toHaveLength(1);
  });

  it.each<[string, JobEvent, number]>([
    ['unknown', { type: 'unknown', attempt: 1, error }, 7],
    ['refused', { type: 'rejected', attempt: 1, error: { code: 'invalid_request', message: 'no' } }, 4],
    ['accepted', { type: 'accepted', handle: 'task_of_other', adopted: true }, 0],
  ])('is neither made nor claimed if the job has become %s in the meantime', async (_, event, exit) => {
    const server = await httpServer();
    server.answers.push(busy);
    const deps = await depsFor(server.url, freshFolder());
    deps.clock.onSleep = async () => {
      const [job] = await jobsOf(deps.ledger);
      await deps.ledger.append(job?.id ?? '', event);
    };
    const ran = await run(deps);
    expect(ran).toMatchObject({ exit });
    expect(server.requests).toHaveLength(1);
    const id = ran.job?.id ?? '';
    expect([id, await deps.ledger.claimed(names.attempt(id, 2))]).toEqual([
      expect.stringMatching(/./),
      undefined,
    ]);
  });

  const broken: Answer = (_, response) => {
    response.writeHead(502, { 'content-length': '100' });
    response.write('{"error"', () => response.destroy());
  };
  it.each<[string, Answer, boolean, number, number]>([
    ['a complete 502', says('<html>bad gateway</html>', 502), true, 0, 2],
    ['a complete 502 without the setting', says('<html>bad gateway</html>', 502), false, 7, 1],
    ['a truncated 502', broken, true, 7, 1],
    ['a 502 with a handle', says({ task_id: 'task_7', error: 'late' }, 502), true, 7, 1],
    ['a 408', says({ error: 'slow' }, 408), true, 7, 1],
  ])(
    'is made only with submit.retry_5xx, and only if no task can have been created: %s',
    async (_, answer, retry5xx, exit, requests) => {
      const [server, state] = [await httpServer(), freshFolder()];
      server.answers.push(answer);
      expect(await run(await depsFor(server.url, state, { retry5xx }))).toMatchObject({ exit });
      expect(server.requests).toHaveLength(requests);
    },
  );
});

it('an attempt is confirmed in the ledger before it is sent, so that a lost event cannot hide the attempt', async () => {
  const server = await httpServer();
  const deps = await depsFor(server.url, freshFolder());
  const { job } = await run(deps);
  expect(await deps.ledger.isConfirmed(names.attempt(job?.id ?? '', 1))).toBe(true);
});

it.each([new MgwError('local_io', 'the prices cannot be read'), new RangeError('a bug')])(
  'an error before the first attempt is reported unchanged, with the job if it is not a bug: %s',
  async (failure) => {
    const deps = await depsFor('http://127.0.0.1:9', freshFolder());
    const job = await prepared(deps.ledger, deps);
    const sent = submit(job, orderOf(), { ...deps, priceOf: () => Promise.reject(failure) });
    const { message } = failure;
    await expect(sent).rejects.toMatchObject({ message, ...('code' in failure && { job: { id: job.id } }) });
  },
);

it('a job that another process has sent since the job was read is not paid for', async () => {
  const deps = await depsFor('http://127.0.0.1:9', freshFolder());
  const job = await prepared(deps.ledger, deps);
  const owner = deadOwner();
  await deps.ledger.claim(names.attempt(job.id, 1), JSON.stringify(owner));
  await deps.ledger.append(job.id, { type: 'sending', attempt: 1, owner });
  await deps.ledger.append(job.id, { type: 'accepted', handle: 'task_1' });
  const priceOf = (): never => expect.unreachable();
  expect(await submit(job, orderOf(), { ...deps, priceOf })).toMatchObject({ isResumed: true });
});

it('a job is not sent again if another process sends it before this process does, and the outcome is unknown', async () => {
  const server = await httpServer();
  const deps = await depsFor(server.url, freshFolder());
  const job = await prepared(deps.ledger, deps);
  const owner = deadOwner();
  const priceOf = async (): Promise<{ subject: string }> => {
    await deps.ledger.claim(names.attempt(job.id, 1), JSON.stringify(owner));
    await deps.ledger.append(job.id, { type: 'sending', attempt: 1, owner });
    await deps.ledger.append(job.id, { type: 'unknown', attempt: 1, error });
    return { subject: 'a test' };
  };
  await expect(submit(job, orderOf(), { ...deps, priceOf })).rejects.toMatchObject({ exitCode: 7 });
  expect(server.requests).toEqual([]);
});

describe('an attempt whose `sending` event cannot be recorded', () => {
  it.each<[string, JobEvent['type'][], number]>([
    ['is recorded as not sent', ['sending'], 1],
    ['is known only to its own process', ['sending', 'unavailable'], 0],
  ])('sends nothing, and %s', async (_, types, attempts) => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state, { owner: currentOwner() });
    const failed = await run({ ...deps, ledger: refusing(deps.ledger, ...types) });
    expect(failed).toMatchObject({ exit: 10, error: { charged: 'no' } });
    expect(server.requests).toHaveLength(0);
    expect((await jobsOf(deps.ledger))[0]).toMatchObject({ state: 'prepared', record: { attempts } });
    const again = await depsFor(server.url, state, { owner: currentOwner() });
    expect(await run(again)).toMatchObject({ exit: 0, job: { id: failed.job?.id } });
    expect(server.created).toBe(1);
  });
});

describe('an attempt without a recorded response', () => {
  it.each<[string, Owner, number, string]>([
    ['is dead', deadOwner(), 7, 'The process ended before the response arrived.'],
    ['is on another host', afar, 7, 'cannot be reached from here and may still be waiting for the response.'],
    ['is alive', currentOwner(), 8, 'is still sending'],
  ])('is not sent again by another process if its own process %s', async (_, owner, exit, message) => {
    const [server, state] = [await httpServer(), freshFolder()];
    const deps = await depsFor(server.url, state);
    const job = await prepared(deps.ledger, deps);
    await deps.ledger.claim(`send.${job.id}.1`, JSON.stringify(owner));
    await deps.ledger.append(job.id, { type: 'sending', attempt: 1, owner });
    const ran = await run(deps, orderOf({ deadline: { remainingMs: () => 0 } }));
    expect(ran).toMatchObject({ exit, error: { charged: 'maybe' } });
    expect(ran.error?.message).toContain(message);
    expect(server.requests).toHaveLength(0);
  });

  it('is not said to have been sent if its process is on another host and recorded nothing', async () => {
    const deps = await depsFor('http://127.0.0.1:9', freshFolder());
    const job = await prepared(deps.ledger, deps);
    await deps.ledger.claim(`send.${job.id}.1`, JSON.stringify(afar));
    const { error } = await run(deps);
    expect(error?.message).toContain('has not recorded whether it sent anything.');
  });
});

describe('a damaged record', () => {
  const answered = (text: string, status: number): JobEvent => ({
    type: 'reply',
    attempt: 1,
    reply: { status, headers: {}, text, complete: true },
  });
  it.each<[string, JobEvent, number]>([
    [
      'is not settled by a refusal, because the refusal may belong to an earlier attempt',
      answered('{"error":{}}', 422),
      7,
    ],
    ['is settled by a handle', answered('{"task_id":"task_7"}', 200), 0],
  ])('%s', async (_, reply, exit) => {
    const [server, state] = [await httpServer(), freshFolder()];
    server.answers.push(refused);
    const deps = await depsFor(server.url, state);
    const job = await prepared(deps.ledger, deps);
    const owner = deadOwner();
    await deps.ledger.claim(`send.${job.id}.1`, JSON.stringify(owner));
    await deps.ledger.append(job.id, { type: 'sending', attempt: 1, owner });
    appendFileSync(join(state, 'jobs', `${job.id}.jsonl`), '{"damaged":true}\n');
    await deps.ledger.append(job.id, reply);
    expect(await run(await depsFor(server.url, state))).toMatchObject({ exit });
    expect(server.requests).toHaveLength(0);
    const types = (await deps.ledger.events(job.id)).map((event) => event?.type);
    expect(types).not.toContain('rejected');
  });
});

describe('two users who resolve one job at the same time', () => {
  it('do not end an attempt that began after the first resolution', async () => {
    const { ledger, ...deps } = await depsFor('http://127.0.0.1:9', freshFolder());
    const { id } = await prepared(ledger, { ...deps, ledger });
    await ledger.append(id, { type: 'sending', attempt: 1, owner: deadOwner() });
    await ledger.append(id, { type: 'unknown', attempt: 1, error });
    const seen = await ledger.read(id);
    if (seen === undefined) throw new Error('no job');
    await resolveJob(ledger, seen, { how: 'resubmit' });
    const owner = currentOwner();
    await ledger.claim(names.attempt(id, 2), JSON.stringify(owner));
    await ledger.append(id, { type: 'sending', attempt: 2, owner });
    await resolveJob(ledger, seen, { how: 'not-created' });
    expect(await ledger.read(id)).toMatchObject({ state: 'sending', record: { attempts: 2 } });
  });
});
