import { expect, it } from 'vitest';
import type { Failure } from '../../src/exchange.ts';
import {
  interruptionError,
  notAcceptedError,
  waitTooLongError,
  unsentError,
} from '../../src/payment/errors.ts';

const failure: Failure = { code: 'rate_limited', message: 'busy', requestId: 'r1' };

it.each([
  ['rejected', 'auth', 1, 3, 'no', 'never', 'busy'],
  ['rejected', 'invalid_request', 1, 4, 'no', 'never', 'busy'],
  ['unknown', 'server_error', 1, 7, 'maybe', 'never', 'busy. The gateway may'],
  ['unavailable', 'rate_limited', 1, 6, 'no', 'safe', 'Not accepted after 1 attempt: busy'],
  ['unavailable', 'server_error', 3, 6, 'no', 'safe', 'Not accepted after 3 attempts: busy'],
] as const)(
  'a payment that is %s (%s) at attempt %i leads to exit %i',
  (kind, code, tries, exitCode, charged, retry, words) => {
    const error = notAcceptedError({ kind, failure: { ...failure, code } }, tries);
    expect(error).toMatchObject({ exitCode, charged, retry, requestId: 'r1' });
    expect(error.code).toBe(kind === 'unknown' ? 'submit_unknown' : code);
    expect(error.message.startsWith(words)).toBe(true);
  },
);

it('the error of a refused payment contains the time of the next attempt if the gateway sent one', () => {
  const { message } = notAcceptedError(
    { kind: 'unavailable', failure: { ...failure, retryAfterMs: 7000 } },
    1,
  );
  expect(message).toMatch(/^Not accepted after 1 attempt: busy\..*7/);
});

it.each([
  ['SIGTERM', 'no', 143, 'safe'],
  ['SIGINT', 'maybe', 130, 'resume'],
] as const)(
  'a payment interrupted by %s, with charged "%s", leads to exit %i',
  (reason, charged, exitCode, retry) => {
    const error = interruptionError(AbortSignal.abort(reason), charged);
    expect(error).toMatchObject({ code: 'pending', exitCode, charged, retry });
  },
);

it('a payment attempt that was not sent, or would be too late, makes the command exit with 6', () => {
  const cause = new Error('x');
  expect(unsentError('no route', cause)).toMatchObject({
    ...{ code: 'unreachable', exitCode: 6, retry: 'safe', cause, message: 'Nothing was sent: no route.' },
  });
  expect(waitTooLongError('busy', 'rate_limited', 0)).toMatchObject({
    ...{ code: 'rate_limited', exitCode: 6, retry: 'safe' },
    message: expect.stringContaining('1970-01-01T00:00:00.000Z') as string,
  });
  expect(waitTooLongError('busy', 'rate_limited', Infinity).message).toContain('+275760-09-13');
});
