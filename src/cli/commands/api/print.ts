import { isUtf8 } from 'node:buffer';
import type { Reply } from '../../../exchange.ts';
import { readBounded } from '../../../http/read-bounded.ts';
import { TransportError } from '../../../http/transport-error.ts';
import { tryParseJson } from '../../../json.ts';
import { cutPlace, printable } from '../../../printable.ts';
import { redactHeaders } from '../../../redact.ts';
import { isWorkflow, withoutCommands, write, type Io } from '../../io.ts';
import type { ApiAnswer } from './call.ts';

const maxTextBytes = 64 * 1024 * 1024;

/** How a response is printed. */
interface PrintOptions {
  io: Io;
  /** Prints status and headers before the body. */
  include: boolean;
  /** Removes the key from a text. */
  redact: (text: string) => string;
}

/**
 * Writes a response to standard output as it arrives, byte by byte; text without the key.
 * @throws TransportError if the body is cut.
 */
export async function printAnswer(answer: ApiAnswer, options: PrintOptions): Promise<void> {
  const { io, include, redact } = options;
  const { reply, stream } = answer;
  if (include) await write(io.stdout, `${headOf(reply, redact)}\n\n`);
  const body = stream === undefined ? [Buffer.from(reply.text)] : stream.body;
  const isClean = stream !== undefined && !isText(reply);
  const isRead = isWorkflow(io.env) && !isClean;
  for await (const chunk of shown(isClean ? body : withoutKey(body, redact), !isClean && io.stdout.isTTY)) {
    await write(io.stdout, isRead ? harmless(chunk) : chunk);
    // `mgw api … | head`: the rest is not read.
    if (!io.stdout.destroyed) continue;
    stream?.close();
    return;
  }
}

// A part of a text, in whole lines.
function harmless(chunk: Uint8Array | string): Uint8Array {
  const bytes = Buffer.from(chunk);
  const encoding = isUtf8(bytes) ? 'utf8' : 'latin1';
  return Buffer.from(withoutCommands(bytes.toString(encoding)), encoding);
}

type Chunks = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/**
 * Text without the key, each line once it is complete. One character per byte, so that text in any encoding passes
 * unchanged.
 */
export async function* withoutKey(
  chunks: Chunks,
  redact: (text: string) => string,
): AsyncGenerator<Uint8Array> {
  let held = '';
  try {
    for await (const chunk of chunks) {
      held += Buffer.from(chunk).toString('latin1');
      const end = cutPlace(held, redact, 'line');
      if (end > 0) yield Buffer.from(redact(held.slice(0, end)), 'latin1');
      held = held.slice(end);
    }
  } catch (error) {
    // Show what arrived before the connection broke.
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
 * @throws TransportError if the body is cut.
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
  if (!complete) throw new TransportError('sent', 'broken', 'the answer was cut, or is larger than 64 MiB');
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
