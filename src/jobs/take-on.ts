import { MgwError } from '../errors.ts';
import type { Job, JobEvent } from '../job.ts';
import { findByKey, findEarlier, keyClaim } from './earlier.ts';
import { unknownError } from './errors.ts';
import type { JobDeps } from './gateway.ts';
import { newJobId } from '../ledger/job-id.ts';
import { fingerprintOf, recordedBody, type Order } from './order.ts';
import { shownState } from './settle.ts';

/**
 * The job of an order: the one that an earlier run of the same command left open, the one that its `--key` names,
 * or a new one. It is recorded, with this run, before anything is sent (design 4).
 * @throws MgwError: exit 2 where the key names another body, 7 where its record is lost, 10 where nothing can be
 * recorded, and what `beforeSending` throws.
 */
export async function takeOn(order: Order, deps: JobDeps, run: string): Promise<Job> {
  const { ledger, owner } = deps;
  const fingerprint = order.fingerprint ?? fingerprintOf(order, deps.gateway, deps.account);
  const earlier = await findReady(order, deps, fingerprint);
  const own = earlier ?? (await create(order, deps, fingerprint, run));
  const job = order.key === undefined ? own : await claimKey(order.key, own, fingerprint, order, deps);
  const isNew = earlier === undefined && job === own;
  // What is in doubt stays as it is, readable or not: this run will only say so.
  if (isNew || shownState(job) === 'unknown') return job;
  await ledger.append(job.id, { type: 'began', run, owner, ask: order.ask });
  return (await ledger.read(job.id)) ?? job;
}

// What stands in the way of sending may be the result that another process of the same key has just put there.
async function findReady(order: Order, deps: JobDeps, fingerprint: string): Promise<Job | undefined> {
  const earlier = await findJob(order, deps, fingerprint);
  if (earlier !== undefined && !mayBeSent(earlier)) return earlier;
  try {
    await order.beforeSending?.();
    return earlier;
  } catch (error) {
    const last = await findJob(order, deps, fingerprint);
    if (last === undefined || mayBeSent(last)) throw error;
    return last;
  }
}

function mayBeSent(job: Job): boolean {
  return job.handle === undefined && shownState(job) !== 'unknown';
}

async function findJob(order: Order, deps: JobDeps, fingerprint: string): Promise<Job | undefined> {
  if (order.key === undefined) return order.fresh ? undefined : findEarlier(deps.ledger, fingerprint);
  const named = await findByKey(deps.ledger, order.key, fingerprint, order);
  if (named !== undefined) return named;
  const earlier = await findEarlier(deps.ledger, fingerprint);
  return earlier?.key === order.key ? earlier : undefined;
}

async function create(order: Order, deps: JobDeps, fingerprint: string, run: string): Promise<Job> {
  const { ledger, owner } = deps;
  const id = newJobId(deps.clock.now());
  const prepared: JobEvent = {
    type: 'prepared',
    protocol: order.protocol,
    base_url: deps.gateway,
    fingerprint,
    account: deps.account,
    model: order.model,
    key: order.key,
    ...recordedBody(order.body),
  };
  await ledger.create(id, [prepared, { type: 'began', run, owner, ask: order.ask }]);
  await ledger.index('fingerprint', fingerprint, id);
  const job = await ledger.read(id);
  if (job === undefined)
    throw new MgwError('local_io', `The record of job ${id} vanished.`, { retry: 'safe' });
  return job;
}

// Exactly one of any number of processes names the key's job; the others drop theirs, which nobody has sent.
async function claimKey(
  key: string,
  job: Job,
  fingerprint: string,
  order: Order,
  { ledger }: JobDeps,
): Promise<Job> {
  const holder = await ledger.claim(keyClaim(key), `${job.id} ${fingerprint}`);
  if (holder === undefined || holder === `${job.id} ${fingerprint}`) return job;
  if (job.record.attempts > 0) throw unknownError(job, `--key ${key} names another job`);
  await ledger.remove(job.id);
  return (await findByKey(ledger, key, fingerprint, order)) ?? job;
}
