import { randomUUID } from 'node:crypto';
import type { Job } from '../job.ts';
import type { JobDeps } from './gateway.ts';
import type { Order } from './order.ts';
import { Submission } from './submission.ts';
import { takeOn } from './take-on.ts';

export { UnrecordedHandle } from './errors.ts';

/** A job that was accepted, and the run that this process has on it. */
export interface Submitted {
  job: Job;
  run: string;
  /** True where another run's submission is carried on: this one sent nothing that was accepted. */
  resumed: boolean;
}

/**
 * Submits a body once, or carries on with the earlier submission of the same command: connect, claim and record
 * `sending`, first byte, record the answer raw, read it, record the handle (design 5). Only what the gateway
 * certainly did not handle is tried again.
 * @throws MgwError: exit 3 or 4 refused, 6 never sent, 7 unknown, 10 not recordable, 130/143 interrupted. The
 * job behind it is in `jobOf(error)`.
 */
export async function submit(order: Order, deps: JobDeps): Promise<Submitted> {
  const run = randomUUID().slice(0, 8);
  const job = await takeOn(order, deps, run);
  const submission = new Submission(order, deps, job);
  try {
    return { job: await submission.drive(), run, resumed: !submission.accepted };
  } catch (error) {
    throw withJob(error, job);
  }
}

const jobs = new WeakMap<object, Job>();

/** The job that an error of {@link submit} is about, as far as it was known; read it again for its last state. */
export function jobOf(error: unknown): Job | undefined {
  return typeof error === 'object' && error !== null ? jobs.get(error) : undefined;
}

/** Makes a job known as the one that an error is about; gives the error. */
export function withJob(error: unknown, job: Job): unknown {
  if (error instanceof Error) jobs.set(error, job);
  return error;
}
