import type { Reply } from '../../../exchange.ts';
import { readBounded } from '../../../http/read-bounded.ts';
import { TransportError } from '../../../http/transport-error.ts';
import { MgwError } from '../../../errors.ts';
import { tryParseJson } from '../../../json.ts';
import { printable } from '../../../printable.ts';
import { redactHeaders } from '../../../redact.ts';
import { write, type Io } from '../../io.ts';
import type { ApiAnswer } from './call.ts';

const mostText = 64 * 1024 * 1024;

/** How an answer is shown. */
export interface PrintOptions {
  io: Io;
  /** Puts status and headers before the body. */
  include: boolean;
  /** Takes the key out of a text. */
  redact: (text: string) => string;
}

/**
 * Writes an answer to standard output: text without the key, anything else byte by byte as it arrives.
 * @throws MgwError('bad_reply') where the body is cut.
 */
export async function printAnswer(answer: ApiAnswer, options: PrintOptions): Promise<void> {
  const { io, include, redact } = options;
  const { reply, stream } = answer;
  if (include) await write(io.stdout, `${headOf(reply, redact)}\n\n`);
  if (stream === undefined || isText(reply)) {
    const text = redact(await textOf(answer));
    const shown = io.stdout.isTTY ? printable(text, Number.MAX_SAFE_INTEGER) : text;
    return write(io.stdout, io.stdout.isTTY && text !== '' && !text.endsWith('\n') ? `${shown}\n` : shown);
  }
  try {
    for await (const chunk of stream.body) {
      await write(io.stdout, chunk);
      // `mgw api … | head`: nobody reads the rest.
      if (io.stdout.destroyed) {
        stream.close();
        return;
      }
    }
  } catch (error) {
    throw cut(error);
  }
}

/** An answer as a JSON document: its body as JSON where it is, as text elsewhere. */
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
  const { bytes, complete } = await readBounded(stream.body, mostText);
  stream.close();
  if (!complete) throw cut(new Error('the answer was cut, or is larger than 64 MiB'));
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

function cut(error: unknown): unknown {
  if (error instanceof MgwError) return error;
  const why = error instanceof TransportError || error instanceof Error ? error.message : String(error);
  return new MgwError('bad_reply', `The answer is not whole: ${why}.`, { charged: 'maybe', cause: error });
}
