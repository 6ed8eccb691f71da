import { isUtf8 } from 'node:buffer';
import type { Reply, Exchange, SubmitVerdict } from '../../../exchange.ts';
import { readBounded } from '../../../http/body.ts';
import { TransportError } from '../../../http/transport-error.ts';
import { tryParseJson } from '../../../json.ts';
import { safeCutIndex, printable } from '../../../printable.ts';
import { redactHeaders } from '../../../redact.ts';
import { commandFilter, isWorkflow, write, type Io } from '../../io.ts';
import type { Deadline } from '../../../clock.ts';
import { MgwError } from '../../../errors.ts';
import type { CallOptions, StreamedReply } from '../../../http/client.ts';
import { readFailure, withRetryDelay } from '../../../http/failures.ts';
import { readWithRetries } from '../../../http/retry.ts';
import { notAcceptedError } from '../../../payment/errors.ts';
import { payOnce, noRecord, type PayDeps } from '../../../payment/pay-once.ts';
import { maxRefusalBytes } from '../../../http/redacting-client.ts';
import { StreamedCall } from '../../../http/streamed-call.ts';
import { judgeFailedSubmission } from '../../../protocols/verdicts.ts';

const maxTextBytes = 64 * 1024 * 1024;

interface PrintOptions {
  io: Io;
  /** Whether to print the status and headers before the body. */
  include: boolean;
  /** Removes the key from a string. */
  redact: (text: string) => string;
}

/**
 * Writes a response to standard output as it arrives: text without the key, other content unchanged.
 * @throws TransportError if the body is incomplete.
 */
export async function printAnswer(answer: ApiAnswer, options: PrintOptions): Promise<void> {
  const { io, include, redact } = options;
  const { reply, stream } = answer;
  if (include) await write(io.stdout, `${headOf(reply, redact)}\n\n`);
  const body = stream === undefined ? [Buffer.from(reply.text)] : stream.body;
  // A terminal receives only printable text, regardless of the content type.
  const isClean = stream !== undefined && !isText(reply) && io.stdout.isTTY !== true;
  const filter = isWorkflow(io.env) && !isClean ? commandFilter() : undefined;
  for await (const chunk of forTerminal(isClean ? body : withoutKey(body, redact), io.stdout.isTTY)) {
    const text = filter?.(Buffer.from(chunk).toString('latin1'));
    await write(io.stdout, text === undefined ? chunk : Buffer.from(text, 'latin1'));
    // Stop if the reader has closed the pipe, as `head` does.
    if (!io.stdout.destroyed) continue;
    stream?.close();
    return;
  }
}

type Chunks = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/**
 * Yields text without the key, each line as soon as it is complete. Decodes each byte as one character, so text in any
 * encoding is unchanged.
 */
export async function* withoutKey(
  chunks: Chunks,
  redact: (text: string) => string,
): AsyncGenerator<Uint8Array> {
  let pending = '';
  try {
    for await (const chunk of chunks) {
      pending += Buffer.from(chunk).toString('latin1');
      const end = safeCutIndex(pending, redact, 'line');
      if (end > 0) yield Buffer.from(redact(pending.slice(0, end)), 'latin1');
      pending = pending.slice(end);
    }
  } catch (error) {
    // Print the text that arrived before the connection broke.
    if (pending !== '') yield Buffer.from(redact(pending), 'latin1');
    throw error;
  }
  if (pending !== '') yield Buffer.from(redact(pending), 'latin1');
}

// Removes control characters, which a terminal would interpret, and ends the text with a newline.
async function* forTerminal(
  chunks: Chunks,
  terminal: boolean | undefined,
): AsyncGenerator<Uint8Array | string> {
  if (!terminal) {
    yield* chunks;
    return;
  }
  const decoder = new TextDecoder();
  let lastCharacter = '\n';
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    lastCharacter = text.at(-1) ?? lastCharacter;
    yield printable(text, Number.MAX_SAFE_INTEGER);
  }
  if (lastCharacter !== '\n') yield '\n';
}

/**
 * Returns the JSON representation of a response. The body is JSON if it can be parsed, else text. A binary body is
 * Base64 in `body_base64`.
 * @throws TransportError if the body is incomplete.
 */
export async function answerView(
  answer: ApiAnswer,
  redact: (text: string) => string,
): Promise<Record<string, unknown>> {
  const { status, headers } = answer.reply;
  const head = { status, headers: redactHeaders(headers) };
  const bytes = await bytesOf(answer);
  if (!isText(answer.reply) && !isUtf8(bytes))
    return { ...head, body_base64: Buffer.from(bytes).toString('base64') };
  const text = redact(new TextDecoder().decode(bytes));
  return { ...head, body: tryParseJson(text) ?? text };
}

