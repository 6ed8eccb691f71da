import { randomUUID } from 'node:crypto';
import type { Exchange, Failure, Reply, SubmitVerdict } from '../exchange.ts';
import { requestIdOf } from '../http/failures.ts';
import { at, isObject, textAt, tryParseJson, type Json, type JsonObject } from '../json.ts';
import { isSuccess, judgeFailedSubmission } from '../protocols/verdicts.ts';
import { speechFailure, speechHttpFailure } from './failures.ts';

/** The model, which a header chooses and the body does not name (specification 2.6, 5). */
export const speechModel = 'speech-tts-2.0';

const endOfSynthesis = 20_000_000;

/** The request for a body of specification 2.6. */
export function speechExchange(body: JsonObject): Exchange {
  return {
    method: 'POST',
    path: '/api/v3/tts/unidirectional',
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'x-api-resource-id': speechModel,
      // Usage comes only if it is asked for; a gateway that does not know the header ignores it.
      'x-control-require-usage-tokens-return': '*',
    },
    body: JSON.stringify(body),
  };
}

/**
 * What the head of an answer proves: under 2xx the stream begins, and the call is billed; its handle is the
 * service's log id, or one made here. Anything else is judged by the table of design 5. Never throws.
 */
export function readSpeechHead(reply: Reply): SubmitVerdict {
  if (isSuccess(reply)) return { kind: 'accepted', handle: callId(reply) ?? `${ownCall}${randomUUID()}` };
  const verdict = judgeFailedSubmission(reply);
  const redirects = reply.status === 307 || reply.status === 308;
  if (redirects || verdict.kind === 'accepted') return verdict;
  return { ...verdict, failure: speechHttpFailure(reply) };
}

const ownCall = 'speech-';

/** True for a handle that {@link readSpeechHead} made up, since the gateway gave none. */
export function isOwnCallId(handle: string): boolean {
  return handle.startsWith(ownCall) && handle.length === ownCall.length + 36;
}

/** The service's log id of a call, or else the gateway's own id of it. */
export function callId(reply: Reply): string | undefined {
  return reply.headers['x-tt-logid'] || requestIdOf(reply, null);
}

/** One frame of the stream, read. */
export type Frame =
  | { kind: 'audio'; bytes: Buffer; usage?: JsonObject }
  /** A data frame without audio, such as a sentence's text. */
  | { kind: 'text'; usage?: JsonObject }
  /** The successful end; audio of its own goes before it. */
  | { kind: 'end'; bytes?: Buffer; usage?: JsonObject }
  /** The synthesis failed, also under HTTP 200. */
  | { kind: 'error'; failure: Failure }
  /** Not a frame of specification 2.6: nothing that came can be relied on. */
  | { kind: 'fault'; why: string };

/**
 * Reads one frame; its Base64 is decoded strictly and by itself, to the beginning of `room` if that is large enough.
 * Never throws.
 */
export function readFrame(frame: Uint8Array, room?: Buffer): Frame {
  const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.length);
  const { json, data } = withDataApart(bytes) ?? { json: tryParseJson(bytes.toString()), data: undefined };
  if (json === undefined) return { kind: 'fault', why: 'a frame is not JSON' };
  const code = at(json, 'code') ?? at(json, 'header.code');
  if (typeof code !== 'number' || !Number.isInteger(code)) return withoutCode(json, code);
  if (code !== 0 && code !== endOfSynthesis) return { kind: 'error', failure: failureIn(json, String(code)) };
  return dataFrame(json, code, data ?? at(json, 'data') ?? '', room);
}

const dataStart = '"data":"';
const quote = 0x22;
const placeHolder = 'mgw:data';

// Nearly all of a frame is its audio. Parsing that as JSON too would double the work, so that the parser gets the
// frame without it; if anything is unusual, the frame is parsed as a whole.
function withDataApart(frame: Buffer): { json: Json; data: string } | undefined {
  const start = frame.indexOf(dataStart) + dataStart.length;
  const end = frame.indexOf(quote, start);
  if (start < dataStart.length || end < 0) return undefined;
  const data = frame.toString('latin1', start, end);
  if (data.includes('\\')) return undefined;
  const text = frame.toString('utf8', 0, start) + placeHolder + frame.toString('utf8', end);
  if (text !== latest.text) latest = { text, json: tryParseJson(text) };
  const { json } = latest;
  return json !== undefined && at(json, 'data') === placeHolder ? { json, data } : undefined;
}

// Without its audio a frame is mostly the same as the one before it.
let latest: { text: string; json?: Json } = { text: '' };

function dataFrame(json: Json, code: number, data: Json, room?: Buffer): Frame {
  if (typeof data !== 'string') return { kind: 'fault', why: `the data of a frame is a ${typeof data}` };
  const bytes = decoded(data, room);
  if (bytes === undefined) return { kind: 'fault', why: 'the data of a frame is not strict Base64' };
  const audio = bytes.length > 0 ? bytes : undefined;
  const usage = usageIn(json);
  if (code === endOfSynthesis) return { kind: 'end', bytes: audio, usage };
  const more = usage && { usage };
  return audio === undefined ? { kind: 'text', ...more } : { kind: 'audio', bytes: audio, ...more };
}

// Node's decoder skips what is foreign, so a full-length result proves the alphabet, but for the URL-safe two and
// for what is not ASCII. A regular expression over every character would be the slowest step of the stream.
function decoded(data: string, room: Buffer | undefined): Buffer | undefined {
  const padding = data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0;
  const length = (data.length / 4) * 3 - padding;
  if (data.length % 4 !== 0 || data.includes('-') || data.includes('_')) return undefined;
  if (Buffer.byteLength(data) !== data.length) return undefined;
  const hasRoom = room !== undefined && room.length >= length;
  const bytes = hasRoom ? room.subarray(0, room.write(data, 'base64')) : Buffer.from(data, 'base64');
  return bytes.length === length ? bytes : undefined;
}

// An error of the gateway itself may come in its own envelope, also under HTTP 200.
function withoutCode(json: Json, code: Json | undefined): Frame {
  const error = at(json, 'error');
  if (isObject(error) || typeof error === 'string')
    return {
      kind: 'error',
      failure: failureIn(json, textAt(json, 'error.code') ?? textAt(json, 'error.type')),
    };
  const what =
    code === undefined ? 'missing' : typeof code === 'number' ? 'not an integer' : `a ${typeof code}`;
  const said = textAt(json, 'message');
  return { kind: 'fault', why: `the code of a frame is ${what}${said === undefined ? '' : ` (${said})`}` };
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
  const member = textAt(json, 'reqid') ?? textAt(json, 'header.reqid') ?? textAt(json, 'request_id');
  return member ?? /\(request id: ([^)]{1,200})\)/.exec(message)?.[1];
}

function usageIn(json: Json): JsonObject | undefined {
  const usage = at(json, 'usage');
  return isObject(usage) ? usage : undefined;
}
