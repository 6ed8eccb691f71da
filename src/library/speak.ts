import { resolve } from 'node:path';
import { PassThrough } from 'node:stream';
import { systemCode, usageError } from '../errors.ts';
import type { Job } from '../job.ts';
import { fingerprintOf } from '../jobs/order.ts';
import { checkSidecarsFree, writeSidecars } from '../jobs/sidecar.ts';
import type { JsonObject } from '../json.ts';
import { checkKeyName } from '../key-name.ts';
import { payingDeps } from '../flows/paying-deps.ts';
import { composeSpeech, type SpeechFields } from '../speech/compose.ts';
import { FileSink } from '../speech/file-sink.ts';
import type { SpeechFormat } from '../speech/format.ts';
import type { AudioSink } from '../speech/sink.ts';
import { speak, type Spoken as Delivered } from '../speech/speak.ts';
import { StreamSink } from '../speech/stream-sink.ts';
import { version } from '../version.ts';
import { depsOf, shownJob, type Call, type Calls } from './calls.ts';
import { amountText, checkNames, jsonObject, targetOf } from './inputs.ts';
import type { SpeechOrder, SpeechStreamOrder } from './options.ts';
import type { Spoken } from './results.ts';

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
};

/** `speak` of a client. */
export function speakToFile(calls: Calls, order: SpeechOrder): Promise<Spoken> {
  return calls.run(order, async (call) => {
    checkNames(order, fileNames, 'speak');
    const { force = false, sidecar = false } = order;
    const target = targetOf(order.output);
    if (target === undefined || /[\\/]$/.test(target.path))
      throw usageError('output: give the path of a file.');
    const path = resolve(target.path);
    const text = composed(call, order, path);
    if (sidecar) await checkSidecarsFree({ kind: 'file', path }, 1, force);
    const sink = new FileSink({ target: path, force, mime: text.format.mime, ...wavRateOf(text) });
    const { job, file, isResumed, delivered } = await spoken(call, order, text, path, sink);
    if (file === undefined) throw new Error('speech was delivered without its file');
    if (sidecar) await writeSidecars(job, [file], version);
    await delivered();
    return { job: shownJob(job), file, resumed: isResumed };
  });
}

/** `speakStream` of a client: the sink holds the stream back until the next piece is asked for. */
export async function* speakStream(
  calls: Calls,
  order: SpeechStreamOrder,
): AsyncGenerator<Uint8Array, Job, void> {
  const left = new AbortController();
  const giveUp = order.giveUp === undefined ? left.signal : AbortSignal.any([order.giveUp, left.signal]);
  const pipe = new PassThrough();
  const leave = (): void => {
    left.abort(new Error('nobody reads the speech any more'));
    pipe.destroy();
  };
  const speaking = calls.run({ ...order, giveUp }, async (call) => {
    checkNames(order, streamNames, 'speakStream');
    const text = composed(call, order, undefined);
    // Whoever closes the client may be the very loop that reads this.
    call.closing.addEventListener('abort', leave);
    return spoken(call, order, text, '-', new StreamSink(pipe, wavRateOf(text).wavRate)).finally(() => {
      call.closing.removeEventListener('abort', leave);
    });
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

// Why it was closed before its end is told by the call.
async function* piecesOf(pipe: PassThrough): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* pipe as AsyncIterable<Uint8Array>;
  } catch (error) {
    if (systemCode(error) !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
}

interface Text {
  body: JsonObject;
  format: SpeechFormat;
  /** Hertz. */
  sampleRate: number;
}

function composed({ settings }: Call, order: SpeechStreamOrder, target: string | undefined): Text {
  const { text, speaker, format, sampleRate, params = {}, check, key, newTake } = order;
  checkKeyName(key, newTake);
  if (typeof text !== 'string') throw usageError('text: give the text that is spoken.');
  const fields: SpeechFields = {
    ...(speaker !== undefined && { speaker }),
    ...(format !== undefined && { format }),
    ...(sampleRate !== undefined && { sampleRate }),
    ...(check !== undefined && { check }),
    set: setsOf(jsonObject(params, 'params')),
  };
  return composeSpeech(text, target, fields, settings);
}

// As `--set req_params.NAME=JSON` would: what the parameters say wins.
function setsOf(params: JsonObject): string[] {
  return Object.entries(params).map(([name, value]) => `req_params.${name}=${JSON.stringify(value)}`);
}

function wavRateOf({ format, sampleRate }: Text): { wavRate?: number } {
  return format.wav ? { wavRate: sampleRate } : {};
}

async function spoken(
  call: Call,
  { key, newTake: fresh = false, budget }: SpeechStreamOrder,
  { body, format }: Text,
  output: string,
  sink: AudioSink,
): Promise<Delivered> {
  const { session, deadline } = call;
  const { name } = await session.gateway();
  const text = fingerprintOf({ protocol: 'tts', body: [body] }, name);
  const deps = depsOf(call, await payingDeps(session, 'command', text, { budget: amountText(budget) }));
  const order = {
    ...{ body, fresh, output, deadline },
    ...(key !== undefined && { key }),
    ...(format.wav && { variant: 'wav' }),
  };
  return speak(order, deps, sink);
}
