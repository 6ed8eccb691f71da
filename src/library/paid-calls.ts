import { usageError, MgwError, systemCode } from '../errors.ts';
import { composeVideo } from '../flows/compose-video.ts';
import { submitVideo as submitAndDeliver } from '../flows/submit-video.ts';
import { checkKeyName } from '../jobs/ref.ts';
import {
  depsOf,
  shownJob,
  type Calls,
  amountText,
  checkNames,
  jsonObject,
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
import type { JsonObject } from '../json.ts';
import { absoluteOutput } from '../store-url.ts';
import { composeSpeech, type SpeechFields } from '../speech/compose.ts';

const orderNames: Record<keyof UncheckedVideo, true> = {
  protocol: true,
  body: true,
  check: true,
  endpoint: true,
  key: true,
  newTake: true,
  budget: true,
  wait: true,
  output: true,
  force: true,
  sidecar: true,
  strict: true,
  mark: true,
  signal: true,
  giveUp: true,
  timeout: true,
};

/** Implements `submit` of a client. */
export function submitVideo(calls: Calls, given: VideoOrder | UncheckedVideo): Promise<Submitted> {
  return calls.run(given, async (call) => {
    checkNames(given, orderNames, 'submit');
    const {
      key,
      newTake: fresh = false,
      force = false,
      sidecar = false,
      strict,
      mark,
      check,
      endpoint,
    } = given;
    checkKeyName(key, fresh);
    const target = targetOf(given.output, true);
    if (sidecar && target === undefined) throw usageError('sidecar is written next to a file: set output.');
    if (strict && target === undefined) throw usageError('strict measures the file: set output.');
    if (mark && target === undefined) throw usageError('mark writes into the file: set output.');
    const { session, deadline } = call;
    const parts = { body: jsonObject(given.body, 'body'), flags: {}, check, endpoint };
    const { video, advice, defaults } = await composeVideo(session, protocolNamed(given.protocol), parts);
    for (const note of [...advice, ...(defaults === undefined ? [] : [defaults])]) session.note(note);
    const ask = target === undefined ? (given.wait ? 'finish' : 'accept') : 'file';
    const budget = amountText(given.budget);
    const wanted = { ask, target, force, deadline, key, fresh, sidecar, strict, mark, budget } as const;
    const { job, files, isResumed, delivered } = await submitAndDeliver(video, wanted, await depsOf(call));
    await delivered();
    return { job: shownJob(job), files, resumed: isResumed };
  });
}

const streamNames: Record<keyof SpeechStreamOrder, true> = {
  text: true,
  speaker: true,
  format: true,
  sampleRate: true,
  params: true,
  check: true,
  key: true,
  newTake: true,
  budget: true,
  signal: true,
  giveUp: true,
  timeout: true,
};
const fileNames: Record<keyof SpeechOrder, true> = {
  ...streamNames,
  output: true,
  force: true,
  sidecar: true,
  mark: true,
};

/** Implements `speak` of a client. */
export function speakToFile(calls: Calls, order: SpeechOrder): Promise<Spoken> {
  return calls.run(order, async (call) => {
    checkNames(order, fileNames, 'speak');
    const target = targetOf(order.output, true);
    if (target === undefined || /[\\/]$/.test(target.path))
      throw usageError('output: give the path of a file.');
    const output = absoluteOutput(target.path);
    const { job, files, isResumed, delivered } = await spoken(call, order, output);
    const [file] = files;
    if (file === undefined) throw new MgwError('internal', 'Speech was delivered without its file.');
    await delivered();
    return { job: shownJob(job), file, resumed: isResumed };
  });
}

/** Implements `speakStream` of a client. Reads the stream only as fast as the loop consumes it. */
export async function* speakStream(
  calls: Calls,
  order: SpeechStreamOrder,
): AsyncGenerator<Uint8Array, Job, void> {
  const left = new AbortController();
  const giveUp = order.giveUp === undefined ? left.signal : AbortSignal.any([order.giveUp, left.signal]);
  const pipe = new PassThrough();
  const leave = (): void => {
    left.abort(new Error('the reader of the speech has closed it'));
    pipe.destroy();
  };
  const speaking = calls.run({ ...order, giveUp }, async (call) => {
    checkNames(order, streamNames, 'speakStream');
    // The loop that reads this may itself close the client.
    call.closing.addEventListener('abort', leave);
    return spoken(call, order, pipe).finally(() => call.closing.removeEventListener('abort', leave));
  });
  const end = (): void => void pipe.end();
  const ended = speaking.then(end, end);
  try {
    yield* piecesOf(pipe);
  } finally {
    leave();
    await ended;
  }
  const { job, delivered } = await speaking;
  await delivered();
  return shownJob(job);
}

// The call reports why the pipe was closed early.
async function* piecesOf(pipe: PassThrough): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* pipe as AsyncIterable<Uint8Array>;
  } catch (error) {
    if (systemCode(error) !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
}

async function spoken(call: Call, order: SpeechStreamOrder, output: string | Writable): Promise<Delivered> {
  const { settings, deadline } = call;
  const { text, speaker, format, sampleRate, params = {}, check, key, newTake: fresh = false } = order;
  checkKeyName(key, fresh);
  if (typeof text !== 'string') throw usageError('text: give the text to speak.');
  const fields: SpeechFields = {
    ...(speaker !== undefined && { speaker }),
    ...(format !== undefined && { format }),
    ...(sampleRate !== undefined && { sampleRate }),
    ...(check !== undefined && { check }),
    set: setsOf(jsonObject(params, 'params')),
  };
  const target = typeof output === 'string' ? output : undefined;
  const speech = composeSpeech(text, target, fields, settings);
  const { force = false, sidecar = false, mark }: Partial<SpeechOrder> = order;
  const budget = amountText(order.budget);
  const wanted = { output, force, sidecar, mark, fresh, deadline, key, budget };
  return speak(speech, wanted, await depsOf(call));
}

// As with `--set req_params.NAME=JSON`: these parameters override the others.
function setsOf(params: JsonObject): string[] {
  return Object.entries(params).map(([name, value]) => `req_params.${name}=${JSON.stringify(value)}`);
}
