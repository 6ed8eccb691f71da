import { join } from 'node:path';
import { abortWith } from '../clock.ts';
import { usageError, MgwError, systemCode } from '../errors.ts';
import { composeVideo } from '../flows/compose-video.ts';
import { inFolder, submitVideo as submitAndDeliver } from '../flows/submit-video.ts';
import { checkKeyName } from '../jobs/ref.ts';
import {
  depsOf,
  publicJob,
  type Calls,
  amountText,
  checkOptions,
  type OptionKinds,
  targetOf,
  type Call,
} from './calls.ts';
import { protocolNamed } from '../protocols/registry.ts';
import type {
  Submitted,
  UncheckedVideo,
  VideoOrder,
  SpeechOrder,
  SpeechStreamOrder,
  Spoken,
} from './options.ts';
import { PassThrough, type Writable } from 'node:stream';
import type { Delivered } from '../flows/deliver.ts';
import { speak } from '../flows/speak.ts';
import type { Job } from '../job.ts';
import { jsonObject } from '../json.ts';
import { absoluteOutput, checkNoTemplate } from '../store-url.ts';
import { composeSpeech } from '../speech/compose.ts';

const orderKinds: OptionKinds<UncheckedVideo> = {
  protocol: 'string',
  body: 'object',
  check: 'boolean',
  endpoint: 'string',
  key: 'string',
  newTake: 'boolean',
  budget: 'quantity',
  wait: 'boolean',
  output: 'string',
  force: 'boolean',
  sidecar: 'boolean',
  strict: 'boolean',
  mark: 'boolean',
  signal: 'signal',
  giveUp: 'signal',
  timeout: 'quantity',
};

/** Implements a client's `submit`. */
export function submitVideo(calls: Calls, order: VideoOrder | UncheckedVideo): Promise<Submitted> {
  return calls.run('submit', orderKinds, order, async (call) => {
    const { key, newTake: fresh = false, force = false, sidecar = false } = order;
    const { strict, mark, check, endpoint } = order;
    checkKeyName(key, fresh);
    const target = targetOf(order.output);
    checkNoTemplate('output', withoutWorkingFolder(order.output), true);
    for (const [name, isOn] of Object.entries({ sidecar, strict, mark }))
      if (isOn && target === undefined) throw usageError(`${name} requires output.`);
    const { session, deadline } = call;
    const parts = { body: jsonObject(order.body, 'body'), flags: {}, check, endpoint };
    const { video, defaults } = await composeVideo(session, protocolNamed(order.protocol), parts);
    for (const note of [...video.advice, ...(defaults === undefined ? [] : [defaults])]) session.note(note);
    const ask = target === undefined ? (order.wait ? 'finish' : 'accept') : 'file';
    const budget = amountText(order.budget);
    const submission = {
      ask,
      target: await inFolder(target),
      force,
      deadline,
      key,
      fresh,
      sidecar,
      strict,
      mark,
      budget,
    } as const;
    const { job, files, isResumed, delivered } = await submitAndDeliver(
      video,
      submission,
      await depsOf(call),
    );
    await delivered();
    return { job: publicJob(job), files, resumed: isResumed };
  });
}

const streamKinds: OptionKinds<SpeechStreamOrder> = {
  text: 'string',
  speaker: 'string',
  format: 'string',
  sampleRate: 'number',
  params: 'object',
  check: 'boolean',
  key: 'string',
  newTake: 'boolean',
  budget: 'quantity',
  signal: 'signal',
  giveUp: 'signal',
  timeout: 'quantity',
};
const fileKinds: OptionKinds<SpeechOrder> = {
  ...streamKinds,
  output: 'string',
  force: 'boolean',
  sidecar: 'boolean',
  mark: 'boolean',
};

// The path of the working folder, which was prefixed to a relative output, may contain braces.
function withoutWorkingFolder(output: string | undefined): string | undefined {
  const folder = join(process.cwd(), '/');
  return output?.startsWith(folder) ? output.slice(folder.length) : output;
}

/** Implements a client's `speak`. */
export function speakToFile(calls: Calls, order: SpeechOrder): Promise<Spoken> {
  return calls.run('speak', fileKinds, order, async (call) => {
    const target = targetOf(order.output);
    checkNoTemplate('output', withoutWorkingFolder(order.output));
    if (target === undefined || /[\\/]$/.test(target.path)) throw usageError('output must be a file path.');
    const output = absoluteOutput(target.path);
    const { job, files, isResumed, delivered } = await speakText(call, order, output);
    const [file] = files;
    if (file === undefined) throw new MgwError('internal', 'Speech was delivered without its file.');
    await delivered();
    return { job: publicJob(job), file, resumed: isResumed };
  });
}

/** Implements a client's `speakStream`. Reads the stream only as fast as the loop consumes it. */
export async function* speakStream(
  calls: Calls,
  order: SpeechStreamOrder,
): AsyncGenerator<Uint8Array, Job, void> {
  checkOptions(order, streamKinds, 'speakStream');
  const abandoned = new AbortController();
  const giveUp =
    order.giveUp === undefined ? abandoned.signal : AbortSignal.any([order.giveUp, abandoned.signal]);
  const pipe = new PassThrough();
  abandoned.signal.addEventListener('abort', () => pipe.destroy());
  const speaking = calls.run('speakStream', streamKinds, { ...order, giveUp }, async (call) => {
    // The loop that reads the stream may itself close the client. It then reads no more, so the stream is abandoned.
    const unlink = abortWith(call.closing, abandoned);
    return speakText(call, order, pipe).finally(unlink);
  });
  const endPipe = (): void => void pipe.end();
  const pipeEnded = speaking.then(endPipe, endPipe);
  try {
    yield* piecesOf(pipe);
  } finally {
    abandoned.abort(new Error('the consumer has closed the stream'));
    await pipeEnded;
  }
  const { job, delivered } = await speaking;
  await delivered();
  return publicJob(job);
}

// If the pipe was closed early, the call reports the reason.
async function* piecesOf(pipe: PassThrough): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* pipe as AsyncIterable<Uint8Array>;
  } catch (error) {
    if (systemCode(error) !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
}

async function speakText(
  call: Call,
  order: SpeechStreamOrder,
  output: string | Writable,
): Promise<Delivered> {
  const { settings, deadline } = call;
  const { text, speaker, format, sampleRate, params = {}, check, key, newTake: fresh = false } = order;
  checkKeyName(key, fresh);
  if (typeof text !== 'string') throw usageError('text is required.');
  const fields = { speaker, format, sampleRate, check, params: jsonObject(params, 'params') };
  const target = typeof output === 'string' ? output : undefined;
  const speech = composeSpeech(text, target, fields, settings);
  for (const note of speech.advice) call.session.note(note);
  const { force = false, sidecar = false, mark }: Partial<SpeechOrder> = order;
  const budget = amountText(order.budget);
  const submission = { output, force, sidecar, mark, fresh, deadline, key, budget };
  return speak(speech, submission, await depsOf(call));
}
