import { randomUUID } from 'node:crypto';
import type { Exchange, Failure, Reply, SubmitVerdict } from '../exchange.ts';
import { requestIdOf, adviceFor, withAdvice, messageIn, readFailure } from '../http/failures.ts';
import { at, isObject, textAt, tryParseJson, type Json, type JsonObject } from '../json.ts';
import { isSuccess, judgeFailedSubmission } from '../protocols/verdicts.ts';
import type { ErrorCode } from '../errors.ts';

/** The speech model. A header selects the model, not the body (specification 2.6, 5). */
export const speechModel = 'speech-tts-2.0';

const endOfSynthesis = 20_000_000;

/** Returns the request with the given body (specification 2.6). */
export function speechExchange(body: JsonObject): Exchange {
  return {
    method: 'POST',
    path: '/api/v3/tts/unidirectional',
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'x-api-resource-id': speechModel,
      // The service reports usage only on request. A gateway that does not know the header ignores it.
      'x-control-require-usage-tokens-return': '*',
    },
    body: JSON.stringify(body),
  };
}

/**
 * Interprets the head of a response. After 2xx, the stream begins and the call is charged; the handle is the service's
 * log id, or an id that mgw generates. Any other status is interpreted by the table in design 5. Never throws.
 */
export function readSpeechHead(reply: Reply, sent?: JsonObject): SubmitVerdict {
  if (isSuccess(reply))
    return { kind: 'accepted', handle: callId(reply) ?? `${ownCallPrefix}${randomUUID()}` };
  const verdict = judgeFailedSubmission(reply, sent);
  const redirects = reply.status === 307 || reply.status === 308;
  if (redirects || verdict.kind === 'accepted') return verdict;
  return { ...verdict, failure: speechHttpFailure(reply) };
}

const ownCallPrefix = 'speech-';

/** Whether {@link readSpeechHead} generated the handle because the gateway returned none. */
export function isOwnCallId(handle: string): boolean {
  return handle.startsWith(ownCallPrefix) && handle.length === ownCallPrefix.length + 36;
}

/** Returns the service's log id for a call, or else the gateway's own id for it. */
export function callId(reply: Reply): string | undefined {
  return reply.headers['x-tt-logid'] || requestIdOf(reply, null);
}

/** A decoded stream frame. */
export type Frame =
  | { kind: 'audio'; bytes: Buffer; usage?: JsonObject }
  /** A data frame without audio, such as a sentence's text. */
  | { kind: 'text'; usage?: JsonObject }
  /** The successful end. Audio in this frame, if any, precedes the end. */
  | { kind: 'end'; bytes?: Buffer; usage?: JsonObject }
  /** The synthesis failed, possibly with HTTP 200. */
  | { kind: 'error'; failure: Failure; usage?: JsonObject }
  /** Not a frame of specification 2.6. Nothing in the response is reliable. */
  | { kind: 'fault'; why: string };

/**
 * Decodes a frame. Its Base64 is decoded strictly and separately, into the start of `room` if that is large enough.
 * Never throws.
 */
export function readFrame(frame: Uint8Array, room?: Buffer): Frame {
  const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.length);
  const { json, data } = separateData(bytes) ?? { json: tryParseJson(bytes.toString()), data: undefined };
  if (json === undefined) return { kind: 'fault', why: 'a frame is not JSON' };
  const code = at(json, 'code') ?? at(json, 'header.code');
  if (typeof code !== 'number' || !Number.isInteger(code)) return readFrameWithoutCode(json, code);
  if (code !== 0 && code !== endOfSynthesis)
    return { kind: 'error', failure: failureIn(json, String(code)), usage: usageIn(json) };
  return dataFrame(json, code, data ?? at(json, 'data') ?? '', room);
}

const dataStart = '"data":"';
const quote = 0x22;
const placeholder = 'mgw:data';

// Parses a frame without its audio. Nearly all of a frame is audio, and parsing it as JSON would double the work.
// Returns undefined for an unusual frame, so the caller parses the whole frame.
function separateData(frame: Buffer): { json: Json; data: string } | undefined {
  const start = frame.indexOf(dataStart) + dataStart.length;
  const end = frame.indexOf(quote, start);
  if (start < dataStart.length || end < 0) return undefined;
  const data = frame.toString('latin1', start, end);
  if (data.includes('\\')) return undefined;
  const text = frame.toString('utf8', 0, start) + placeholder + frame.toString('utf8', end);
  if (text !== lastParsed.text) lastParsed = { text, json: tryParseJson(text) };
  const { json } = lastParsed;
  return json !== undefined && at(json, 'data') === placeholder ? { json, data } : undefined;
}

