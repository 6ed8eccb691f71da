import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { xApiKey } from '../exchange.ts';
import type { Job, JobFile } from '../job.ts';
import { createOrResume } from '../jobs/create-or-resume.ts';
import { acceptedJobError } from '../jobs/errors.ts';
import { lockOutput, speechIdentity, bestEffort } from '../jobs/lock-output.ts';
import type { Order } from '../jobs/order.ts';
import { type Began, inRun } from '../jobs/run.ts';
import { submit } from '../jobs/submit.ts';
import type { JsonObject } from '../json.ts';
import { deliverEarlier } from './earlier-run.ts';
import { unknownSpeechError } from './errors.ts';
import { StreamedCall } from '../http/streamed-call.ts';
import type { AudioSink } from './sink.ts';
import { defaultIdleMs, finishStream, saveUnrecorded, type SpeechDeps } from './audio-stream.ts';
import { readSpeechHead, speechExchange, speechModel } from './wire.ts';

/** Text to speak. */
export interface SpeechOrder {
  /** The body to send (specification 2.6). */
  body: JsonObject;
  /** The body without the configured defaults; see `Order`. */
  userBody?: JsonObject | undefined;
  /** Distinguishes jobs with the same body: a piece of long text, or a WAV file made from PCM. */
  variant?: string | undefined;
  key?: string;
  /** Labels that help the user find the job. */
  tags?: string[];
  /** Whether to pay for a new take even if the same request was paid for before. */
  fresh: boolean;
  /**
   * If given, a job in doubt under any key blocks the submission. The submission waits until this deadline for a job
   * that is being sent.
   */
  blockedByAnyDoubt?: Deadline;
  /** The output: an absolute path, or `-` for a stream. */
  output: string;
  /** The deadline for the whole call. */
  deadline: Deadline;
  /** The deadline for a call that was sent, because it is paid for. Default: `deadline`. */
  finishBy?: Deadline;
}

/** Delivered speech. */
export interface SpeechResult {
  job: Job;
  /** The file, unless the audio went to a stream. */
  file?: JobFile;
  /** Whether an earlier run had paid for the speech, so nothing was sent. */
  isResumed: boolean;
  /** Records whether the result was reported to the user (see `inRun`). */
  delivered: (isReported?: boolean) => Promise<void>;
}

/**
 * Speaks text with one paid call (specification 4.4, design 8). Records it like every submission, writes the audio as
 * it arrives, and never repeats the call once the stream has begun. If an earlier run of the same order has paid,
 * delivers that run's audio or throws its error. Does the same if a concurrent run with the same output is about to
 * pay.
 * @throws MgwError as `submit` does; exit 5 for an error frame, 9 for a stream without an end frame, 10 if the audio
 * cannot be saved.
 */
export async function speak(order: SpeechOrder, deps: SpeechDeps, sink: AudioSink): Promise<SpeechResult> {
  const { deadline } = order;
  // Lock the output only after the job has been found: a live run of the job holds the lock, and this run joins that
  // run.
  const lockSink = async (): Promise<void> => {
    if (sink.target !== undefined && sink.lock === undefined)
      sink.lock = await lockOutput(sink.target, deps, { identity: speechIdentity, deadline });
  };
  try {
    return await speakLocked(order, deps, sink, lockSink);
  } finally {
    const { lock } = sink;
    if (lock) await bestEffort(deps, () => lock.release());
  }
}

async function speakLocked(
  order: SpeechOrder,
  deps: SpeechDeps,
  sink: AudioSink,
  lockSink: () => Promise<void>,
): Promise<SpeechResult> {
  const { deadline, finishBy = deadline } = order;
  const call = new StreamedCall(deps.idleTimeoutMs ?? defaultIdleMs, finishBy);
  const open = async (): Promise<void> => {
    await lockSink();
    await sink.open();
  };
  const submission = submissionOf(order, call, open);
  const beginJob = (began: Began): Promise<Job> =>
    createOrResume(submission, deps, began).catch(async (error: unknown) => {
      await sink.abandon();
      throw error;
    });
  let accepted: Job | undefined;
  try {
    const { value, job, delivered } = await inRun(
      submission.goal,
      deps,
      beginJob,
      async (prepared, runDeps, run) => {
        accepted = await accept(prepared, submission, call, runDeps, sink);
        const { stream } = call;
        if (stream !== undefined)
          return finishStream({ reply: stream, sink, deadline: finishBy }, accepted, runDeps);
        await sink.abandon();
        return deliverEarlier(accepted, { run, deadline, lockSink }, runDeps, sink);
      },
    );
    return { job, file: value, isResumed: call.stream === undefined, delivered };
  } catch (error) {
    throw acceptedJobError(error, accepted);
  }
}

// A stream whose start could not be recorded is still paid for, so its audio is saved.
async function accept(
  prepared: Job,
  submission: Order,
  call: StreamedCall,
  deps: SpeechDeps,
  sink: AudioSink,
): Promise<Job> {
  try {
    return (await submit(prepared, submission, deps)).job;
  } catch (error) {
    if (call.stream !== undefined)
      throw await saveUnrecorded(
        { reply: call.stream, sink, deadline: call.deadline },
        error,
        prepared,
        deps,
      );
    await sink.abandon();
    // The other run of this job may have sent the call and published the audio while this run waited for the output.
    const latest = await deps.ledger.read(prepared.id);
    const isOutputTaken = error instanceof MgwError && error.code === 'output_exists';
    if (isOutputTaken && prepared.handle === undefined && latest?.handle !== undefined) return latest;
    throw error;
  }
}

function submissionOf(order: SpeechOrder, call: StreamedCall, open: () => Promise<void>): Order {
  return {
    protocol: 'tts',
    model: speechModel,
    body: order.body,
    userBody: order.userBody,
    variant: order.variant,
    exchange: speechExchange(order.body),
    auth: xApiKey,
    read: (reply) => readSpeechHead(reply, order.body),
    send: async (client, request, options) => {
      // If this run joined a run that died before it sent anything, the output is not open yet.
      await open();
      return call.send(client, request, { ...options, deadline: call.deadline });
    },
    key: order.key,
    tags: order.tags,
    fresh: order.fresh,
    blockedByAnyDoubt: order.blockedByAnyDoubt,
    goal: { command: 'submit', ask: 'file', output: order.output },
    isOneShot: true,
    unknownError: unknownSpeechError,
    deadline: order.deadline,
    checkBeforePaying: open,
  };
}
