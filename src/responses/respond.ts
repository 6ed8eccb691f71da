import { createParser } from 'eventsource-parser';
import type { Deadline } from '../clock.ts';
import { bearer, type Reply, type SubmitVerdict } from '../exchange.ts';
import { adviceFor, excerptOf, withAdvice } from '../http/failures.ts';
import type { StreamedReply } from '../http/client.ts';
import { withIdleTimeout, type TimeLimits } from '../http/deadline.ts';
import { readBounded } from '../http/body.ts';
import { TransportError } from '../http/transport-error.ts';
import { isObject, type JsonObject, tryParseJson } from '../json.ts';
import { interruptionError, notAcceptedError } from '../payment/errors.ts';
import { type PayDeps, payOnce, noRecord } from '../payment/pay-once.ts';
import { StreamedCall } from '../http/streamed-call.ts';
import { judgeFailedSubmission } from '../protocols/verdicts.ts';
import {
  readCutDocument,
  readEvent,
  readWholeDocument,
  refusedEnd,
  type ResponseEnd,
  type ResponseEvent,
  responsesExchange,
} from './wire.ts';

/** Dependencies of a Responses call. */
interface RespondDeps extends Omit<PayDeps, 'signals'> {
  /** Aborts the call immediately, because there is no job that could continue. */
  signal: AbortSignal;
  /** Maximum idle time of a stream, in ms. Default: five minutes, because models think before they answer. */
  idleTimeoutMs?: number;
}

/** Default timeout for the head of the response, in ms. */
const headTimeoutMs = 600_000;
const defaultIdleMs = 300_000;

/**
 * Makes one call to the Responses endpoint (specification 4.5). The call costs money and leaves no job.
 * @param onText called with the response's text as it arrives
 * @param deadline the deadline for attempts and for reading
 * @throws MgwError: exit 3 or 4 rejected, 6 never sent, 7 unknown, 130/143 interrupted.
 */
export async function respond(
  body: JsonObject,
  deps: RespondDeps,
  onText: (text: string) => void,
  deadline: Deadline,
): Promise<ResponseEnd> {
  const { signal, requestTimeoutMs = headTimeoutMs, idleTimeoutMs: idleMs = defaultIdleMs } = deps;
  const call = new StreamedCall(idleMs, deadline, maxBytes);
  const payment = {
    exchange: responsesExchange(body),
    // The tokens are counted only at the end, so the maximum cost is unknown.
    purchase: { name: 'response', subject: 'a response' },
    auth: bearer,
    read: (reply: Reply) => readHead(reply, body),
    send: call.send.bind(call),
    deadline,
  };
  const payDeps = { ...deps, requestTimeoutMs, signals: { soft: signal, hard: signal } };
  const { verdict, tries } = await payOnce(payment, noRecord, payDeps);
  if (verdict.kind === 'unknown' && signal.aborted) throw abandonedError(signal, 'maybe');
  if (verdict.kind !== 'accepted') throw notAcceptedError(verdict, tries);
  if (call.stream === undefined) return { kind: 'cut', why: 'the response is missing' };
  const end = await readResponseBody(call.stream, { idleMs, deadline }, onText);
  if (end.kind === 'cut' && signal.aborted) throw abandonedError(signal, 'yes');
  return end;
}

// Returns the error for an abandoned response. An abandoned response cannot be resumed.
function abandonedError(signal: AbortSignal, charged: 'maybe' | 'yes'): Error {
  return interruptionError(signal, charged, 'Interrupted: the response was abandoned.').with({
    retry: 'never',
  });
}

function readHead(reply: Reply, sent: JsonObject): SubmitVerdict {
  if (reply.status >= 200 && reply.status < 300) return { kind: 'accepted', handle: '' };
  const verdict = judgeFailedSubmission(reply, sent);
  if (verdict.kind !== 'rejected') return verdict;
  const { failure } = verdict;
  const isWrongPath = reply.status === 404 && !/model/i.test(failure.message);
  const hint = isWrongPath ? ' The base URL must be the root of the gateway, without /v1.' : '';
  const message = withAdvice(failure.message + hint, adviceFor(failure.code));
  return { kind: 'rejected', failure: { ...failure, message } };
}

/** Maximum size of a response, and of its unread part, in bytes. */
const maxBytes = 64 * 1024 * 1024;

