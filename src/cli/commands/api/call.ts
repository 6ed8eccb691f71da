import type { Deadline } from '../../../clock.ts';
import { MgwError } from '../../../errors.ts';
import type { Exchange, Reply, SubmitVerdict } from '../../../exchange.ts';
import type { CallOptions, StreamedReply } from '../../../http/client.ts';
import { readFailure, asSentence } from '../../../http/failures.ts';
import { retryHint } from '../../../http/retry-after.ts';
import { readBounded } from '../../../http/read-bounded.ts';
import { readWithRetries } from '../../../http/retry.ts';
import { notAccepted } from '../../../payment/errors.ts';
import { payOnce, unrecorded, type PayDeps } from '../../../payment/pay-once.ts';
import { StreamedCall } from '../../../payment/streamed-call.ts';
import { judgeFailedSubmission } from '../../../protocols/verdicts.ts';

const maxRefusalBytes = 16 * 1024 * 1024;

/** A response: an error with its whole body, or a success whose body is still arriving. */
export interface ApiAnswer {
  reply: Reply;
  stream?: StreamedReply;
  /** What the response to a POST proves. */
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
    purchase: { name: 'call', what: 'a raw call' },
    auth: options.auth,
    read: (reply: Reply): SubmitVerdict =>
      reply.status < 300 ? { kind: 'accepted', handle: '' } : judgeFailedSubmission(reply),
    send: call.send.bind(call),
    deadline,
  };
  const { verdict, reply, tries } = await payOnce(payment, unrecorded, deps);
  if (reply !== undefined) return { reply, stream: call.stream, verdict };
  if (verdict.kind === 'accepted') throw new MgwError('internal', 'an accepted response is missing');
  throw notAccepted(verdict, tries);
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
    return { status, headers, text: new TextDecoder().decode(bytes), complete };
  };
  const reply = await readWithRetries(once, { ...deps, deadline, signal: deps.signals.soft });
  return { reply, stream };
}

/** Returns why a response is an error; undefined if it is not. */
export function refusalOf({ reply, verdict }: ApiAnswer): MgwError | undefined {
  if (reply.status < 300) return undefined;
  const failure = verdict?.kind === 'rejected' ? verdict.failure : readFailure(reply);
  const words = wordsOf(reply, failure.message);
  if (verdict !== undefined && verdict.kind !== 'accepted' && verdict.kind !== 'rejected')
    return notAccepted({ ...verdict, failure: { ...failure, message: words } }, 1);
  const again = verdict === undefined && (reply.status === 429 || reply.status >= 500);
  const said = again && failure.retryAfterMs ? asSentence(words) + retryHint(failure) : words;
  const exit = again ? 'unavailable' : failure.code === 'auth' ? 'auth' : 'rejected';
  const next = failure.code === 'not_found' ? ['mgw', 'api', '--help'] : undefined;
  const { code, requestId } = failure;
  return new MgwError(code, said, { exit, retry: again ? 'safe' : 'never', requestId, next });
}

function wordsOf({ status, headers }: Reply, message: string): string {
  if (status < 400) return `HTTP ${status}: the gateway redirects to ${headers['location'] ?? 'nowhere'}`;
  return message.startsWith('HTTP ') ? message : `HTTP ${status}: ${message}`;
}
