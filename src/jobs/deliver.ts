import { exitCodes, MgwError } from '../errors.ts';
import type { Ask, Job, JobFile } from '../job.ts';
import type { Protocol } from '../protocols/protocol.ts';
import type { JobDeps } from './deps.ts';
import { failedError, interruptedError, showCommand } from './errors.ts';
import { fetchResults, type FetchOptions } from './fetch.ts';
import { removeLeft } from './hold-output.ts';
import { pathsAt, type Target } from './target.ts';
import { watch, type WatchOptions } from './watch.ts';

/** How much of a job is to be delivered; its files where there is a target. */
export interface Delivery extends WatchOptions, Omit<FetchOptions, 'target'> {
  ask: Ask;
  target?: Target;
  /** Called when there is nothing more to wait for. */
  onEnd?: () => void;
}

/**
 * Waits for an accepted job as far as the delivery asks, and saves its files; nothing here costs money.
 * @throws MgwError as `watch` and `fetchResults` do.
 */
export async function deliver(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  delivery: Delivery,
): Promise<JobFile[]> {
  try {
    return await awaited(job, protocol, deps, delivery);
  } catch (error) {
    const { target } = delivery;
    // Nothing that an earlier run has left of it will ever be whole.
    const isOver = error instanceof MgwError && error.exitCode === exitCodes.failed;
    if (isOver && target !== undefined && target.kind !== 'stdout')
      await removeLeft(job, pathsAt(target, job, 1), deps);
    throw error;
  } finally {
    delivery.onEnd?.();
  }
}

async function awaited(job: Job, protocol: Protocol, deps: JobDeps, delivery: Delivery): Promise<JobFile[]> {
  checkHandle(job, protocol);
  if (job.state === 'failed') throw failedError(job);
  const { soft } = deps.signals;
  if (delivery.ask === 'accept') {
    if (soft.aborted) throw interruptedError(soft, job, 'yes');
    return [];
  }
  if (delivery.target !== undefined)
    return fetchResults(job, protocol, deps, { ...delivery, target: delivery.target });
  if (job.state !== 'succeeded' || job.record.results === 0) await watch(job, protocol, deps, delivery);
  return [];
}

// Accepted and paid for under a handle that cannot be asked for: no run of it may look like a success.
function checkHandle(job: Job, protocol: Protocol): void {
  try {
    protocol.query(job.handle ?? '', job.model);
  } catch (error) {
    throw error instanceof MgwError ? error.with({ next: showCommand(job) }) : error;
  }
}