/**
 * Reads the body of an accepted call: a response object or a stream of events.
 * @param onText called with the text as it arrives
 */
async function readResponseBody(
  streamed: StreamedReply,
  limits: TimeLimits,
  onText: (text: string) => void,
): Promise<ResponseEnd> {
  const isDocument = /json|html/i.test(streamed.headers['content-type'] ?? '');
  const body = withIdleTimeout(streamed.body, limits);
  const read = (document: AsyncIterable<Uint8Array>): Promise<ResponseEnd> =>
    readDocument(document, onText, streamed.clean);
  const end = await orCut(readEventsOrDocument(body, isDocument, read, new ResponseStream(onText)));
  streamed.close();
  return end;
}

/**
 * Reads a body as events or as a document. The first character decides, because relays may declare the wrong type. No
 * event begins with a brace, and no document begins with a letter. The declared type is used only for an empty body.
 */
async function readEventsOrDocument(
  body: AsyncGenerator<Uint8Array, void>,
  isDocument: boolean,
  readDocument: (body: AsyncIterable<Uint8Array>) => Promise<ResponseEnd>,
  stream: ResponseStream,
): Promise<ResponseEnd> {
  for (;;) {
    const next = await body.next();
    if (next.done === true) return isDocument ? readDocument(body) : stream.finish();
    // Skip white space and the bytes of a byte order mark.
    const first = /[^\s\xef\xbb\xbf]/.exec(Buffer.from(next.value).toString('latin1'))?.[0];
    if (first === undefined) continue;
    const fullBody = withFirst(next.value, body);
    return /[{[<]/.test(first) ? readDocument(fullBody) : readEvents(fullBody, stream);
  }
}

async function* withFirst(
  first: Uint8Array,
  rest: AsyncGenerator<Uint8Array, void>,
): AsyncGenerator<Uint8Array> {
  try {
    yield first;
    yield* rest;
  } finally {
    await rest.return();
  }
}

async function orCut(reading: Promise<ResponseEnd>): Promise<ResponseEnd> {
  try {
    return await reading;
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    return { kind: 'cut', why: error.message };
  }
}

async function readDocument(
  body: AsyncIterable<Uint8Array>,
  onText: (text: string) => void,
  clean: StreamedReply['clean'],
): Promise<ResponseEnd> {
  const { bytes, complete } = await readBounded(body, maxBytes);
  const text = new TextDecoder().decode(bytes, { stream: !complete });
  const json = tryParseJson(text);
  if (json === undefined && !complete) return readCutDocument(text, onText);
  if (!isObject(json)) return { kind: 'unreadable', excerpt: excerptOf(text, clean) };
  const end = readWholeDocument(json, onText);
  return end.kind === 'cut' ? { ...end, why: `${end.why}: ${excerptOf(text, clean)}` } : end;
}

async function readEvents(body: AsyncIterable<Uint8Array>, stream: ResponseStream): Promise<ResponseEnd> {
  for await (const chunk of body) {
    stream.push(chunk);
    if (stream.end !== undefined) return stream.end;
  }
  return stream.finish();
}

/**
 * Maximum length of an event, and of all deltas together, in UTF-16 code units. Both have the same limit, because the
 * last event contains the whole response.
 */
const maxEventBytes = 16 * 1024 * 1024;

/**
 * Reads the server-sent events of a response, in chunks that may end anywhere. Passes on each piece of text as it
 * arrives. Only a terminal event proves that the response has ended. Nothing after that event is read.
 */
export class ResponseStream {
  /** The end of the response, if known. */
  end: ResponseEnd | undefined;
  readonly #onText: (text: string) => void;
  // The body, until its first event or comment arrives.
  #plainText: string | undefined = '';
  readonly #decoder = new TextDecoder();
  // The text of each part, by the part's position.
  readonly #parts = new Map<string, { text: string; isDone: boolean }>();
  #text = '';
  // The first half of a surrogate pair whose second half is in the next delta.
  #half = '';
  #refusal = '';
  #length = 0;
  readonly #parser = createParser({
    onEvent: ({ event, data }) => {
      this.#plainText = undefined;
      this.#handle(readEvent(event, data));
    },
    onComment: () => (this.#plainText = undefined),
    onError: ({ type }) => {
      if (type === 'max-buffer-size-exceeded') this.end ??= { kind: 'cut', why: 'an event is too large' };
    },
    maxBufferSize: maxEventBytes,
  });

  /** @param onText called with each piece of the response's text, in order */
  constructor(onText: (text: string) => void) {
    this.#onText = onText;
  }

  /** Processes the next bytes; undefined at the end of the body. */
  push(chunk: Uint8Array | undefined): void {
    if (this.end !== undefined) return;
    const text = this.#decoder.decode(chunk, { stream: chunk !== undefined });
    if (this.#plainText !== undefined && this.#plainText.length <= maxEventBytes) this.#plainText += text;
    this.#parser.feed(text);
  }

  /** Ends the stream. The last event may lack its empty line. Without a terminal event, the end is `cut`. */
  finish(): ResponseEnd {
    this.push(undefined);
    if (this.end === undefined) this.#parser.feed('\n\n');
    // Text without any event may be an answer that was paid for, so it is passed on.
    if (this.#plainText?.trim() && this.end === undefined) {
      this.#onText(this.#plainText);
      return { kind: 'unreadable', excerpt: 'it is plain text' };
    }
    return this.end ?? { kind: 'cut', why: 'the stream ended without its last event' };
  }

  #handle(event: ResponseEvent): void {
    if (this.end !== undefined) return;
    if (event.kind === 'text') this.#emit(event.delta, event.place);
    if (event.kind === 'part') this.#completePart(event.text, event.place);
    if (event.kind === 'refusal' && this.#fits(event.delta)) this.#refusal += event.delta;
    if (event.kind === 'end') this.end = this.#complete(event.end);
  }

  // Passes on the text that was missing from a part's deltas. Relays may change a part's position between its events.
  #completePart(whole: string, place: string): void {
    const part = this.#parts.get(place);
    if (part?.isDone) return;
    const open = [...this.#parts.values()].filter(({ isDone }) => !isDone);
    const openText = open.map(({ text }) => text).join('');
    const isOwn = part !== undefined && whole.startsWith(part.text);
    if (!isOwn && !whole.startsWith(openText)) return;
    this.#emit(whole.slice(isOwn ? part.text.length : openText.length), place);
    for (const each of isOwn ? [part] : open) each.isDone = true;
    const emittedPart = this.#parts.get(place);
    if (emittedPart !== undefined) emittedPart.isDone = true;
  }

  // Limits memory use, because texts, positions and refusals are stored until the end.
  #fits(text: string): boolean {
    this.#length += text.length;
    if (this.#length <= maxEventBytes) return true;
    this.end = { kind: 'cut', why: 'the response is too large' };
    return false;
  }

  #emit(delta: string, place: string): void {
    if (!this.#parts.has(place) && this.#fits(place)) this.#parts.set(place, { text: '', isDone: false });
    const part = this.#parts.get(place);
    if (delta === '' || part === undefined || this.end !== undefined || !this.#fits(delta)) return;
    part.text += delta;
    this.#text += delta;
    const text = this.#half + delta;
    const end = /[\ud800-\udbff]$/.test(text) ? text.length - 1 : text.length;
    this.#half = text.slice(end);
    if (end > 0) this.#onText(text.slice(0, end));
  }

  // Passes on text that only the last event contains. That event contains the whole text, unless the gateway omits it.
  #complete(end: ResponseEnd): ResponseEnd {
    if (end.kind !== 'completed' && end.kind !== 'incomplete') return end;
    const { text, response } = end;
    if (text.startsWith(this.#text)) this.#emit(text.slice(this.#text.length), 'end');
    else if (text !== '' && !this.#isSameText(text)) {
      this.#emit(`\n${text}`, 'end');
      return {
        kind: 'cut',
        why: 'some events were damaged, so the complete text is printed again',
        response,
      };
    }
    if (end.kind === 'completed' && this.#text === '' && this.#refusal !== '')
      return refusedEnd(this.#refusal, response);
    return end;
  }

  // Whether the text equals the received text. Ignores white space, because relays may trim it, and the order of
  // interleaved parts.
  #isSameText(text: string): boolean {
    const parts = [...this.#parts.values()].map((part) => part.text).join('');
    return [this.#text, parts].some((arrived) => arrived.replace(/\s/g, '') === text.replace(/\s/g, ''));
  }
}
