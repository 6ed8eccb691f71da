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
const MODEL = 'speech-tts-2.0';
const SAMPLE_RATES = [8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
const VOICES = ['en_female_1', 'en_male_1', 'zh_female_1', 'zh_male_1'];
/** A voice that exists but that no key may use. */
const FORBIDDEN_VOICE = 'forbidden-voice';

const TTS = { method: 'POST', area: 'tts', kind: 'tts' } as const;

/** The routes for streaming speech (specification 4.4) and for wrong paths. */
export const speechRoutes: readonly Route[] = [
  { ...TTS, pattern: /^\/api\/v3\/tts\/unidirectional$/, auth: 'x-api-key', handle: speak },
  { ...TTS, pattern: /^\/api\/v3(\/|$)|\/tts\/unidirectional\/?$/, auth: 'none', handle: wrongPath },
];

/** Returns the available voices. A request without `speaker` uses the first voice. */
export function voicesOf({ gateway }: Call): string[] {
  return [...VOICES, ...gateway.voices];
}

function wrongPath(call: Call): Reply {
  return gatewayError(404, `The path ${call.path} is not a speech endpoint`, {
    code: 'unsupported_endpoint',
  });
}

function speak(call: Call): Reply {
  const headers = { 'X-Tt-Logid': logId(call) };
  return refusal(call, headers) ?? begun(call, headers);
}

/** Returns the HTTP error for an invalid call, without checking its text; undefined if the call is valid. */
function refusal(call: Call, headers: Record<string, string>): Reply | undefined {
  const refuse = (status: number, code: number, message: string): Reply =>
    json(status, { code, message }, headers);
  const resource = [call.headers['x-api-resource-id']].flat()[0] ?? '';
  if (resource !== MODEL || !call.mayUse(MODEL)) {
    const message = `[resource_id=${resource}] requested resource not granted`;
    return json(403, { header: { reqid: logId(call), code: 45_000_030, message } }, headers);
  }
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined) return refuse(400, 45_000_000, 'payload unmarshal: the body must be JSON');
  if (body.model !== undefined)
    return refuse(400, 45_000_000, 'payload unmarshal: the model is chosen by X-Api-Resource-Id');
  const { speaker, ...params } = paramsOf(body);
  const text = textOf(params);
  if (speaker === FORBIDDEN_VOICE || text.includes('[voice-denied]'))
    return refuse(403, 45_000_000, 'speaker permission denied: the voice is not authorized for this key');
  const voices = voicesOf(call);
  if (speaker !== undefined && !voices.includes(speaker as string))
    return refuse(400, 45_000_001, `[Invalid argument] speaker not found; available: ${voices.join(', ')}`);
  return text.includes('[no-balance]') ? insufficientQuota(call.requestId) : undefined;
}

/** Returns the streamed response. Errors about the text are inside the stream, with HTTP 200 (specification 7). */
function begun(call: Call, headers: Record<string, string>): Reply {
  const body = jsonObject(call) ?? {};
  const params = paramsOf(body);
  const options = optionsOf(params);
  const streamHeaders = { ...headers, 'Content-Type': 'application/json' };
  if (typeof options === 'string') {
    const code = options === UNREADABLE ? 45_002_001 : 45_000_001;
    const frame = `${JSON.stringify({ code, message: options })}\n`;
    return { status: 200, headers: streamHeaders, body: frame, refused: true };
  }
  if (call.gateway.streams.open >= (call.gateway.limits.concurrency ?? Infinity))
    return limitExceeded('tts', { limit: 'concurrency' }, call.requestId);
  const { text } = options;
  const characters = billable(text);
  const usage = call.headers['x-control-require-usage-tokens-return'] === undefined ? undefined : characters;
  const end = endOf(call, text);
  const task = `speech-${call.requestId}`;
  if (end.kind !== 'error' || end.percent > 0) bill(call, { task, body, text, characters });
  const reply = { status: 200, headers: streamHeaders, body: speechStream(options, end, usage) };
  const counted = countStream(call, reply);
  return end.kind === 'complete' ? recordSent(call, task, counted) : recordFailure(call, task, text, counted);
}

function countStream({ gateway: { streams } }: Call, reply: Reply): Reply {
  streams.open += 1;
  return { ...reply, ended: () => void (streams.open -= 1) };
}

const UNREADABLE = 'No readable text!';

