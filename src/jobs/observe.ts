import { deadlineIn, type Deadline } from '../clock.ts';
import { messageOf, MgwError } from '../errors.ts';
import type { Exchange, Reply, SpooledMedia } from '../exchange.ts';
import { afterDeadlineMs, type CallOptions } from '../http/client.ts';
import { withIdleTimeout } from '../http/deadline.ts';
import { retryAfter } from '../http/failures.ts';
import { MediaSpool, type MediaSink } from '../media/media-spool.ts';
import { proxySettingError, TransportError } from '../http/transport-error.ts';
import type { Job, JobEvent } from '../job.ts';
import type { Observation, Protocol, QueryVerdict } from '../protocols/protocol.ts';
import { queryTimeoutMs, type JobDeps } from './order.ts';
import { fetchCommand } from './errors.ts';
import { withoutSignatures } from '../redact.ts';
import { redactTexts, recordOf } from './reconcile.ts';

/** Opens a sink for media inside a poll's response. */
export type OpenSink = (index: number) => Promise<MediaSink & { path?: string }>;

/** The result of one poll. */
export interface PollResult {
  /** The job, including the changes that this poll recorded. */
  job: Job;
  verdict: QueryVerdict;
  /** Media inside the response, keyed by sink index. */
  spooled: SpooledMedia[];
  /** The minimum delay before the next poll that the gateway requested, in ms, even if the poll was successful. */
  retryAfterMs?: number;
}

const discard: OpenSink = () => Promise.resolve({ write: () => undefined, close: () => Promise.resolve() });

const noDeadline: Deadline = { remainingMs: () => Infinity };

/**
 * Polls a job once, records what changed, and returns the verdict with the job as recorded. Returns the verdict `again`
 * for network errors, unreadable responses and a response that stalls past the deadline, instead of throwing.
 * @throws MgwError('result_unavailable') if the handle cannot be used in a request; the signal's reason if aborted;
 * MgwError('config') if the proxy cannot be used; MgwError('local_io') if the record cannot be written.
 */
export async function observe(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  openSink: OpenSink = discard,
  deadline: Deadline = noDeadline,
): Promise<PollResult> {
  const result = await query(job.handle ?? '', job.model, protocol, deps, openSink, deadline);
  const { verdict } = result;
  if (verdict.kind !== 'observation') return { job, ...result };
  return { job: await recordObservation(job, verdict, deps), ...result };
}

/**
 * Records the changes in an observation and returns the job as recorded.
 * @throws MgwError('local_io') if the record cannot be written.
 */
export async function recordObservation(job: Job, observation: Observation, deps: JobDeps): Promise<Job> {
  const event = changeEvent(job, observation, deps.redact);
  if (event === undefined) return job;
  await record(job, event, deps);
  return (await deps.ledger.read(job.id)) ?? job;
}

// If an observation cannot be recorded, the next poll makes the observation again, and the paid job continues.
async function record(job: Job, event: JobEvent, deps: JobDeps): Promise<void> {
  try {
    await deps.ledger.append(job.id, event);
  } catch (error) {
    const next = fetchCommand(job);
    throw new MgwError('local_io', messageOf(error), { charged: 'yes', retry: 'resume', next, cause: error });
  }
}