// Caches the last frame without its audio, because the next one is usually the same.
let lastParsed: { text: string; json?: Json } = { text: '' };

function dataFrame(json: Json, code: number, data: Json, room?: Buffer): Frame {
  if (typeof data !== 'string') return { kind: 'fault', why: `the data of a frame is a ${typeof data}` };
  const bytes = decodeBase64(data, room);
  if (bytes === undefined) return { kind: 'fault', why: 'the data of a frame is not strict Base64' };
  const audio = bytes.length > 0 ? bytes : undefined;
  const usage = usageIn(json);
  if (code === endOfSynthesis) return { kind: 'end', bytes: audio, usage };
  const usageMember = usage && { usage };
  return audio === undefined
    ? { kind: 'text', ...usageMember }
    : { kind: 'audio', bytes: audio, ...usageMember };
}

// Node's decoder skips invalid characters, so a result of full length proves that there are none, except the two
// URL-safe ones and non-ASCII. A regular expression over every character would be the slowest step.
function decodeBase64(data: string, room: Buffer | undefined): Buffer | undefined {
  const padding = data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0;
  const length = (data.length / 4) * 3 - padding;
  if (data.length % 4 !== 0 || data.includes('-') || data.includes('_')) return undefined;
  if (Buffer.byteLength(data) !== data.length) return undefined;
  const hasRoom = room !== undefined && room.length >= length;
  const bytes = hasRoom ? room.subarray(0, room.write(data, 'base64')) : Buffer.from(data, 'base64');
  return bytes.length === length ? bytes : undefined;
}

// The gateway's own errors may have a different envelope, even with HTTP 200.
function readFrameWithoutCode(json: Json, code: Json | undefined): Frame {
  const error = at(json, 'error');
  if (isObject(error) || typeof error === 'string')
    return {
      kind: 'error',
      failure: failureIn(json, textAt(json, 'error.code') ?? textAt(json, 'error.type')),
    };
  const codeProblem =
    code === undefined ? 'missing' : typeof code === 'number' ? 'not an integer' : `a ${typeof code}`;
  const message = textAt(json, 'message');
  return {
    kind: 'fault',
    why: `the code of a frame is ${codeProblem}${message === undefined ? '' : ` (${message})`}`,
  };
}

function failureIn(json: Json, nativeCode: string | undefined): Failure {
  const message =
    textAt(json, 'message') ??
    textAt(json, 'header.message') ??
    textAt(json, 'error.message') ??
    textAt(json, 'error') ??
    '';
  return speechFailure(message, nativeCode, requestIdIn(json, message));
}

function requestIdIn(json: Json, message: string): string | undefined {
  const requestId = textAt(json, 'reqid') ?? textAt(json, 'header.reqid') ?? textAt(json, 'request_id');
  return requestId ?? /\(request id: ([^)]{1,200})\)/.exec(message)?.[1];
}

function usageIn(json: Json): JsonObject | undefined {
  const usage = at(json, 'usage');
  return isObject(usage) ? usage : undefined;
}

/** A kind of failure that speech services report with a message or with their own code. */
interface FailureKind {
  words?: RegExp;
  codes?: RegExp;
  code: ErrorCode;
  /** Advice to append to the gateway's message. */
  advice?: string;
}

const wrongPath: FailureKind = {
  code: 'not_found',
  advice: 'The base URL must be the root of the gateway, without /v1 or /api/v3.',
};
const speakerAdvice =
  'Choose a voice that is authorized for this key and model: --speaker, tts.speaker in the config, or MGW_TTS_SPEAKER.';
const shorterAdvice = 'Send the text in pieces with --split.';

