import { charge, fingerprint } from '../bill.ts';
import { declaresJson, isObject, jsonObject } from '../body.ts';
import { gatewayError } from '../envelopes.ts';
import type { Call, Reply, Route } from '../exchange.ts';
import { json } from '../exchange.ts';
import { isSpeechFormat, type SpeechOptions } from '../media/speech.ts';
import { speechStream, type SpeechEnd } from '../speech-stream.ts';

/** The one model of speech, which a header chooses (specification 2.6, 5). */
const MODEL = 'speech-tts-2.0';
/** Credits for 10,000 billable characters (specification 8). */
const RATE = 150;
const SAMPLE_RATES = [8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
/** A voice that exists and that no key may use. */
const FORBIDDEN_VOICE = 'forbidden-voice';

/** Streaming speech (specification 4.4), and what a wrong path to it answers. */
export const speechRoutes: readonly Route[] = [
  {
    method: 'POST',
    pattern: /^\/api\/v3\/tts\/unidirectional$/,
    area: 'tts',
    kind: 'tts',
    auth: 'x-api-key',
    handle: speak,
  },
  {
    method: 'POST',
    pattern: /^\/api\/v3(\/|$)|\/tts\/unidirectional\/?$/,
    area: 'tts',
    kind: 'tts',
    auth: 'none',
    handle: wrongPath,
  },
];

function wrongPath(call: Call): Reply {
  return gatewayError(404, `The path ${call.path} is not an endpoint of speech`, {
    code: 'unsupported_endpoint',
  });
}

function speak(call: Call): Reply {
  const headers = { 'X-Tt-Logid': logId(call) };
  return refusal(call, headers) ?? begun(call, headers);
}

/** What is wrong with the call itself: HTTP errors, before the text is looked at. */
function refusal(call: Call, headers: Record<string, string>): Reply | undefined {
  const resource = [call.headers['x-api-resource-id']].flat()[0] ?? '';
  if (resource !== MODEL) {
    const message = `[resource_id=${resource}] requested resource not granted`;
    return json(403, { header: { reqid: logId(call), code: 45_000_030, message } }, headers);
  }
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined)
    return json(400, flat(45_000_000, 'payload unmarshal: the body must be JSON'), headers);
  if (body.model !== undefined)
    return json(
      400,
      flat(45_000_000, 'payload unmarshal: the model is chosen by X-Api-Resource-Id'),
      headers,
    );
  const params = paramsOf(body);
  if (params.speaker === FORBIDDEN_VOICE || textOf(params).includes('[voice-denied]')) {
    return json(
      403,
      flat(45_000_000, 'speaker permission denied: the voice is not authorised for this key'),
      headers,
    );
  }
  if (textOf(params).includes('[no-balance]'))
    return gatewayError(403, 'Insufficient balance', {
      code: 'insufficient_user_quota',
      requestId: call.requestId,
    });
  return undefined;
}

/** The stream: errors about the text come inside it, under HTTP 200 (specification 7). */
function begun(call: Call, headers: Record<string, string>): Reply {
  const body = jsonObject(call) ?? {};
  const params = paramsOf(body);
  const options = optionsOf(params);
  const streamHeaders = { ...headers, 'Content-Type': 'application/json' };
  if (typeof options === 'string') {
    const code = options === UNREADABLE ? 45_002_001 : 45_000_001;
    return {
      status: 200,
      headers: streamHeaders,
      body: `${JSON.stringify(flat(code, options))}\n`,
      refused: true,
    };
  }
  const characters = billable(options.text);
  const usage = call.headers['x-control-require-usage-tokens-return'] === undefined ? undefined : characters;
  const end = endOf(call, options.text);
  if (end.kind !== 'error' || end.percent > 0) bill(call, body, characters);
  return { status: 200, headers: streamHeaders, body: speechStream(options, end, usage) };
}

const UNREADABLE = 'No readable text!';

/** What is to be spoken, or the words of the error. */
function optionsOf(params: Record<string, unknown>): SpeechOptions | string {
  const audio = isObject(params.audio_params) ? params.audio_params : {};
  const { format = 'mp3', sample_rate: sampleRate = 24_000 } = audio;
  const text = textOf(params);
  if (!/[\p{L}\p{N}]/u.test(text.replace(MAGIC, ''))) return UNREADABLE;
  if (typeof format !== 'string' || !isSpeechFormat(format)) return '[Invalid argument] InvalidFormat';
  if (typeof sampleRate !== 'number' || !SAMPLE_RATES.includes(sampleRate))
    return '[Invalid argument] InvalidSampleRate';
  if (params.speaker !== undefined && (typeof params.speaker !== 'string' || params.speaker.trim() === ''))
    return '[Invalid argument] speaker not found';
  return { text, format, sampleRate };
}

const MAGIC = /\[[a-z-]+\]/g;

/** How the stream ends: by words in the text, else by a fault, else well. */
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
  return reset ? { kind: 'reset', percent: reset.percent } : { kind: 'well' };
}

function bill({ gateway, key, requestId }: Call, body: unknown, characters: number): void {
  charge(gateway.stateDir, {
    task: `speech-${requestId}`,
    area: 'tts',
    model: MODEL,
    amount: (characters / 10_000) * RATE,
    characters,
    fingerprint: fingerprint({ model: MODEL, body }),
    key,
    at: gateway.now(),
  });
}

/** Characters are code points that are not white space; not bytes (specification 8). */
function billable(text: string): number {
  return Array.from(text.replace(/\s+/gu, '')).length;
}

function paramsOf(body: Record<string, unknown>): Record<string, unknown> {
  return isObject(body.req_params) ? body.req_params : {};
}

function textOf(params: Record<string, unknown>): string {
  return typeof params.text === 'string' ? params.text : '';
}

function flat(code: number, message: string): object {
  return { code, message };
}

function logId(call: Call): string {
  return call.requestId.toUpperCase();
}
