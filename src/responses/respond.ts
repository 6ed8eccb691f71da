import type { Clock, Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { bearer, type Failure, type Reply } from '../exchange.ts';
import { adviceFor, advised } from '../http/advice.ts';
import { backoffMs } from '../http/backoff.ts';
import type { GatewayClient, StreamedReply } from '../http/client.ts';
import { readAhead } from '../http/read-ahead.ts';
import { readBounded } from '../http/read-bounded.ts';
import { TransportError } from '../http/transport-error.ts';
import type { JsonObject } from '../json.ts';
import { judgeFailedSubmission } from '../protocols/verdicts.ts';
import { interrupted, neverHandled, unknown } from './errors.ts';
import { impatiently, mostBytes, readAnswer, type AnswerLimits } from './read-answer.ts';
import { responsesExchange, type ResponseEnd } from './wire.ts';

/** What a call works with. */
export interface RespondDeps {
  client: GatewayClient;
  clock: Clock;
  /** Ends the call at once: there is no job that would go on. */
  signal: AbortSignal;
  /** Takes a line for the person at the terminal. */
  note: (text: string) => void;
  /** How often a refused or unsent request is tried again. */
  retries: number;
  /** How long the head of the answer may take, ms; ten minutes where absent. */
  requestTimeoutMs?: number;
  /** How long a stream may be silent, ms; five minutes where absent, since models think. */
  idleTimeoutMs?: number;
}

const headTimeoutMs = 600_000;
const silenceMs = 300_000;

/**
 * Makes one call of the Responses endpoint (specification 4.5). It costs money and leaves no job behind: it is
 * tried again only where nothing was handled (nothing sent, a complete 429 or 503), and never else.
 *
 * @param onText takes the text of the answer as it arrives
 * @param deadline when trying and reading end
 * @throws MgwError: exit 3 or 4 refused, 6 never sent, 7 unknown, 130/143 interrupted.
 */
export async function respond(
  body: JsonObject,
  deps: RespondDeps,
  onText: (text: string) => void,
  deadline: Deadline,
): Promise<ResponseEnd> {
  const { clock, signal } = deps;
  const limits = { silenceMs: deps.idleTimeoutMs ?? silenceMs, deadline };
  for (let tries = 0; ; tries += 1) {
    const outcome = await attempt(body, deps, limits);
    if ('answer' in outcome) return await answered(outcome.answer, limits, signal, onText);
    const { failure } = outcome;
    const ms = backoffMs(tries, { floorMs: failure.retryAfterMs });
    if (tries >= deps.retries || ms > deadline.leftMs()) throw neverHandled(failure);
    deps.note(`${failure.message}; nothing was charged, trying again in ${(ms / 1000).toFixed(1)} s.`);
    await clock.sleep(ms, signal).catch(() => {
      throw interrupted(signal, 'no');
    });
  }
}

async function answered(
  answer: StreamedReply,
  limits: AnswerLimits,
  signal: AbortSignal,
  onText: (text: string) => void,
): Promise<ResponseEnd> {
  const end = await readAnswer(answer, limits, onText);
  if (end.kind === 'cut' && signal.aborted) throw interrupted(signal, 'yes');
  return end;
}

/** A stream of success, or why nothing was handled: it may be tried again. */
type Attempt = { answer: StreamedReply } | { failure: Failure };

async function attempt(body: JsonObject, deps: RespondDeps, limits: AnswerLimits): Promise<Attempt> {
  let answer: StreamedReply;
  try {
    answer = await deps.client.stream(responsesExchange(body), {
      auth: bearer,
      timeoutMs: headTimeout(deps, limits),
      signal: deps.signal,
      // A connection of its own: only then is it known whether a byte was sent.
      onConnected: () => Promise.resolve(),
    });
  } catch (error) {
    return { failure: unsent(error, deps.signal) };
  }
  if (answer.status >= 200 && answer.status < 300)
    return { answer: { ...answer, body: readAhead(answer.body, mostBytes) } };
  const words = impatiently(answer, limits);
  const { bytes, complete } = await readBounded(words, 1024 * 1024);
  answer.close();
  const { status, headers } = answer;
  return { failure: refusal({ status, headers, text: new TextDecoder().decode(bytes), complete }) };
}

// `--timeout` counts for everything, an answer that never begins included.
function headTimeout(deps: RespondDeps, { deadline }: AnswerLimits): number {
  return Math.max(1, Math.min(deps.requestTimeoutMs ?? headTimeoutMs, deadline.leftMs()));
}

function unsent(error: unknown, signal: AbortSignal): Failure {
  const sent = error instanceof TransportError && error.phase === 'sent';
  if (signal.aborted) throw interrupted(signal, sent ? 'maybe' : 'no');
  if (!(error instanceof TransportError)) throw error;
  if (sent) throw unknown(error.message);
  if (error.reason === 'certificate' || error.reason === 'private_address')
    throw neverHandled({ code: 'unreachable', message: error.message });
  return { code: 'unreachable', message: error.message };
}

function refusal(reply: Reply): Failure {
  const verdict = judgeFailedSubmission(reply);
  if (verdict.kind === 'accepted') throw new MgwError('internal', 'a refusal was taken for an answer');
  const { failure } = verdict;
  if (verdict.kind === 'unavailable') return failure;
  if (verdict.kind === 'unknown') throw unknown(failure.message, failure.requestId);
  const wrongPath = reply.status === 404 && !/model/i.test(failure.message);
  const hint = wrongPath ? ' The base URL must be the root of the gateway, without /v1.' : '';
  throw new MgwError(failure.code, advised(failure.message + hint, adviceFor(failure.code)), {
    exit: failure.code === 'auth' ? 'auth' : 'rejected',
    requestId: failure.requestId,
  });
}
