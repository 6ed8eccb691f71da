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
  /** Prints status and headers before the body. */
  include: boolean;
  /** Removes the key from a string. */
  redact: (text: string) => string;
}

/**
 * Writes a response to standard output as it arrives: text without the key, anything else unchanged.
 * @throws TransportError if the body is cut off.
 */
export async function printAnswer(answer: ApiAnswer, options: PrintOptions): Promise<void> {
  const { io, include, redact } = options;
  const { reply, stream } = answer;
  if (include) await write(io.stdout, `${headOf(reply, redact)}\n\n`);
  const body = stream === undefined ? [Buffer.from(reply.text)] : stream.body;
  // A terminal gets only printable text, whatever content type the gateway claims.
  const isClean = stream !== undefined && !isText(reply) && io.stdout.isTTY !== true;
  const filter = isWorkflow(io.env) && !isClean ? commandFilter() : undefined;
  for await (const chunk of shown(isClean ? body : withoutKey(body, redact), io.stdout.isTTY)) {
    const text = filter?.(Buffer.from(chunk).toString('latin1'));
    await write(io.stdout, text === undefined ? chunk : Buffer.from(text, 'latin1'));
    // `mgw api … | head`: does not read the rest.
    if (!io.stdout.destroyed) continue;
    stream?.close();
    return;
  }
}

type Chunks = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/**
 * Yields text without the key, each line as soon as it is complete. Decodes one character per byte, so that text in any
 * encoding stays unchanged.
 */
export async function* withoutKey(
  chunks: Chunks,
  redact: (text: string) => string,
): AsyncGenerator<Uint8Array> {
  let held = '';
  try {
    for await (const chunk of chunks) {
      held += Buffer.from(chunk).toString('latin1');
      const end = safeCutIndex(held, redact, 'line');
      if (end > 0) yield Buffer.from(redact(held.slice(0, end)), 'latin1');
      held = held.slice(end);
    }
  } catch (error) {
    // Shows what arrived before the connection broke.
    if (held !== '') yield Buffer.from(redact(held), 'latin1');
    throw error;
  }
  if (held !== '') yield Buffer.from(redact(held), 'latin1');
}

// A terminal must not interpret a gateway's control characters, and its prompt starts on a new line.
async function* shown(chunks: Chunks, terminal: boolean | undefined): AsyncGenerator<Uint8Array | string> {
  if (!terminal) {
    yield* chunks;
    return;
  }
  const decoder = new TextDecoder();
  let last = '\n';
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    last = text.at(-1) ?? last;
    yield printable(text, Number.MAX_SAFE_INTEGER);
  }
  if (last !== '\n') yield '\n';
}

/**
 * Returns a response as a JSON document, with its body as JSON or else as text.
 * @throws TransportError if the body is cut off.
 */
export async function answerView(
  answer: ApiAnswer,
  redact: (text: string) => string,
): Promise<Record<string, unknown>> {
  const { status, headers } = answer.reply;
  const text = redact(await textOf(answer));
  return { status, headers: redactHeaders(headers), body: tryParseJson(text) ?? text };
}

async function textOf({ reply, stream }: ApiAnswer): Promise<string> {
  if (stream === undefined) return reply.text;
  const { bytes, complete } = await readBounded(stream.body, maxTextBytes);
  stream.close();
  if (!complete) throw new TransportError('sent', 'broken', 'the response was cut, or is larger than 64 MiB');
  return new TextDecoder().decode(bytes);
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
}

/**
 * Makes a raw call. A GET is tried again on 429, 5xx and network errors; a POST may cost money, and is retried only if
 * it certainly was not handled.
 * @throws MgwError: exit 6 without a response, 7 if a POST may have been handled, 130/143 interrupted.
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
  if (reply !== undefined) return { reply, stream: call.stream, verdict };
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
  const once = async (): Promise<Reply> => {
    const answer = await deps.client.stream(exchange, options);
    const { status, headers } = answer;
    if (status < 300) {
      stream = answer;
      return { status, headers, text: '', complete: true };
    }
    const { bytes, complete } = await readBounded(answer.body, maxRefusalBytes);
    answer.close();
    // A refusal that is longer than the limit counts as complete, because a retry would not make it shorter.
    const isRead = complete || bytes.length === maxRefusalBytes;
    return { status, headers, text: new TextDecoder().decode(bytes), complete: isRead };
  };
  const reply = await readWithRetries(once, { ...deps, deadline, signal: deps.signals.soft });
  return { reply, stream };
}

/** Returns the error of a response; undefined if the response is a success. */
export function refusalOf({ reply, verdict }: ApiAnswer): MgwError | undefined {
  if (reply.status < 300) return undefined;
  const failure = verdict?.kind === 'rejected' ? verdict.failure : readFailure(reply);
  const words = wordsOf(reply, failure.message);
  if (verdict !== undefined && verdict.kind !== 'accepted' && verdict.kind !== 'rejected')
    return notAcceptedError({ ...verdict, failure: { ...failure, message: words } }, 1);
  const again = verdict === undefined && (reply.status === 429 || reply.status >= 500);
  const said = again ? withRetryDelay(words, failure) : words;
  const exit = again ? 'unavailable' : failure.code === 'auth' ? 'auth' : 'rejected';
  const next = failure.code === 'not_found' ? ['mgw', 'api', '--help'] : undefined;
  const { code, requestId } = failure;
  return new MgwError(code, said, { exit, retry: again ? 'safe' : 'never', requestId, next });
}

function wordsOf({ status, headers }: Reply, message: string): string {
  if (status < 400)
    return `HTTP ${status}: the gateway redirects to ${headers['location'] ?? 'an unknown address'}`;
  return message.startsWith('HTTP ') ? message : `HTTP ${status}: ${message}`;
}
