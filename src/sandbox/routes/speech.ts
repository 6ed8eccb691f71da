import { Readable } from 'node:stream';
import { declaresJson, jsonObject } from '../body.ts';
import { chargeFor } from '../bill.ts';
import {
  gatewayError,
  insufficientQuota,
  limitExceeded,
  type Call,
  json,
  type Reply,
  type Route,
} from '../exchange.ts';
import { recordSent, recordFailure } from '../journal.ts';
import { isSpeechFormat, speechChunks, type SpeechOptions } from '../media/speech.ts';
import { cost, priceFor } from '../models.ts';
import { isObject } from '../state.ts';

/** The only speech model, which a header selects (specification 2.6, 5). */
const speechModel = 'speech-tts-2.0';
const sampleRates = [8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
const defaultVoices = ['en_female_1', 'en_male_1', 'zh_female_1', 'zh_male_1'];
/** A voice that exists but that no key may use. */
const forbiddenVoice = 'forbidden-voice';

const common = { method: 'POST', area: 'tts', kind: 'tts' } as const;

/** The routes for streaming speech (specification 4.4) and for wrong paths. */
export const speechRoutes: readonly Route[] = [
  { ...common, pattern: /^\/api\/v3\/tts\/unidirectional$/, auth: 'x-api-key', handle: speak },
  { ...common, pattern: /^\/api\/v3(\/|$)|\/tts\/unidirectional\/?$/, auth: 'none', handle: wrongPath },
];

/** Returns the available voices. A request without `speaker` uses the first voice. */
export function voicesOf({ gateway }: Call): string[] {
  return [...defaultVoices, ...gateway.voices];
}

function wrongPath(call: Call): Reply {
  return gatewayError(404, `The path ${call.path} is not a speech endpoint`, {
    code: 'unsupported_endpoint',
  });
}

function speak(call: Call): Reply {
  const headers = { 'X-Tt-Logid': logIdOf(call) };
  return refusal(call, headers) ?? startStream(call, headers);
}

/** Returns the HTTP error for an invalid call, without checking its text; undefined if the call is valid. */
function refusal(call: Call, headers: Record<string, string>): Reply | undefined {
  const refuse = (status: number, code: number, message: string): Reply =>
    json(status, { code, message }, headers);
  const resource = [call.headers['x-api-resource-id']].flat()[0] ?? '';
  if (resource !== speechModel || !call.mayUse(speechModel)) {
    const message = `[resource_id=${resource}] requested resource not granted`;
    return json(403, { header: { reqid: logIdOf(call), code: 45_000_030, message } }, headers);
  }
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined) return refuse(400, 45_000_000, 'payload unmarshal: the body must be JSON');
  if (body.model !== undefined)
    return refuse(400, 45_000_000, 'payload unmarshal: the model is chosen by X-Api-Resource-Id');
  const { speaker, ...params } = paramsOf(body);
  const text = textOf(params);
  if (speaker === forbiddenVoice || text.includes('[voice-denied]'))
    return refuse(403, 45_000_000, 'speaker permission denied: the voice is not authorized for this key');
  const voices = voicesOf(call);
  if (speaker !== undefined && !voices.includes(speaker as string))
    return refuse(400, 45_000_001, `[Invalid argument] speaker not found; available: ${voices.join(', ')}`);
  return text.includes('[no-balance]') ? insufficientQuota(call.requestId) : undefined;
}

/** Returns the streamed response. Errors about the text are inside the stream, with HTTP 200 (specification 7). */
function startStream(call: Call, headers: Record<string, string>): Reply {
  const body = jsonObject(call) ?? {};
  const params = paramsOf(body);
  const options = optionsOf(params);
  const streamHeaders = { ...headers, 'Content-Type': 'application/json' };
  if (typeof options === 'string') {
    const code = options === unreadableText ? 45_002_001 : 45_000_001;
    const frame = `${JSON.stringify({ code, message: options })}\n`;
    return { status: 200, headers: streamHeaders, body: frame, isRefused: true };
  }
  if (call.gateway.streams.open >= (call.gateway.limits.concurrency ?? Infinity))
    return limitExceeded('tts', { limit: 'concurrency' }, call.requestId);
  const { text } = options;
  const characters = countBillable(text);
  const usage = call.headers['x-control-require-usage-tokens-return'] === undefined ? undefined : characters;
  const end = endOf(call, text);
  const task = `speech-${call.requestId}`;
  if (end.kind !== 'error' || end.percent > 0) chargeSpeech(call, { task, body, text, characters });
  const reply = { status: 200, headers: streamHeaders, body: Readable.from(speechBody(options, end, usage)) };
  const countedReply = countStream(call, reply);
  return end.kind === 'complete'
    ? recordSent(call, task, countedReply)
    : recordFailure(call, task, text, countedReply);
}

function countStream({ gateway: { streams } }: Call, reply: Reply): Reply {
  streams.open += 1;
  return { ...reply, onEnd: () => void (streams.open -= 1) };
}

const unreadableText = 'No readable text!';

/** Returns the speech's text, format and sample rate, or an error message. */
function optionsOf(params: Record<string, unknown>): SpeechOptions | string {
  const audio = isObject(params.audio_params) ? params.audio_params : {};
  const { format = 'mp3', sample_rate: sampleRate = 24_000 } = audio;
  const text = textOf(params);
  if (!/[\p{L}\p{N}]/u.test(text.replace(magicPattern, ''))) return unreadableText;
  if (typeof format !== 'string' || !isSpeechFormat(format)) return '[Invalid argument] InvalidFormat';
  if (typeof sampleRate !== 'number' || !sampleRates.includes(sampleRate))
    return '[Invalid argument] InvalidSampleRate';
  return { text, format, sampleRate };
}