// A code may have several meanings, so the message takes precedence over the code. The first match applies.
const kinds: readonly FailureKind[] = [
  {
    words: /no readable text|EmptyRequest/i,
    codes: /^45002001$/,
    code: 'invalid_request',
    advice: 'The text must contain at least one letter or digit.',
  },
  {
    words: /TextLimit|max limit|request size too large|text.{0,40}too long/i,
    codes: /^(40402003|3010)$/,
    code: 'invalid_request',
    advice: shorterAdvice,
  },
  {
    words:
      /_lifetime|insufficient (?!permission|scope|privilege)|insufficient_|balance|arrears|余额不足|额度不足|欠费/i,
    code: 'balance',
  },
  {
    words: /concurrency|quota exceeded|too many requests|rate[ _-]?limit/i,
    codes: /^(45000292|3003|3005)$/,
    code: 'rate_limited',
  },
  {
    words:
      /(speaker|voice).{0,80}(permission|denied|unauthori[sz]ed|unsupported|forbidden|no access|not (granted|authori[sz]ed|allowed|supported|match|available))|(permission|unauthori[sz]ed|unsupported|no access).{0,80}(speaker|voice)|mismatched with speaker|(音色|发音人|声音).{0,40}(授权|权限|无权|不支持)/i,
    code: 'auth',
    advice: speakerAdvice,
  },
  {
    words:
      /(speaker|voice).{0,80}(not found|not exist|invalid|empty|missing|required)|(invalid|empty|missing|no such) (speaker|voice)/i,
    codes: /^(45002000|3050)$/,
    code: 'invalid_request',
    advice: speakerAdvice,
  },
  {
    words: /not granted/i,
    codes: /^45000030$/,
    code: 'auth',
    advice:
      "The key's groups must include the speech model: use another key, or request access for this key.",
  },
  { words: /invalid (token|x?-?api[- ]?key)|无效的令牌/i, codes: /^45000010$/, code: 'auth' },
  { ...wrongPath, words: /unsupported_endpoint/i },
  { words: /sensitive|moderation|content policy|violation|敏感|违规/i, code: 'content_policy' },
  // All other errors are recognized only by their code.
  { codes: /^(4\d{7}|3001|3011)$/, code: 'invalid_request' },
  { codes: /^(5\d{7}|3030|3031)$/, code: 'server_error' },
];

/**
 * Interprets an application error of a speech stream (specification 3.4, 7): by the gateway's message, else by its
 * code. An unknown error is `server_error`.
 */
export function speechFailure(message: string, nativeCode: string | undefined, requestId?: string): Failure {
  const kind = kindOf(message, nativeCode);
  const words = message.trim() === '' ? `The gateway returned error ${nativeCode ?? ''}` : message.trim();
  const code = kind?.code ?? 'server_error';
  return { code, message: withAdvice(words, kind?.advice ?? adviceFor(code)), nativeCode, requestId };
}

/**
 * Interprets an HTTP error from the speech endpoint. In addition to the errors of other endpoints, recognizes those
 * that only speech has. If the body is empty, uses the service's own headers (`X-Api-Status-Code`, `X-Api-Message`).
 */
export function speechHttpFailure(reply: Reply): Failure {
  const failure = readFailure(reply);
  const { 'x-api-message': headerMessage, 'x-api-status-code': headerCode } = reply.headers;
  // The client decodes headers as Latin-1, but the service writes UTF-8.
  const words =
    messageIn(tryParseJson(reply.text)) ?? (headerMessage && Buffer.from(headerMessage, 'latin1').toString());
  const nativeCode = failure.nativeCode ?? headerCode;
  const kind =
    kindOf(words ?? plainText(reply), nativeCode) ?? (reply.status === 404 ? wrongPath : undefined);
  const code = reply.status >= 500 && kind?.code !== 'auth' ? failure.code : (kind?.code ?? failure.code);
  return {
    ...failure,
    nativeCode,
    code,
    message: withAdvice(words ?? failure.message, kind?.advice ?? adviceFor(code)),
  };
}

// Returns the text of a plain-text response; '' for HTML, XML or JSON. A proxy's error page may contain "load
// balancer", which must not be taken for an account balance.
function plainText({ text }: Reply): string {
  return /^\s*[<{[]/.test(text) ? '' : text.slice(0, 1000);
}

function kindOf(message: string, nativeCode: string | undefined): FailureKind | undefined {
  const byText = kinds.find(({ words }) => words?.test(message) || words?.test(nativeCode ?? ''));
  return byText ?? kinds.find(({ codes }) => codes?.test(nativeCode ?? ''));
}
