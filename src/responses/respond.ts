import { bearer, type Reply, type SubmitVerdict } from '../exchange.ts';
import type { Deadline } from '../clock.ts';
import { adviceFor, advised } from '../http/advice.ts';
import type { JsonObject } from '../json.ts';
import { interrupted, notAccepted } from '../payment/errors.ts';
import { payOnce, unrecorded, type PayDeps } from '../payment/pay-once.ts';
import { StreamedCall } from '../payment/streamed-call.ts';
import { judgeFailedSubmission } from '../protocols/verdicts.ts';
import { mostBytes, readAnswer } from './read-answer.ts';
import { responsesExchange, type ResponseEnd } from './wire.ts';

/** What a call works with. */
export interface RespondDeps extends Omit<PayDeps, 'signals'> {
  /** Ends the call at once: there is no job that would go on. */
  signal: AbortSignal;
  /** How long a stream may be silent, ms; five minutes if absent, since models think. */
  idleTimeoutMs?: number;
}

/** The default time in ms until the head of the answer must arrive. */
const headTimeoutMs = 600_000;
const defaultIdleMs = 300_000;

/**
 * Makes one call of the Responses endpoint (specification 4.5). It costs money and leaves no job behind.
 *
 * @param onText takes the text of the answer as it arrives
 * @param deadline when trying and reading end
 * @throws MgwError: exit 3 or 4 rejected, 6 never sent, 7 unknown, 130/143 interrupted.
 */
export async function respond(
  body: JsonObject,
  deps: RespondDeps,
  onText: (text: string) => void,
  deadline: Deadline,
): Promise<ResponseEnd> {
  const { signal, requestTimeoutMs = headTimeoutMs, idleTimeoutMs: idleMs = defaultIdleMs } = deps;
  const call = new StreamedCall(idleMs, deadline, mostBytes);
  const payment = {
    exchange: responsesExchange(body),
    // Its tokens are counted when it is over, and nothing bounds them before.
    purchase: { name: 'response', what: 'a response' },
    auth: bearer,
    read: readHead,
    send: call.send.bind(call),
    deadline,
  };
  const payDeps = { ...deps, requestTimeoutMs, signals: { soft: signal, hard: signal } };
  const { verdict, tries } = await payOnce(payment, unrecorded, payDeps);
  if (verdict.kind === 'unknown' && signal.aborted) throw givenUp(signal, 'maybe');
  if (verdict.kind !== 'accepted') throw notAccepted(verdict, tries);
  if (call.stream === undefined) return { kind: 'cut', why: 'there is no answer' };
  const end = await readAnswer(call.stream, { idleMs, deadline }, onText);
  if (end.kind === 'cut' && signal.aborted) throw givenUp(signal, 'yes');
  return end;
}

// There is nothing that could be resumed.
function givenUp(signal: AbortSignal, charged: 'maybe' | 'yes'): Error {
  return interrupted(signal, charged, 'Interrupted: the answer was given up.').with({ retry: 'never' });
}

function readHead(reply: Reply): SubmitVerdict {
  if (reply.status >= 200 && reply.status < 300) return { kind: 'accepted', handle: '' };
  const verdict = judgeFailedSubmission(reply);
  if (verdict.kind !== 'rejected') return verdict;
  const { failure } = verdict;
  const isWrongPath = reply.status === 404 && !/model/i.test(failure.message);
  const hint = isWrongPath ? ' The base URL must be the root of the gateway, without /v1.' : '';
  const message = advised(failure.message + hint, adviceFor(failure.code));
  return { kind: 'rejected', failure: { ...failure, message } };
}