const magicPattern = /\[[a-z-]+\]/g;

/**
 * Returns how the stream ends, according to a magic word in the text, or else to a fault. With neither, the stream
 * succeeds.
 */
function endOf({ gateway }: Call, text: string): SpeechEnd {
  if (text.includes('[speech-error]')) return { kind: 'error', percent: 0 };
  if (text.includes('[speech-breaks]')) return { kind: 'error', percent: 50 };
  if (text.includes('[speech-cut]')) return { kind: 'cut', percent: 50 };
  if (text.includes('[no-audio]')) return { kind: 'silent' };
  const error = gateway.takeFault('tts-error-frame');
  if (error) return { kind: 'error', percent: error.percent };
  const cutFault = gateway.takeFault('tts-cut');
  if (cutFault) return { kind: 'cut', percent: cutFault.percent };
  const reset = gateway.takeFault('tts-reset');
  return reset ? { kind: 'reset', percent: reset.percent } : { kind: 'complete' };
}

function chargeSpeech(
  call: Call,
  speech: { task: string; body: unknown; text: string; characters: number },
): void {
  const amount = cost(priceFor('tts', speechModel), { units: speech.characters / 10_000 });
  chargeFor(call, { ...speech, area: 'tts', model: speechModel, amount, at: call.gateway.now() });
}

/** Returns the number of billable characters: code points, not bytes, that are not white space (specification 8). */
function countBillable(text: string): number {
  return Array.from(text.replace(/\s+/gu, '')).length;
}

function paramsOf(body: Record<string, unknown>): Record<string, unknown> {
  return isObject(body.req_params) ? body.req_params : {};
}

function textOf(params: Record<string, unknown>): string {
  return typeof params.text === 'string' ? params.text : '';
}

function logIdOf(call: Call): string {
  return call.requestId.toUpperCase();
}

/** How a speech stream ends. `percent` is the share of the audio that is sent before the end. */
type SpeechEnd =
  | { kind: 'complete' }
  /** An error frame replaces the remaining frames. */
  | { kind: 'error'; percent: number }
  /** The remaining frames are missing, but the body ends normally. */
  | { kind: 'cut'; percent: number }
  /** The connection breaks. */
  | { kind: 'reset'; percent: number }
  /** The end frame is sent without any audio. */
  | { kind: 'silent' };

/**
 * Yields the body of a speech response (specification 2.6, 4.4). Some frames follow each other directly, others are
 * separated, and chunks end at irregular positions. The end frame contains `usage` if it was requested. Throws in the
 * middle of the stream if the connection must break.
 */
function* speechBody(
  options: SpeechOptions,
  end: SpeechEnd,
  usage: number | undefined,
): Generator<Uint8Array> {
  yield* irregularChunks(frames(options, end, usage));
  if (end.kind === 'reset') throw new Error('the connection must break here');
}

function* frames(options: SpeechOptions, end: SpeechEnd, usage: number | undefined): Generator<string> {
  const sentence = { phonemes: [], text: options.text.slice(0, 200), words: [] };
  yield frameText({ code: 0, message: '', data: null, sentence });
  yield* audioFrames(options, end);
  if (end.kind === 'error')
    yield frameText({ code: 55_000_000, message: 'the synthesis broke off: "server error" {1}' });
  if (end.kind !== 'complete' && end.kind !== 'silent') return;
  const usageMember = usage === undefined ? {} : { usage: { text_words: usage } };
  yield frameText({ code: 20_000_000, message: 'ok', data: null, ...usageMember });
}

function* audioFrames(options: SpeechOptions, end: SpeechEnd): Generator<string> {
  if (end.kind === 'silent') return;
  const maxFragments =
    'percent' in end ? Math.floor((countFragments(options) * end.percent) / 100) : Infinity;
  let sentCount = 0;
  for (const fragment of speechChunks(options)) {
    if (sentCount >= maxFragments) return;
    sentCount += 1;
    yield frameText({ code: 0, message: '', data: Buffer.from(fragment).toString('base64') });
  }
}

function countFragments(options: SpeechOptions): number {
  let fragmentCount = 0;
  for (const fragment of speechChunks(options)) fragmentCount += fragment.length > 0 ? 1 : 0;
  return fragmentCount;
}

function frameText(frame: object): string {
  // Real speech services escape slashes and some non-ASCII characters.
  return JSON.stringify(frame)
    .replaceAll('/', '\\/')
    .replace(/[\u00c0-\u024f]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const frameGaps = ['\n', '', '\r\n', '', '\n\n', ' '];
/** The sizes of successive chunks, in bytes. They split frames, escapes and characters, and combine frames. */
const chunkSizes = [40, 1, 3, 2000, 7, 64, 32_768, 500];

function* irregularChunks(texts: Iterable<string>): Generator<Uint8Array> {
  let pending: Buffer = Buffer.alloc(0);
  let chunkIndex = 0;
  let frameIndex = 0;
  for (const text of texts) {
    pending = Buffer.concat([
      pending,
      Buffer.from(text + (frameGaps[frameIndex++ % frameGaps.length] ?? '')),
    ]);
    for (let size = sizeAt(chunkIndex); pending.length > size; size = sizeAt(chunkIndex)) {
      yield pending.subarray(0, size);
      pending = pending.subarray(size);
      chunkIndex += 1;
    }
  }
  if (pending.length > 0) yield pending;
}

function sizeAt(chunkIndex: number): number {
  return chunkSizes[chunkIndex % chunkSizes.length] ?? 1;
}
