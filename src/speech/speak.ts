import type { Deadline } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { xApiKey, type Reply, type SubmitVerdict } from '../exchange.ts';
import type { Job, JobFile } from '../job.ts';
import type { Order } from '../jobs/order.ts';
import { delivered, detached } from '../jobs/run.ts';
import { jobOf, submit, withJob, type Submitted } from '../jobs/submit.ts';
import type { JsonObject } from '../json.ts';
import { deliverEarlier } from './earlier-take.ts';
import type { AudioSink } from './sink.ts';
import { StreamedCall } from './streamed-call.ts';
import { defaultIdleMs, finishTake, saveUnrecorded, type SpeechDeps } from './take.ts';
import { readSpeechHead, speechExchange, speechModel } from './wire.ts';

/** One text to be spoken, as a person or a script asked for it. */
export interface SpeechOrder {
  /** The body of specification 2.6 as it goes out. */
  body: JsonObject;
  /** Sets apart jobs of one body: a piece of a longer text, a WAV made of PCM. */
  variant?: string;
  key?: string;
  /** A deliberate second take. */
  fresh: boolean;
  /** Takes a complete 5xx as proof that nothing was handled (the setting `submit.retry_5xx`). */
  retry5xx?: boolean;
  /** When everything ends. */
  deadline: Deadline;
}

/** Speech that was delivered. */
export interface Spoken {
  job: Job;
  /** Where it is, unless it went to a stream. */
  file?: JobFile;
  /** True where an earlier run had paid for it, and nothing was sent. */
  resumed: boolean;
}

/**
 * Speaks a text by one paid call (specification 4.4, design 8): recorded like every submission, its audio written
 * as it arrives, and never sent again by itself once the stream has begun. Where an earlier run of the same order
 * had paid already, its audio is delivered, or it is told why that cannot be.
 * @throws MgwError as `submit` does; exit 5 for an error frame, 9 for a stream without its end frame, 10 where the
 * audio cannot be saved. The job behind it is in `jobOf(error)`.
 */
export async function speak(order: SpeechOrder, deps: SpeechDeps, sink: AudioSink): Promise<Spoken> {
  const call = new StreamedCall(deps.idleTimeoutMs ?? defaultIdleMs, order.deadline);
  let submitted: Submitted;
  try {
    submitted = await submit(submissionOf(order, call, sink), deps);
  } catch (error) {
    throw await notSubmitted(error, order, call, deps, sink);
  }
  const { job, run } = submitted;
  const { stream } = call;
  try {
    if (stream === undefined) await sink.abandon();
    const file =
      stream === undefined
        ? await deliverEarlier(job, run, order.deadline, deps, sink)
        : await finishTake({ stream, sink, deadline: order.deadline }, job, deps);
    // Without this record the same command resumes: worth a word, and no failure of what was asked for.
    await delivered(job, run, 'file', deps).catch((error: unknown) =>
      deps.note(`That this was delivered could not be recorded: ${messageOf(error)}`),
    );
    return { job: (await deps.ledger.read(job.id)) ?? job, file, resumed: stream === undefined };
  } catch (error) {
    await detached(job, run, error, deps);
    throw withJob(error, (await deps.ledger.read(job.id)) ?? job);
  }
}

function submissionOf(order: SpeechOrder, call: StreamedCall, sink: AudioSink): Order {
  return {
    protocol: 'tts',
    model: speechModel,
    body: order.body,
    variant: order.variant,
    exchange: speechExchange(order.body),
    auth: xApiKey,
    read: (reply) => readHead(reply, order.retry5xx ?? false),
    send: (client, request, options) => call.send(client, request, options),
    key: order.key,
    fresh: order.fresh,
    ask: 'file',
    deadline: order.deadline,
    beforeSending: () => sink.open(),
  };
}

function readHead(reply: Reply, retry5xx: boolean): SubmitVerdict {
  const verdict = readSpeechHead(reply);
  const repeatable = retry5xx && verdict.kind === 'unknown' && reply.complete && reply.status >= 500;
  return repeatable ? { kind: 'unavailable', failure: verdict.failure } : verdict;
}

// A stream that is open although its beginning could not be recorded is paid for: its audio is saved all the same.
async function notSubmitted(
  error: unknown,
  order: SpeechOrder,
  { stream }: StreamedCall,
  deps: SpeechDeps,
  sink: AudioSink,
): Promise<unknown> {
  const before = jobOf(error);
  const told =
    stream === undefined
      ? error
      : await saveUnrecorded({ stream, sink, deadline: order.deadline }, error, deps);
  if (stream === undefined) await sink.abandon();
  if (before === undefined) return told;
  const job = (await deps.ledger.read(before.id)) ?? before;
  for (const { run, owner } of job.record.runs) {
    if (owner.pid === deps.owner.pid && owner.start === deps.owner.start)
      await detached(job, run, error, deps);
  }
  return withJob(told, job);
}
