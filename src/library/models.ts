import type { Job } from '../job.ts';
import { findJob, missing } from '../jobs/ref.ts';
import type { Model } from '../protocols/models.ts';
import { fetchModels } from '../flows/models.ts';
import { shownJob, type Calls } from './calls.ts';
import { checkNames } from './inputs.ts';
import type { ModelsOptions } from './options.ts';

const modelsNames: Record<keyof ModelsOptions, true> = {
  protocol: true,
  signal: true,
  giveUp: true,
  timeout: true,
};

/** `models` of a client. */
export function models(calls: Calls, given: ModelsOptions = {}): Promise<Model[]> {
  return calls.run(given, async ({ session, signals, deadline }) => {
    checkNames(given, modelsNames, 'models');
    const { protocol } = given;
    const limits = {
      signal: signals.soft,
      ...(given.timeout !== undefined && { timeoutMs: deadline.leftMs() }),
    };
    const all = await fetchModels(session, undefined, limits);
    return all
      .filter(({ protocols }) => protocol === undefined || protocols.includes(protocol))
      .sort((one, other) => (one.id < other.id ? -1 : 1));
  });
}

/** `job` of a client. */
export function job(calls: Calls, ref: string): Promise<Job> {
  return calls.run({}, async ({ session }) => {
    const found = await findJob(await session.ledger(), ref);
    return shownJob(found ?? missing(ref));
  });
}
