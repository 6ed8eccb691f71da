import { join } from 'node:path';
import type { FlowDeps } from '../../src/flows/settings.ts';
import type { Job, JobEvent } from '../../src/job.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { newJobId } from '../../src/ledger/names.ts';
import { depsFor, key, type TestDeps } from '../jobs/harness.ts';

/** The dependencies of a flow in one process, with its records in `state`. No gateway answers, and there is no store. */
export async function flowDeps(
  state: string,
  more: Partial<FlowDeps> = {},
): Promise<FlowDeps & Pick<TestDeps, 'notes'>> {
  const deps = await depsFor('http://127.0.0.1:1', state);
  return {
    ...deps,
    key,
    trustedOrigins: [],
    pollIntervalMs: 5000,
    configured: (protocol) => protocol,
    objects: () => Promise.reject(new Error('there is no store')),
    openBudget: () => Promise.reject(new Error('there is no budget')),
    uploadFolder: join(state, 'uploads'),
    ...more,
  };
}

let made = 0;

/** A job with these events after `prepared`. */
export async function jobWith(ledger: Ledger, protocol: string, ...events: JobEvent[]): Promise<Job> {
  const id = newJobId(1_795_000_000_000 + (made += 1));
  const prepared = { type: 'prepared', base_url: 'test', fingerprint: '', account: '' } as const;
  await ledger.create(id, [{ ...prepared, protocol, model: 'vendor-h3' }, ...events]);
  const job = await ledger.read(id);
  if (job === undefined) throw new Error('there is no job');
  return job;
}
