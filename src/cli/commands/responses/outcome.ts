import { MgwError } from '../../../errors.ts';
import type { ResponseEnd } from '../../../responses/wire.ts';
import type { Outcome } from '../../output/outcome.ts';

/** What a response came to: its JSON, the text that was printed, and why it is not ok where it is not. */
export function outcomeOf(end: ResponseEnd, text: string): Outcome {
  const response = 'response' in end ? end.response : undefined;
  const json = { ...(response && { response }), ...(text !== '' && { text }) };
  const error = errorOf(end);
  return { json, error, paid: error?.charged ?? 'yes' };
}

function errorOf(end: ResponseEnd): MgwError | undefined {
  const charged = { charged: 'yes', retry: 'never' } as const;
  switch (end.kind) {
    case 'completed':
      return undefined;
    case 'incomplete':
      return new MgwError('result_corrupt', `The answer is not whole: ${end.reason}.`, charged);
    case 'failed': {
      const { code, message, requestId } = end.failure;
      return new MgwError(code, message, { exit: 'failed', charged: 'maybe', retry: 'never', requestId });
    }
    case 'pending': {
      const { id } = end.response;
      const next =
        typeof id === 'string' ? ['mgw', 'api', 'GET', `/v1/responses/${encodeURIComponent(id)}`] : undefined;
      return new MgwError('pending', `The response is still ${end.status}.`, { ...charged, next });
    }
    case 'cut':
      return new MgwError('result_corrupt', `Nothing proves that the answer is whole: ${end.why}.`, charged);
  }
}
