import { MgwError, type Charged, type ErrorCode } from '../errors.ts';
import type { SubmitVerdict } from '../exchange.ts';
import { asSentence, withRetryDelay } from '../http/failures.ts';

/** Exit 130 or 143: a signal interrupted the payment. */
export function interruptionError(
  signal: AbortSignal,
  charged: Charged,
  text = 'Interrupted before anything was sent.',
): MgwError {
  return new MgwError('pending', text, {
    exit: signal.reason === 'SIGTERM' ? 'terminated' : 'interrupted',
    charged,
    retry: charged === 'no' ? 'safe' : 'resume',
  });
}

/** Returns the error (exit 3, 4, 6 or 7) for a payment that was not accepted. */
export function notAcceptedError(
  { kind, failure }: Exclude<SubmitVerdict, { kind: 'accepted' }>,
  tries: number,
): MgwError {
  const { code, message, requestId } = failure;
  if (kind === 'rejected')
    return new MgwError(code, message, { exit: code === 'auth' ? 'auth' : 'rejected', requestId });
  if (kind === 'unknown') {
    const text = `${asSentence(message)} The gateway may have accepted and charged the request; it is not sent again.`;
    return new MgwError('submit_unknown', text, { charged: 'maybe', retry: 'never', requestId });
  }
  const text = `Not accepted after ${tries} ${tries === 1 ? 'attempt' : 'attempts'}: ${message}`;
  return new MgwError(code, withRetryDelay(text, failure), { exit: 'unavailable', retry: 'safe', requestId });
}

/** Exit 6: no connection was made, so nothing was sent. */
export function unsentError(message: string, cause?: unknown): MgwError {
  return new MgwError('unreachable', `Nothing was sent: ${asSentence(message)}`, { retry: 'safe', cause });
}

/** Exit 6: the next attempt would be after the deadline. `at` is the time of that attempt, in ms since 1970. */
export function waitTooLongError(reason: string, code: ErrorCode, at: number): MgwError {
  const isoTime = new Date(Math.min(at, 8.64e15)).toISOString();
  const text = `${reason}; the next attempt would be at ${isoTime}, after the wait ends.`;
  return new MgwError(code, text, { exit: 'unavailable', retry: 'safe' });
}