/** Queries a task's state once and records nothing. @throws as {@link observe} does, except for record errors. */
export async function query(
  handle: string,
  model: string | undefined,
  protocol: Protocol,
  deps: JobDeps,
  openSink: OpenSink = discard,
  deadline: Deadline = noDeadline,
): Promise<Omit<PollResult, 'job'>> {
  const request = protocol.query(handle, model);
  const options = {
    auth: protocol.auth,
    timeoutMs: deps.requestTimeoutMs ?? queryTimeoutMs,
    ...(deadline !== noDeadline && { deadline }),
    signal: deps.signals.soft,
  };
  try {
    const reply =
      protocol.inlineMedia === undefined
        ? await deps.client.exchange(request, options)
        : await spooledExchange(request, options, protocol.inlineMedia, deps, { openSink, deadline });
    const verdict = protocol.readQuery(reply, handle);
    // A gateway may quote the URL of an uploaded input, including its signature.
    const redact = (text: string): string => withoutSignatures(deps.redact(text));
    if (verdict.failure !== undefined) verdict.failure = redactTexts(verdict.failure, redact);
    return { verdict, spooled: reply.spooled ?? [], retryAfterMs: retryAfter(reply.headers) };
  } catch (error) {
    if (!(error instanceof TransportError) || deps.signals.soft.aborted) throw error;
    const settingError = proxySettingError(error);
    if (settingError !== undefined) throw settingError;
    return {
      verdict: { kind: 'again', failure: { code: 'unreachable', message: error.message } },
      spooled: [],
    };
  }
}

function afterDeadline(deadline: Deadline): number {
  return deadline.remainingMs() + afterDeadlineMs;
}

// Writes media to their sinks as they arrive. The rest of the response is small and is held in memory.
async function spooledExchange(
  request: Exchange,
  options: CallOptions,
  members: readonly string[],
  deps: JobDeps,
  { openSink, deadline }: { openSink: OpenSink; deadline: Deadline },
): Promise<Reply> {
  const response = await deps.client.stream(request, options);
  // Media may take until the deadline while bytes are arriving. Other responses have the usual timeout.
  let hasMedia = false;
  const openAndNote: OpenSink = (index) => {
    hasMedia = true;
    return openSink(index);
  };
  const callDeadline = deadlineIn(options.timeoutMs, deps.clock);
  const bodyDeadline = {
    remainingMs: () => (hasMedia ? afterDeadline(deadline) : callDeadline.remainingMs()),
  };
  const spool = new MediaSpool({ members, openSink: openAndNote, maxTextBytes: 16 * 1024 * 1024 });
  let complete = true;
  try {
    for await (const chunk of withIdleTimeout(response.body, {
      idleMs: options.timeoutMs,
      deadline: bodyDeadline,
    })) {
      await spool.push(chunk);
      if (spool.overflow) break;
    }
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    deps.note(`The response ended early: ${messageOf(error)}`);
    complete = false;
  } finally {
    response.close();
  }
  const { text: raw, spooled, overflow } = await spool.end();
  const text = response.clean?.(raw) ?? raw;
  return {
    status: response.status,
    headers: response.headers,
    text,
    spooled,
    complete: complete && !overflow,
  };
}

/** Whether an observation contains anything to fetch. */
export function hasResult({ results }: Observation): boolean {
  return results.some(({ sources }) => sources.length > 0);
}

// Returns the event that records a change; undefined if nothing changed. Success is never undone (design 6), and never
// recorded without proof.
function changeEvent(
  job: Job,
  observation: Observation,
  redact: (text: string) => string,
): JobEvent | undefined {
  const native_status = redact(observation.nativeStatus).slice(0, 200);
  if (job.state === 'succeeded') return undefined;
  if (
    observation.state === 'failed' ||
    (observation.state === 'succeeded' && observation.unproven !== true)
  ) {
    // Files without details have an entry too, so that each entry is at its file's position.
    const details = observation.results.map((result) => result.details ?? {});
    return {
      type: 'finished',
      state: observation.state,
      native_status,
      progress: observation.progress,
      error: observation.failure && recordOf(observation.failure),
      results: hasResult(observation) ? observation.results.length : 0,
      usage: redactTexts(observation.usage, redact),
      ...(details.some((file) => Object.keys(file).length > 0) && { details: redactTexts(details, redact) }),
    };
  }
  const state = observation.state === 'queued' ? 'queued' : 'running';
  const { progress } = observation;
  const isUnchanged = job.state === state && job.native_status === native_status && job.progress === progress;
  if (isUnchanged) return undefined;
  const revokes = job.state === 'failed' && ({ revokes: true } as const);
  return { type: 'observed', state, native_status, progress, ...revokes };
}
