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
import { depsOf, publicJob, type Calls, checkOptions, type OptionKinds, targetOf } from './calls.ts';
import { protocolNamed, protocolNames, unknownProtocolError } from '../protocols/registry.ts';
import type { Fetched, FetchOptions, ModelsOptions, WaitOptions } from './options.ts';

const waitKinds: OptionKinds<WaitOptions> = {
  protocol: 'string',
  signal: 'signal',
  giveUp: 'signal',
  timeout: 'quantity',
};
const fetchKinds: OptionKinds<FetchOptions> = {
  ...waitKinds,
  output: 'string',
  force: 'boolean',
  strict: 'boolean',
  mark: 'boolean',
};
const modelsKinds: OptionKinds<ModelsOptions> = waitKinds;

/** Implements a client's `wait`. Calls `onUpdate` with the job at the start and after each poll. */
export function wait(
  calls: Calls,
  ref: string,
  options: WaitOptions = {},
  onUpdate?: (job: Job) => void,
): Promise<Job> {
  return calls.run('wait', waitKinds, options, async (call) => {
    const deps = await depsOf(call);
    const found = await findJobHere(checkRef(ref), deps, ['jobs', 'wait'], protocolOf(options));
    const hooks = { onAccepted: onUpdate, onUpdate };
    const { job, delivered } = await waitFor(found, call.deadline, deps, hooks);
    await delivered();
    return publicJob(job);
  });
}

/** Implements a client's `fetch`. */
export function fetch(calls: Calls, ref: string, options: FetchOptions = {}): Promise<Fetched> {
  return calls.run('fetch', fetchKinds, options, async (call) => {
    const { deadline } = call;
    const { force = false, strict, mark } = options;
    const output = targetOf(options.output);
    const deps = await depsOf(call);
    const refs = [checkRef(ref)];
    const [planned] = (
      await planFetches(refs, output, deps, ['jobs', 'fetch'], protocolOf(options))
    ).values();
    if (planned === undefined || 'error' in planned) throw planned?.error ?? noSuchJob(ref);
    const { job, files, delivered } = await fetchResult(planned, { force, deadline, strict, mark }, deps);
    await delivered();
    return { job: publicJob(job), files };
  });
}

function checkRef(ref: string): string {
  if (typeof ref === 'string' && ref.trim() !== '') return ref;
  throw usageError('A REF is empty. Use a job id, @key, @last or a handle.');
}

function protocolOf({ protocol }: WaitOptions): Protocol | undefined {
  return protocol === undefined ? undefined : protocolNamed(protocol);
}

/** Implements a client's `watch`: a wait that yields the job at each change. Leaving the loop ends the wait. */
export async function* watch(
  calls: Calls,
  ref: string,
  options: WaitOptions = {},
): AsyncGenerator<Job, void, void> {
  checkOptions(options, waitKinds, 'watch');
  const abandoned = new AbortController();
  const signal =
    options.signal === undefined ? abandoned.signal : AbortSignal.any([options.signal, abandoned.signal]);
  const emitter = new EventEmitter();
  // Ignore errors that arrive after the caller has left the loop.
  emitter.on('error', () => undefined);
  const updates = on(emitter, 'update', { close: ['end'] }) as AsyncIterable<[Job]>;
  const waiting = wait(calls, ref, { ...options, signal }, (job) => emitter.emit('update', job)).then(
    (job) => {
      emitter.emit('update', job);
      emitter.emit('end');
    },
    (error: unknown) => emitter.emit('error', error),
  );
  try {
    let lastState = '';
    for await (const [job] of updates) {
      const state = [job.state, job.native_status, job.progress].join('\n');
      if (state !== lastState) yield publicJob(job);
      lastState = state;
    }
  } finally {
    abandoned.abort(new Error('the loop has ended'));
    await waiting;
  }
}

/** Implements a client's `job`: returns the job from the ledger. */
export function job(calls: Calls, ref: string): Promise<Job> {
  return calls.run('job', {}, {}, async ({ session }) => {
    return publicJob(await recordedJob(await session.ledger(), checkRef(ref)));
  });
}

/** Implements a client's `models`: returns the models that the key can use, sorted by name. */
export function models(calls: Calls, options: ModelsOptions = {}): Promise<Model[]> {
  return calls.run('models', modelsKinds, options, async ({ session }) => {
    const { protocol } = options;
    const allowed = [...protocolNames, 'tts'];
    if (protocol !== undefined && !allowed.includes(protocol)) throw unknownProtocolError(protocol, allowed);
    const all = await fetchModels(session);
    return all
      .filter(({ protocols }) => protocol === undefined || protocols.includes(protocol))
      .sort((one, other) => (one.id < other.id ? -1 : 1));
  });
}
