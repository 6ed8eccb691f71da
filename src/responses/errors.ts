import { MgwError, type Charged } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { asSentence } from '../http/advice.ts';

/** Exit 6: nothing was handled, so that it may be run again. */
export function neverHandled(failure: Failure): MgwError {
  const { code, message, requestId } = failure;
  return new MgwError(code, `Not accepted: ${message}`, { exit: 'unavailable', retry: 'safe', requestId });
}

/** Exit 7: nothing tells whether it was handled. There is no job to resolve. */
export function unknown(why: string, requestId?: string): MgwError {
  const text = `${asSentence(why)} The gateway may have answered and charged; it is not sent again.`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', retry: 'never', requestId });
}

/** Exit 130 or 143: there is no job that would go on. */
export function interrupted(signal: AbortSignal, charged: Charged): MgwError {
  const exit = signal.reason === 'SIGTERM' ? 'terminated' : 'interrupted';
  const text =
    charged === 'no' ? 'Interrupted before anything was sent.' : 'Interrupted: the answer was given up.';
  return new MgwError('pending', text, { exit, charged, retry: charged === 'no' ? 'safe' : 'never' });
}
