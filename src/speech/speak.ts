import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { xApiKey } from '../exchange.ts';
import type { Job, JobEvent, JobFile } from '../job.ts';
import { createOrResume } from '../jobs/create-or-resume.ts';
import { lockOutput, speechIdentity, bestEffort } from '../jobs/lock-output.ts';
import type { Order } from '../jobs/order.ts';
import { inRun } from '../jobs/run.ts';
import { submit } from '../jobs/submit.ts';
import type { JsonObject } from '../json.ts';
import { deliverEarlier } from './earlier-run.ts';
import { unknownSpeechError } from './errors.ts';
import { StreamedCall } from '../payment/streamed-call.ts';
import type { AudioSink } from './sink.ts';
import { defaultIdleMs, finishStream, saveUnrecorded, type SpeechDeps } from './audio-stream.ts';
import { readSpeechHead, speechExchange, speechModel } from './wire.ts';

/** One text to be spoken, as a person or a script asked for it. */
export interface SpeechOrder {
  /** The body of specification 2.6 as it goes out. */
  body: JsonObject;
  /** Sets apart jobs of one body: a piece of a longer text, a WAV made of PCM. */
  variant?: string;
  key?: string;
  /** Words to find the job by. */
  tags?: string[];
  /** A deliberate second take. */
  fresh: boolean;
  /** If given, a job in doubt under any key blocks the submission, which waits until then for a job that is being sent. */
  blockedByAnyDoubt?: Deadline;
  /** Where the audio goes: an absolute path, or `-` for a stream. */
  output: string;
  /** When everything ends. */
  deadline: Deadline;
}

/** Speech that was delivered. */
export interface SpeechResult {
  job: Job;
  /** Where it is, unless it went to a stream. */
  file?: JobFile;
  /** True if an earlier run had paid for it, and nothing was sent. */
  isResumed: boolean;
  /** Records whether the person got it (see `inRun`). */
  delivered: (isTold?: boolean) => Promise<void>;
}

/**
 * Speaks a text by one paid call (specification 4.4, design 8): recorded like every submission, its audio written
 * as it arrives, and never sent again by itself once the stream has begun. If an earlier run of the same order has paid, or
 * a concurrent one with the same output is about to, its audio is delivered, or the error that it ended with is thrown.
 * @throws MgwError as `submit` does; exit 5 for an error frame, 9 for a stream without its end frame, 10 if the
 * audio cannot be saved.
 */
export async function speak(order: SpeechOrder, deps: SpeechDeps, sink: AudioSink): Promise<SpeechResult> {
  const { deadline } = order;
  // Not before the job is known: a run that is alive holds the output, and is joined.
  const hold = async (): Promise<void> => {
    if (sink.target !== undefined && sink.held === undefined)
      sink.held = await lockOutput(sink.target, deps, { identity: speechIdentity, deadline });
  };
  try {
    return await spoken(order, deps, sink, hold);
  } finally {
    const { held } = sink;
    if (held) await bestEffort(deps, () => held.release());
  }
}

async function spoken(
  order: SpeechOrder,
  deps: SpeechDeps,
  sink: AudioSink,
  hold: () => Promise<void>,
): Promise<SpeechResult> {
  const { deadline } = order;
  const call = new StreamedCall(deps.idleTimeoutMs ?? defaultIdleMs, deadline);
  const open = async (): Promise<void> => {
    await hold();
    await sink.open();
  };
  const submission = submissionOf(order, call, open);
  const begin = (began: JobEvent): Promise<Job> =>
    createOrResume(submission, deps, began).catch(async (error: unknown) => {
      await sink.abandon();
      throw error;
    });
  const { value, job, delivered } = await inRun(submission.goal, deps, begin, async (found, own, run) => {
    const accepted = await accept(found, submission, call, own, sink);
    const { stream } = call;
    if (stream !== undefined) return finishStream({ reply: stream, sink, deadline }, accepted, own);
    await sink.abandon();
    return deliverEarlier(accepted, { run, deadline, hold }, own, sink);
  });
  return { job, file: value, isResumed: call.stream === undefined, delivered };
}

// A stream whose beginning could not be recorded is still paid for: save its audio.
async function accept(
  found: Job,
  submission: Order,
  call: StreamedCall,
  deps: SpeechDeps,
  sink: AudioSink,
): Promise<Job> {
  try {
    return (await submit(found, submission, deps)).job;
  } catch (error) {
    if (call.stream !== undefined)
      throw await saveUnrecorded({ reply: call.stream, sink, deadline: submission.deadline }, error, deps);
    await sink.abandon();
    // The run that this one has joined may have sent it and published the audio while this one waited for the output.
    const last = await deps.ledger.read(found.id);
    const isTaken = error instanceof MgwError && error.code === 'output_exists';
    if (isTaken && found.handle === undefined && last?.handle !== undefined) return last;
    throw error;
  }
}

function submissionOf(order: SpeechOrder, call: StreamedCall, open: () => Promise<void>): Order {
  return {
    protocol: 'tts',
    model: speechModel,
    body: order.body,
    variant: order.variant,
    exchange: speechExchange(order.body),
    auth: xApiKey,
    read: readSpeechHead,
    send: async (client, request, options) => {
      // The run that this one has joined may have died before it sent anything.
      await open();
      return call.send(client, request, options);
    },
    key: order.key,
    tags: order.tags,
    fresh: order.fresh,
    goal: { command: 'submit', ask: 'file', output: order.output },
    isOneShot: true,
    unknownError: unknownSpeechError,
    deadline: order.deadline,
    beforeSending: open,
  };
}
