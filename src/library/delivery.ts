import { MgwError } from '../errors.ts';
import type { Ask, Job } from '../job.ts';
import type { Delivery } from '../jobs/deliver.ts';
import type { Target } from '../jobs/target.ts';
import type { Call } from './calls.ts';

/** What of a job a call delivers. */
export interface Wanted {
  ask: Ask;
  target?: Target | undefined;
  force: boolean;
  onUpdate?: ((job: Job) => void) | undefined;
}

/** How a call delivers: `atOnce` looks at the job at once. */
export async function deliveryOf(call: Call, wanted: Wanted & { atOnce: boolean }): Promise<Delivery> {
  const { pollIntervalMs, key } = await call.session.gateway();
  const { target, onUpdate, ...rest } = wanted;
  return {
    ...rest,
    ...(target && { target }),
    ...(onUpdate && { onUpdate }),
    deadline: call.deadline,
    intervalMs: pollIntervalMs,
    key,
    trustedOrigins: call.settings.trustedOrigins.value,
    toStdout: () => Promise.reject(new MgwError('internal', 'A library writes nothing to standard output.')),
  };
}
