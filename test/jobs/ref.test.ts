import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { JobEvent, ProtocolName } from '../../src/job.ts';
import { keyClaim } from '../../src/jobs/earlier.ts';
import { newJobId } from '../../src/ledger/job-id.ts';
import { findJob, importHandle } from '../../src/jobs/ref.ts';
import { freshFolder } from '../support/servers.ts';
import { depsFor, type TestDeps } from './harness.ts';

let state: string;
let deps: TestDeps;
beforeEach(async () => {
  state = freshFolder();
  deps = await depsFor('http://127.0.0.1:9', state);
});

async function make(time: number, protocol: ProtocolName, handle?: string): Promise<string> {
  const id = newJobId(time);
  const prepared: JobEvent = { type: 'prepared', protocol, base_url: 'test', fingerprint: '', account: '' };
  await deps.ledger.create(id, handle === undefined ? [prepared] : [prepared, { type: 'accepted', handle }]);
  if (handle !== undefined) await deps.ledger.index('handle', handle, id);
  return id;
}

describe('a ref', () => {
  it('is a job id or a part that only one has', async () => {
    const [one, two] = [await make(1, 'a'), await make(2 ** 40, 'a')];
    expect((await findJob(deps.ledger, one))?.id).toBe(one);
    expect((await findJob(deps.ledger, two.slice(-10)))?.id).toBe(two);
    await expect(findJob(deps.ledger, 'job_')).rejects.toMatchObject({ exitCode: 2 });
    await expect(findJob(deps.ledger, newJobId(3))).rejects.toMatchObject({ exitCode: 2 });
    expect(await findJob(deps.ledger, 'zzzz')).toBeUndefined();
    expect(await findJob(deps.ledger, one.slice(4, 7))).toBeUndefined();
  });

  it('is @last, of a protocol where one is given', async () => {
    await expect(findJob(deps.ledger, '@last')).rejects.toMatchObject({ exitCode: 2 });
    const [first, second] = [await make(1, 'a'), await make(2, 'b')];
    expect((await findJob(deps.ledger, '@last'))?.id).toBe(second);
    expect((await findJob(deps.ledger, '@last', 'a'))?.id).toBe(first);
    await expect(findJob(deps.ledger, '@last', 'c')).rejects.toMatchObject({ exitCode: 2 });
  });

  it('is the key of a job', async () => {
    const id = await make(1, 'c');
    await deps.ledger.claim(keyClaim('boat'), `${id} fingerprint`);
    expect((await findJob(deps.ledger, '@boat'))?.id).toBe(id);
    await expect(findJob(deps.ledger, '@ship')).rejects.toMatchObject({ exitCode: 2 });
    await deps.ledger.remove(id);
    await expect(findJob(deps.ledger, '@boat')).rejects.toMatchObject({ exitCode: 2 });
  });

  it.each(['task_1', '12345678901234567890', 'models/m/operations/x', 'é/../?#'])(
    'is a handle: %s',
    async (handle) => {
      const id = await make(1, 'a', handle);
      await make(2, 'a', 'other');
      expect((await findJob(deps.ledger, handle))?.id).toBe(id);
      // The index is no proof by itself: a job that bears another handle is not meant.
      await deps.ledger.index('handle', 'third', id);
      expect(await findJob(deps.ledger, 'third')).toBeUndefined();
    },
  );

  it('is a handle also where the index is damaged', async () => {
    const id = await make(1, 'a', 'task_1');
    await make(2, 'a', 'task_2');
    for (const name of readdirSync(join(state, 'index'))) {
      rmSync(join(state, 'index', name), { recursive: true });
      mkdirSync(join(state, 'index', name));
    }
    expect((await findJob(deps.ledger, 'task_1'))?.id).toBe(id);
  });
});

it('a handle from elsewhere becomes a job that was accepted', async () => {
  const job = await importHandle('task_9', 'c', deps);
  expect(job).toMatchObject({ protocol: 'c', handle: 'task_9', state: 'queued', base_url: 'test' });
  expect((await findJob(deps.ledger, 'task_9'))?.id).toBe(job.id);
});
