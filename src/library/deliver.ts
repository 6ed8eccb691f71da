import { resolve } from 'node:path';
import { usageError } from '../errors.ts';
import type { Job } from '../job.ts';
import { deliver } from '../jobs/deliver.ts';
import { fetchPlace, fileCount, makeFolderOf, targetsIn } from '../jobs/fetch-place.ts';
import { findJob, jobFor, missing } from '../jobs/ref.ts';
import { inRun, onExisting } from '../jobs/run.ts';
import { goalOf } from '../jobs/target.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { configured } from '../flows/protocols.ts';
import { depsOf, shownJob, type Call, type Calls } from './calls.ts';
import { deliveryOf, type Wanted } from './delivery.ts';
import { checkNames, protocolNamed, targetOf } from './inputs.ts';
import type { FetchOptions, WaitOptions } from './options.ts';
import type { Fetched } from './results.ts';

const waitNames: Record<keyof WaitOptions, true> = {
  protocol: true,
  signal: true,
  giveUp: true,
  timeout: true,
};
const fetchNames: Record<keyof FetchOptions, true> = { ...waitNames, output: true, force: true };

/** `wait` of a client; `onUpdate` is told of each look. */
export function wait(
  calls: Calls,
  ref: string,
  given: WaitOptions = {},
  onUpdate?: (job: Job) => void,
): Promise<Job> {
  return calls.run(given, async (call) => {
    checkNames(given, waitNames, 'wait');
    const found = await recorded(call, ref, given.protocol);
    if (found?.protocol === 'tts') return spoken(found);
    const wanted = { ask: 'finish', force: false, onUpdate } as const;
    const { job } = await deliverOne(call, await named(call, ref, found, given.protocol), 'wait', wanted);
    return job;
  });
}

/** `fetch` of a client. */
export function fetch(calls: Calls, ref: string, given: FetchOptions = {}): Promise<Fetched> {
  return calls.run(given, async (call) => {
    checkNames(given, fetchNames, 'fetch');
    const { force = false } = given;
    const place = await fetchPlace(targetOf(given.output), 1);
    const found = await recorded(call, ref, given.protocol);
    const one = found?.protocol === 'tts' ? undefined : await named(call, ref, found, given.protocol);
    const job = one?.job ?? found ?? missing(ref);
    const [target] = targetsIn(place, [{ job, index: 1, count: fileCount(job, one?.protocol) }]);
    if (target === undefined || target.kind === 'stdout')
      throw usageError('output: give the path of a file.');
    await makeFolderOf(place, target);
    if (one === undefined) return savedSpeech(call, job, target.path, force);
    return deliverOne(call, one, 'fetch', { ask: 'file', target, force });
  });
}

interface Named {
  job: Job;
  protocol: Protocol;
}

async function deliverOne(
  call: Call,
  { job, protocol }: Named,
  command: 'wait' | 'fetch',
  wanted: Wanted,
): Promise<Fetched> {
  const deps = depsOf(call, await call.session.jobDeps());
  const goal = goalOf(command, wanted.ask, wanted.target);
  wanted.onUpdate?.(job);
  const ran = await inRun(goal, deps, onExisting(job, deps), async (found, own) =>
    deliver(found, protocol, own, await deliveryOf(call, { ...wanted, atOnce: true })),
  );
  await ran.delivered();
  return { job: shownJob(ran.job), files: ran.value };
}

// With a protocol, a REF that is not known here may be a handle of the gateway.
async function recorded({ session }: Call, ref: string, protocol?: string): Promise<Job | undefined> {
  if (typeof ref !== 'string' || ref.trim() === '')
    throw usageError('A REF is empty. Give a job id, @key, @last or a handle.');
  const found = await findJob(await session.ledger(), ref);
  return found ?? (protocol === undefined ? missing(ref) : undefined);
}

async function named(call: Call, ref: string, found: Job | undefined, given?: string): Promise<Named> {
  const protocol = configured(protocolNamed(given ?? found?.protocol ?? ''), call.settings);
  const deps = depsOf(call, await call.session.jobDeps());
  return { protocol, job: await jobFor(found?.id ?? ref, protocol, deps) };
}

async function spoken(job: Job): Promise<Job> {
  const { speechProblem } = await import('../speech/problem.ts');
  const problem = speechProblem(job);
  if (problem !== undefined) throw problem.with({ job });
  return shownJob(job);
}

// The gateway keeps no speech: from wherever on this machine it is still whole.
async function savedSpeech(call: Call, job: Job, path: string, force: boolean): Promise<Fetched> {
  await spoken(job);
  const [{ deliverSaved }, { FileSink }] = await Promise.all([
    import('../speech/deliver-saved.ts'),
    import('../speech/file-sink.ts'),
  ]);
  const deps = depsOf(call, await call.session.jobDeps());
  const sink = new FileSink({ target: resolve(path), force, mime: job.files[0]?.mime ?? '' });
  const file = await deliverSaved(job, sink, call.deadline, deps);
  return { job: shownJob((await deps.ledger.read(job.id)) ?? job), files: file === undefined ? [] : [file] };
}
