import { EventEmitter, on } from 'node:events';
import { usageError } from '../errors.ts';
import { fetch as fetchResult, planFetches, waitFor } from '../flows/fetch.ts';
import { findJobHere } from '../flows/find-job.ts';
import { fetchModels } from '../flows/models.ts';
import type { Job } from '../job.ts';
import { noSuchJob } from '../jobs/errors.ts';
import { recordedJob } from '../jobs/ref.ts';
import type { Model } from '../exchange.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { depsOf, shownJob, type Calls, checkNames, targetOf } from './calls.ts';
import { protocolNamed } from '../protocols/registry.ts';
import type { Fetched, FetchOptions, ModelsOptions, WaitOptions } from './options.ts';

const waitNames: Record<keyof WaitOptions, true> = {
  protocol: true,
  signal: true,
  giveUp: true,
  timeout: true,
};
const fetchNames: Record<keyof FetchOptions, true> = {
  ...waitNames,
  output: true,
  force: true,
  strict: true,
  mark: true,
};
const modelsNames: Record<keyof ModelsOptions, true> = waitNames;

/** Implements `wait` of a client; `onUpdate` is called with the job at first, and after each poll. */
export function wait(
  calls: Calls,
  ref: string,
  given: WaitOptions = {},
  onUpdate?: (job: Job) => void,
): Promise<Job> {
  return calls.run(given, async (call) => {
    checkNames(given, waitNames, 'wait');
    const deps = await depsOf(call);
    const found = await findJobHere(checkedRef(ref), deps, ['jobs', 'wait'], protocolOf(given));
    const hooks = { onAccepted: onUpdate, onUpdate };
    const { job, delivered } = await waitFor(found, call.deadline, deps, hooks);
    await delivered();
    return shownJob(job);
  });
}

/** Implements `fetch` of a client. */
export function fetch(calls: Calls, ref: string, given: FetchOptions = {}): Promise<Fetched> {
  return calls.run(given, async (call) => {
    checkNames(given, fetchNames, 'fetch');
    const { deadline } = call;
    const { force = false, strict, mark } = given;
    const output = targetOf(given.output);
    const deps = await depsOf(call);
    const refs = [checkedRef(ref)];
    const [planned] = (await planFetches(refs, output, deps, ['jobs', 'fetch'], protocolOf(given))).values();
    if (planned === undefined || 'error' in planned) throw planned?.error ?? noSuchJob(ref);
    const { job, files, delivered } = await fetchResult(planned, { force, deadline, strict, mark }, deps);
    await delivered();
    return { job: shownJob(job), files };
  });
}

function checkedRef(ref: string): string {
  if (typeof ref === 'string' && ref.trim() !== '') return ref;
  throw usageError('A REF is empty. Give a job id, @key, @last or a handle.');
}

function protocolOf({ protocol }: WaitOptions): Protocol | undefined {
  return protocol === undefined ? undefined : protocolNamed(protocol);
}

/** Implements `watch` of a client: a wait that yields the job at each change. Leaving the loop ends the wait. */
export async function* watch(
  calls: Calls,
  ref: string,
  given: WaitOptions = {},
): AsyncGenerator<Job, void, void> {
  const left = new AbortController();
  const signal = given.signal === undefined ? left.signal : AbortSignal.any([given.signal, left.signal]);
  const news = new EventEmitter();
  // If the loop was left, the end of its wait is ignored.
  news.on('error', () => undefined);
  const updates = on(news, 'update', { close: ['end'] }) as AsyncIterable<[Job]>;
  const waiting = wait(calls, ref, { ...given, signal }, (job) => news.emit('update', job)).then(
    (job) => {
      news.emit('update', job);
      news.emit('end');
    },
    (error: unknown) => news.emit('error', error),
  );
  try {
    let last = '';
    for await (const [job] of updates) {
      const shown = [job.state, job.native_status, job.progress].join('\n');
      if (shown !== last) yield shownJob(job);
      last = shown;
    }
  } finally {
    left.abort(new Error('the loop was left'));
    await waiting;
  }
}

/** Implements `job` of a client: returns the job as it is recorded. */
export function job(calls: Calls, ref: string): Promise<Job> {
  return calls.run({}, async ({ session }) => {
    return shownJob(await recordedJob(await session.ledger(), checkedRef(ref)));
  });
}

/** Implements `models` of a client: returns the models that the key may use, sorted by name. */
export function models(calls: Calls, given: ModelsOptions = {}): Promise<Model[]> {
  return calls.run(given, async ({ session, signals }) => {
    checkNames(given, modelsNames, 'models');
    const { protocol } = given;
    const all = await fetchModels(session, undefined, { signal: signals.soft });
    return all
      .filter(({ protocols }) => protocol === undefined || protocols.includes(protocol))
      .sort((one, other) => (one.id < other.id ? -1 : 1));
  });
}