/** Returns the speech's text, format and sample rate, or an error message. */
function optionsOf(params: Record<string, unknown>): SpeechOptions | string {
  const audio = isObject(params.audio_params) ? params.audio_params : {};
  const { format = 'mp3', sample_rate: sampleRate = 24_000 } = audio;
  const text = textOf(params);
  if (!/[\p{L}\p{N}]/u.test(text.replace(MAGIC, ''))) return UNREADABLE;
  if (typeof format !== 'string' || !isSpeechFormat(format)) return '[Invalid argument] InvalidFormat';
  if (typeof sampleRate !== 'number' || !SAMPLE_RATES.includes(sampleRate))
    return '[Invalid argument] InvalidSampleRate';
  return { text, format, sampleRate };
}

const MAGIC = /\[[a-z-]+\]/g;

/**
 * Returns how the stream ends, according to a magic word in the text, or else to a fault. With neither, the stream
 * succeeds.
 */
function endOf({ gateway }: Call, text: string): SpeechEnd {
  if (text.includes('[speech-error]')) return { kind: 'error', percent: 0 };
  if (text.includes('[speech-breaks]')) return { kind: 'error', percent: 50 };
  if (text.includes('[speech-cut]')) return { kind: 'cut', percent: 50 };
  if (text.includes('[no-audio]')) return { kind: 'silent' };
  const error = gateway.take('tts-error-frame');
  if (error) return { kind: 'error', percent: error.percent };
  const cut = gateway.take('tts-cut');
  if (cut) return { kind: 'cut', percent: cut.percent };
  const reset = gateway.take('tts-reset');
  return reset ? { kind: 'reset', percent: reset.percent } : { kind: 'complete' };
}

function bill(call: Call, speech: { task: string; body: unknown; text: string; characters: number }): void {
  const amount = cost(priceFor('tts', MODEL), { units: speech.characters / 10_000 });
  chargeFor(call, { ...speech, area: 'tts', model: MODEL, amount, at: call.gateway.now() });
}

/** Returns the number of billable characters: code points, not bytes, that are not white space (specification 8). */
function billable(text: string): number {
  return Array.from(text.replace(/\s+/gu, '')).length;
}

function paramsOf(body: Record<string, unknown>): Record<string, unknown> {
  return isObject(body.req_params) ? body.req_params : {};
}

function textOf(params: Record<string, unknown>): string {
  return typeof params.text === 'string' ? params.text : '';
}

function logId(call: Call): string {
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
 * Returns the body of a speech response (specification 2.6, 4.4). Some frames follow each other directly, others are
 * separated, and chunks end at irregular positions. The end frame contains `usage` if it was requested. Throws in the
 * middle of the stream if the connection must break.
 */
function speechStream(
  options: SpeechOptions,
  end: SpeechEnd,
  usage: number | undefined,
): AsyncIterable<Uint8Array> {
  return Readable.from(pieces(options, end, usage));
}

function* pieces(options: SpeechOptions, end: SpeechEnd, usage: number | undefined): Generator<Uint8Array> {
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
  const counted = usage === undefined ? {} : { usage: { text_words: usage } };
  yield frameText({ code: 20_000_000, message: 'ok', data: null, ...counted });
}

function* audioFrames(options: SpeechOptions, end: SpeechEnd): Generator<string> {
  if (end.kind === 'silent') return;
  const most = 'percent' in end ? Math.floor((count(options) * end.percent) / 100) : Infinity;
  let made = 0;
  for (const fragment of speechChunks(options)) {
    if (made >= most) return;
    made += 1;
    yield frameText({ code: 0, message: '', data: Buffer.from(fragment).toString('base64') });
  }
}

function count(options: SpeechOptions): number {
  let made = 0;
  for (const fragment of speechChunks(options)) made += fragment.length > 0 ? 1 : 0;
  return made;
}

function frameText(frame: object): string {
  // Real speech services escape slashes and some non-ASCII characters.
  return JSON.stringify(frame)
    .replaceAll('/', '\\/')
    .replace(/[\u00c0-\u024f]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const GAPS = ['\n', '', '\r\n', '', '\n\n', ' '];
/** The sizes of successive chunks, in bytes. They split frames, escapes and characters, and combine frames. */
const CHUNKS = [40, 1, 3, 2000, 7, 64, 32_768, 500];

function* irregularChunks(texts: Iterable<string>): Generator<Uint8Array> {
  let pending: Buffer = Buffer.alloc(0);
  let turn = 0;
  let frame = 0;
  for (const text of texts) {
    pending = Buffer.concat([pending, Buffer.from(text + (GAPS[frame++ % GAPS.length] ?? ''))]);
    for (let size = sizeAt(turn); pending.length > size; size = sizeAt(turn)) {
      yield pending.subarray(0, size);
      pending = pending.subarray(size);
      turn += 1;
    }
  }
  if (pending.length > 0) yield pending;
}

function sizeAt(turn: number): number {
  return CHUNKS[turn % CHUNKS.length] ?? 1;
}