async function bytesOf({ reply, stream }: ApiAnswer): Promise<Uint8Array> {
  if (stream === undefined) return Buffer.from(reply.text);
  const { bytes, complete } = await readBounded(stream.body, maxTextBytes);
  stream.close();
  if (!complete) throw new TransportError('sent', 'broken', 'it ended early, or is larger than 64 MiB');
  return bytes;
}

function isText(reply: Reply): boolean {
  return /^(text\/|application\/(.*\+)?(json|xml|x-ndjson))/i.test(reply.headers['content-type'] ?? '');
}

function headOf(reply: Reply, redact: (text: string) => string): string {
  const lines = Object.entries(redactHeaders(reply.headers)).map(
    ([name, value]) => `${name}: ${redact(value)}`,
  );
  return [`HTTP ${reply.status}`, ...lines].map((line) => printable(line)).join('\n');
}

/** A response: an error with its whole body, or a success whose body is still arriving. */
interface ApiAnswer {
  reply: Reply;
  stream?: StreamedReply;
  /** What the response to a POST proves about the charge. */
  verdict?: SubmitVerdict;
  /** The number of times a POST was sent. */
  tries?: number;
}

/**
 * Makes a raw call. A GET is retried after 429, 5xx and network errors. A POST may cost money, so it is retried only if
 * the gateway cannot have processed it.
 * @throws MgwError: exit 6 if there is no response, 7 if a POST may have been processed, 130 or 143 if interrupted.
 */
export async function apiCall(
  exchange: Exchange,
  options: CallOptions,
  deps: PayDeps,
  deadline: Deadline,
): Promise<ApiAnswer> {
  if (exchange.method === 'GET') return apiGet(exchange, { ...options, deadline }, deps, deadline);
  const call = new StreamedCall(options.timeoutMs, deadline);
  const payment = {
    exchange,
    purchase: { name: 'call', subject: 'a raw call' },
    auth: options.auth,
    read: (reply: Reply): SubmitVerdict =>
      reply.status < 300
        ? { kind: 'accepted', handle: '' }
        : judgeFailedSubmission(reply, tryParseJson(exchange.body ?? '')),
    send: call.send.bind(call),
    deadline,
  };
  const { verdict, reply, tries } = await payOnce(payment, noRecord, deps);
  if (reply !== undefined) return { reply, stream: call.stream, verdict, tries };
  if (verdict.kind === 'accepted') throw new MgwError('internal', 'an accepted response is missing');
  throw notAcceptedError(verdict, tries);
}

async function apiGet(
  exchange: Exchange,
  options: CallOptions,
  deps: PayDeps,
  deadline: Deadline,
): Promise<ApiAnswer> {
  let stream: StreamedReply | undefined;
  const getOnce = async (): Promise<Reply> => {
    const answer = await deps.client.stream(exchange, options);
    const { status, headers } = answer;
    if (status < 300) {
      stream = answer;
      return { status, headers, text: '', complete: true };
    }
    const { bytes, complete } = await readBounded(answer.body, maxRefusalBytes);
    answer.close();
    // An error body that exceeds the limit is treated as complete, because a retry would not make it shorter.
    const isWhole = complete || bytes.length === maxRefusalBytes;
    return { status, headers, text: new TextDecoder().decode(bytes), complete: isWhole };
  };
  const reply = await readWithRetries(getOnce, { ...deps, deadline, signal: deps.signals.soft });
  return { reply, stream };
}

/** Returns a response's error; undefined if the call succeeded. */
export function errorOf({ reply, verdict, tries = 1 }: ApiAnswer): MgwError | undefined {
  if (reply.status < 300) return undefined;
  const failure = verdict?.kind === 'rejected' ? verdict.failure : readFailure(reply);
  const message = messageWithStatus(reply, failure.message);
  if (verdict !== undefined && verdict.kind !== 'accepted' && verdict.kind !== 'rejected')
    return notAcceptedError({ ...verdict, failure: { ...failure, message } }, tries);
  const isRetryable = verdict === undefined && (reply.status === 429 || reply.status >= 500);
  const text = isRetryable ? withRetryDelay(message, failure) : message;
  const exit = isRetryable ? 'unavailable' : failure.code === 'auth' ? 'auth' : 'rejected';
  const next = failure.code === 'not_found' ? ['mgw', 'api', '--help'] : undefined;
  const { code, requestId } = failure;
  return new MgwError(code, text, { exit, retry: isRetryable ? 'safe' : 'never', requestId, next });
}

function messageWithStatus({ status, headers }: Reply, message: string): string {
  if (status < 400)
    return `HTTP ${status}: the gateway redirects to ${headers['location'] ?? 'an unknown address'}`;
  return message.startsWith('HTTP ') ? message : `HTTP ${status}: ${message}`;
}
