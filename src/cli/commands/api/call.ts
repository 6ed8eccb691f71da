import { MgwError } from '../../../errors.ts';
import type { Exchange, Reply } from '../../../exchange.ts';
import { readFailure } from '../../../http/failures.ts';
import type { CallOptions, GatewayClient, StreamedReply } from '../../../http/client.ts';
import { readBounded } from '../../../http/read-bounded.ts';
import { readWithRetries, type RetryOptions } from '../../../http/retry.ts';
import { TransportError } from '../../../http/transport-error.ts';
import { judgeFailedSubmission } from '../../../protocols/verdicts.ts';

const mostOfARefusal = 16 * 1024 * 1024;

/** An answer: a refusal read whole, or a success whose body is still arriving. */
export interface ApiAnswer {
  reply: Reply;
  stream?: StreamedReply;
}

/**
 * Makes a raw call. A GET is tried again on 429, 5xx and network errors; a POST never is, since it may cost money.
 * @throws MgwError: exit 6 where no answer came, 7 where a POST may have been handled.
 */
export async function apiCall(
  client: GatewayClient,
  exchange: Exchange,
  options: CallOptions,
  retry: RetryOptions,
): Promise<ApiAnswer> {
  let stream: StreamedReply | undefined;
  const once = async (): Promise<Reply> => {
    const answer = await client.stream(exchange, options);
    const { status, headers } = answer;
    if (status < 300) {
      stream = answer;
      return { status, headers, text: '', complete: true };
    }
    const { bytes, complete } = await readBounded(answer.body, mostOfARefusal);
    answer.close();
    return { status, headers, text: new TextDecoder().decode(bytes), complete };
  };
  if (exchange.method === 'GET') return { reply: await readWithRetries(once, retry), stream };
  return { reply: await once().catch(notAnswered), stream };
}

function notAnswered(error: unknown): never {
  if (!(error instanceof TransportError)) throw error;
  if (error.phase === 'unsent')
    throw new MgwError('unreachable', `Nothing was sent: ${error.message}.`, { retry: 'safe', cause: error });
  const text = `${error.message}. The gateway may have handled the request; it is not sent again.`;
  throw new MgwError('submit_unknown', text, { charged: 'maybe', cause: error });
}

/** Why an answer is not ok, or undefined where it is. */
export function refusalOf(exchange: Exchange, reply: Reply): MgwError | undefined {
  if (reply.status < 300) return undefined;
  const verdict = exchange.method === 'POST' ? judgeFailedSubmission(reply) : undefined;
  const { code, message, requestId } = verdict?.kind === 'rejected' ? verdict.failure : readFailure(reply);
  const said = wordsOf(reply, message);
  if (verdict?.kind === 'unknown')
    return new MgwError(
      'submit_unknown',
      `${said}. The request may have been handled; it is not sent again.`,
      {
        charged: 'maybe',
        requestId,
      },
    );
  const again =
    verdict?.kind === 'unavailable' ||
    (verdict === undefined && (reply.status === 429 || reply.status >= 500));
  const exit = again ? 'unavailable' : code === 'auth' ? 'auth' : 'rejected';
  const next = code === 'not_found' ? ['mgw', 'api', '--help'] : undefined;
  return new MgwError(code, said, { exit, retry: again ? 'safe' : 'never', requestId, next });
}

function wordsOf({ status, headers }: Reply, message: string): string {
  if (status < 400) return `HTTP ${status}: the gateway redirects to ${headers['location'] ?? 'nowhere'}`;
  return message.startsWith('HTTP ') ? message : `HTTP ${status}: ${message}`;
}
