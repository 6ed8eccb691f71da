import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Job, JobEvent } from '../../src/job.ts';
import { names, newJobId } from '../../src/ledger/names.ts';
import { findJob } from '../../src/jobs/ref.ts';
import { resolveJob, type Resolution } from '../../src/flows/resolve.ts';
import { freshFolder } from '../support/servers.ts';
import { deadOwner, depsFor, type TestDeps } from './harness.ts';

const error = { code: 'submit_unknown', message: 'reset' };
const lost: JobEvent[] = [
  { type: 'sending', attempt: 1, owner: deadOwner() },
  { type: 'unknown', attempt: 1, error },
];

let state: string;
let deps: TestDeps;
beforeEach(async () => {
  state = freshFolder();
  deps = await depsFor('http://127.0.0.1:9', state);
});

async function make(...events: JobEvent[]): Promise<Job> {
  const id = newJobId(1);
  const prepared: JobEvent = { type: 'prepared', protocol: 'c', base_url: '', fingerprint: '', account: '' };
  await deps.ledger.create(id, [prepared, ...events]);
  return again(id);
}

async function again(id: string): Promise<Job> {
  const job = await deps.ledger.read(id);
  if (job === undefined) throw new Error('no job');
  return job;
}

describe('a job in doubt', () => {
  it('continues with the handle that the user adopts', async () => {
    const job = await resolveJob(deps.ledger, await make(...lost), { how: 'adopted', handle: 'task_1' });
    expect(job).toMatchObject({ state: 'queued', handle: 'task_1', error: undefined });
    expect((await findJob(deps.ledger, 'task_1'))?.id).toBe(job.id);
    // Adopting the same handle again is not an error. Another handle is an error once the
    // gateway has confirmed the task.
    expect(await resolveJob(deps.ledger, job, { how: 'adopted', handle: 'task_1' })).toEqual(job);
    await deps.ledger.append(job.id, { type: 'observed', state: 'running', native_status: 'RUNNING' });
    const seen = (await deps.ledger.read(job.id)) ?? job;
    for (const other of [
      { how: 'adopted', handle: 'task_2' },
      { how: 'not-created' },
      { how: 'resubmit' },
    ] as const)
      await expect(resolveJob(deps.ledger, seen, other)).rejects.toMatchObject({
        code: 'conflict',
        exitCode: 2,
      });
  });

  it('is rejected or sent again, as the user decides', async () => {
    expect(await resolveJob(deps.ledger, await make(...lost), { how: 'not-created' })).toMatchObject({
      state: 'rejected',
    });
    expect(await resolveJob(deps.ledger, await make(...lost), { how: 'resubmit' })).toMatchObject({
      state: 'prepared',
    });
  });

  it('is not sent again from a damaged record, but can be resolved in other ways', async () => {
    const made = await make();
    appendFileSync(join(state, 'jobs', `${made.id}.jsonl`), '{"damaged":true}\n');
    const job = await again(made.id);
    expect(job.state).toBe('unknown');
    await expect(resolveJob(deps.ledger, job, { how: 'resubmit' })).rejects.toMatchObject({ exitCode: 2 });
    // The record lacks the lines of two attempts.
    for (const attempt of [1, 2])
      await deps.ledger.claim(names.attempt(job.id, attempt), JSON.stringify(deadOwner()));
    const settled = await resolveJob(deps.ledger, job, { how: 'not-created' });
    expect([settled.state, settled.error?.message]).toEqual([
      'rejected',
      'The user resolved this job as not created.',
    ]);
    expect((await deps.ledger.events(job.id)).at(-1)).toMatchObject({ type: 'resolved', attempt: 2 });
  });
});

it.each<[string, JobEvent[]]>([
  ['prepared', []],
  ['sending', lost.slice(0, 1)],
  ['rejected', [{ type: 'rejected', attempt: 1, error }]],
])('a job in the state %s cannot be resolved', async (_, events) => {
  const job = await make(...events);
  const resolutions: Resolution[] = [
    { how: 'adopted', handle: 't' },
    { how: 'not-created' },
    { how: 'resubmit' },
  ];
  for (const resolution of resolutions)
    await expect(resolveJob(deps.ledger, job, resolution)).rejects.toMatchObject({ code: 'usage' });
  const lifeOf = expect.any(Function) as Job['record']['lifeOf'];
  expect(await again(job.id)).toEqual({ ...job, record: { ...job.record, lifeOf } });
});
