import { deadlineIn } from '../clock.ts';
import { messageOf, MgwError } from '../errors.ts';
import type { Exchange, Reply, SpooledMedia } from '../exchange.ts';
import type { CallOptions } from '../http/client.ts';
import { impatiently } from '../http/impatiently.ts';
import { MediaSpool, type MediaSink } from '../media/media-spool.ts';
import { TransportError } from '../http/transport-error.ts';
import type { Job, JobEvent } from '../job.ts';
import type { Observation, Protocol, QueryVerdict } from '../protocols/protocol.ts';
import { queryTimeoutMs, type JobDeps } from './deps.ts';
import { fetchCommand } from './errors.ts';
import { keptWords, recordOf } from './reconcile.ts';

/** Opens the place for media that arrives inside a poll answer. */
export type OpenSink = (index: number) => Promise<MediaSink & { path?: string }>;

/** What one look at a job gave. */
export interface Observed {
  /** The job with what was recorded of it. */
  job: Job;
  verdict: QueryVerdict;
  /** Media that came inside the answer, by the index of its sink. */
  spooled: SpooledMedia[];
}

const discard: OpenSink = () => Promise.resolve({ write: () => undefined, close: () => Promise.resolve() });

/**
 * Asks once for a job's state, records what changed, and gives the verdict with the job as it is then. Network
 * errors and unreadable answers are the verdict `again`, never an error. `gapMs` tells how long nobody has looked.
 * @throws MgwError('result_unavailable') where the handle cannot be asked for; the signal's interruption;
 * MgwError('local_io') where the record cannot be written.
 */
export async function observe(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  openSink: OpenSink = discard,
  gapMs?: () => number | undefined,
): Promise<Observed> {
  const { verdict, spooled } = await query(job.handle ?? '', job.model, protocol, deps, openSink);
  if (verdict.kind !== 'observation') return { job, verdict, spooled };
  return { job: await recordSeen(job, verdict, deps, gapMs?.()), verdict, spooled };
}

/**
 * Records what is new in an observation of a job, and gives the job as it is then.
 * @throws MgwError('local_io') where the record cannot be written.
 */
export async function recordSeen(job: Job, seen: Observation, deps: JobDeps, gapMs?: number): Promise<Job> {
  const event = change(job, seen, deps.redact, gapMs);
  if (event === undefined) return job;
  await record(job, event, deps);
  return (await deps.ledger.read(job.id)) ?? job;
}

// What cannot be recorded is seen again by the next look: the job is paid for, and goes on.
async function record(job: Job, event: JobEvent, deps: JobDeps): Promise<void> {
  try {
    await deps.ledger.append(job.id, event);
  } catch (error) {
    const next = fetchCommand(job);
    throw new MgwError('local_io', messageOf(error), { charged: 'yes', retry: 'resume', next, cause: error });
  }
}

/** Asks once for the state of a task; nothing is recorded. @throws as {@link observe}, but for the record. */
export async function query(
  handle: string,
  model: string | undefined,
  protocol: Protocol,
  deps: JobDeps,
  openSink: OpenSink = discard,
): Promise<Omit<Observed, 'job'>> {
  const request = protocol.query(handle, model);
  const options = {
    auth: protocol.auth,
    timeoutMs: deps.requestTimeoutMs ?? queryTimeoutMs,
    signal: deps.signals.soft,
  };
  try {
    const reply =
      protocol.inlineMedia === undefined
        ? await deps.client.exchange(request, options)
        : await spooledExchange(request, options, protocol.inlineMedia, deps, openSink);
    return { verdict: protocol.readQuery(reply, handle), spooled: reply.spooled ?? [] };
  } catch (error) {
    if (!(error instanceof TransportError) || deps.signals.soft.aborted) throw error;
    return {
      verdict: { kind: 'again', failure: { code: 'unreachable', message: error.message } },
      spooled: [],
    };
  }
}

// The media of the answer goes to its sinks while it arrives; what is left of the answer is small.
async function spooledExchange(
  request: Exchange,
  options: CallOptions,
  members: readonly string[],
  deps: JobDeps,
  openSink: OpenSink,
): Promise<Reply> {
  const answer = await deps.client.stream(request, options);
  // Media may take as long as they keep coming; the rest of an answer has the time of any other.
  let hasMedia = false;
  const open: OpenSink = (index) => {
    hasMedia = true;
    return openSink(index);
  };
  const time = deadlineIn(options.timeoutMs, deps.clock);
  const deadline = { leftMs: () => (hasMedia ? Infinity : time.leftMs()) };
  const spool = new MediaSpool({ members, openSink: open, maxTextBytes: 16 * 1024 * 1024 });
  let complete = true;
  try {
    for await (const chunk of impatiently(answer.body, { idleMs: options.timeoutMs, deadline })) {
      await spool.push(chunk);
      if (spool.overflow) break;
    }
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    deps.note(`The answer broke off: ${messageOf(error)}`);
    complete = false;
  } finally {
    answer.close();
  }
  const { text: raw, spooled, overflow } = await spool.end();
  const text = answer.clean?.(raw) ?? raw;
  return { status: answer.status, headers: answer.headers, text, spooled, complete: complete && !overflow };
}

/** True for a success that shows something to fetch. */
export function hasResult({ results }: Observation): boolean {
  return results.some(({ sources }) => sources.length > 0);
}

// Only what is new is recorded; success, once seen, is never undone (design 6), and is never recorded unproven.
function change(
  job: Job,
  seen: Observation,
  redact: (text: string) => string,
  gapMs: number | undefined,
): JobEvent | undefined {
  const native_status = redact(seen.nativeStatus).slice(0, 200);
  if (job.state === 'succeeded') return undefined;
  if (seen.state === 'failed' || (seen.state === 'succeeded' && seen.unproven !== true)) {
    // Each of several files keeps its place, also one of which nothing is told.
    const details = seen.results.map((result) => result.details ?? {});
    return {
      type: 'finished',
      state: seen.state,
      native_status,
      progress: seen.progress,
      error: seen.failure && recordOf(keptWords(seen.failure, redact)),
      results: hasResult(seen) ? seen.results.length : 0,
      gap_ms: gapMs,
      usage: keptWords(seen.usage, redact),
      ...(details.some((file) => Object.keys(file).length > 0) && { details: keptWords(details, redact) }),
    };
  }
  const state = seen.state === 'queued' ? 'queued' : 'running';
  const { progress } = seen;
  const same = job.state === state && job.native_status === native_status && job.progress === progress;
  return same ? undefined : { type: 'observed', state, native_status, progress };
}
