import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { b } from '../../../src/protocols/b/protocol.ts';
import type { SubmitVerdict } from '../../../src/exchange.ts';

import { callFailure, goodBody, reply } from './support.ts';

function read(body: unknown, status = 200, complete = true): SubmitVerdict {
  return b.readSubmission(reply(body, status, complete), goodBody);
}

test('a Protocol B request is sent to the root path with the fixed headers', () => {
  const exchange = b.submission(goodBody);
  expect(exchange).toEqual({
    method: 'POST',
    path: '/',
    headers: {
      'content-type': 'application/json',
      'X-TC-Version': '2018-07-17',
      'X-TC-Action': 'CreateAigcVideoTask',
    },
    body: JSON.stringify(goodBody),
  });
  expect(b.auth).toEqual({ header: 'Authorization', scheme: 'Bearer' });
});

describe('an accepted Protocol B submission', () => {
  test('causes a warning if the response also contains an error', () => {
    const verdict = read({ Response: { TaskId: 't', Error: { Code: 'InternalError', Message: 'oops' } } });
    expect(verdict).toMatchObject({ kind: 'accepted', handle: 't' });
    expect(verdict).toHaveProperty('warning', expect.stringContaining('InternalError: oops'));
  });

  test('causes no warning if the error in the response is empty', () => {
    const errors = [null, {}, { Code: '', Message: '' }];
    for (const Error of errors)
      expect(read({ Response: { TaskId: 't', Error } })).toEqual({ kind: 'accepted', handle: 't' });
  });
});

describe('an error with HTTP 200 in response to a Protocol B submission', () => {
  test.each([
    ['InvalidParameterValue', 'invalid_request'],
    ['InvalidParameterValue.SubAppId', 'invalid_request'],
    ['InvalidParameter', 'invalid_request'],
    ['InvalidParameter.VoilationContent', 'content_policy'],
    ['MissingParameter', 'invalid_request'],
    ['UnknownParameter', 'invalid_request'],
    ['UnsupportedOperation', 'invalid_request'],
    ['InvalidAction', 'invalid_request'],
    ['NoSuchVersion', 'invalid_request'],
    ['RequestSizeLimitExceeded', 'invalid_request'],
    ['AuthFailure.SignatureFailure', 'auth'],
    ['UnauthorizedOperation', 'auth'],
    ['IpNotInWhitelist', 'auth'],
    ['ResourceNotFound', 'not_found'],
    ['LimitExceeded', 'rate_limited'],
    ['ResourceInsufficient', 'rate_limited'],
    ['insufficient_user_quota', 'balance'],
    ['FailedOperation.InsufficientBalance', 'balance'],
    ['FailedOperation.BalanceNotEnough', 'balance'],
    ['ResourceUnavailable.InArrears', 'balance'],
    ['UnsupportedOperation.AccountArrearsError', 'balance'],
    ['model_not_found', 'not_found'],
  ])('is a refusal if its code is %s, and is reported as %s', (code, meaning) => {
    const verdict = b.readSubmission(callFailure(code), goodBody);
    expect(verdict).toMatchObject({
      kind: 'rejected',
      failure: { code: meaning, message: 'words', nativeCode: code, requestId: 'r-1' },
    });
  });

  test('is reported as a balance error if only its message mentions the balance', () => {
    const verdict = b.readSubmission(callFailure('InvalidParameter', '账户余额不足'), goodBody);
    expect(verdict).toMatchObject({ kind: 'rejected', failure: { code: 'balance' } });
  });

  test('is a temporary refusal if it is a rate limit', () => {
    for (const code of ['RequestLimitExceeded', 'RequestLimitExceeded.UinLimitExceeded'])
      expect(b.readSubmission(callFailure(code), goodBody)).toMatchObject({
        kind: 'unavailable',
        failure: { code: 'rate_limited', nativeCode: code },
      });
  });
});

describe('the outcome of a Protocol B submission', () => {
  test.each([
    'InternalError',
    'InternalError.Timeout',
    'FailedOperation',
    'FailedOperation.TaskDuplicate',
    'FailedOperation.BalanceService',
    'ResourceUnavailable.InUse',
    'ServiceUnavailable',
    'ResourceInUse',
    'ResponseSizeLimitExceeded',
    'SomethingNew',
    'RequestLimitExceededSomehow',
    'invalidparameter',
    '',
  ])('is unknown after the error code %j with HTTP 200, because the task may exist', (code) => {
    expect(b.readSubmission(callFailure(code), goodBody).kind).toBe('unknown');
  });

  test('is unknown if only the message of an error looks like a refusal', () => {
    const verdict = b.readSubmission(
      callFailure('InternalError', 'invalid api key, model not found'),
      goodBody,
    );
    expect(verdict.kind).toBe('unknown');
  });

  test.each([
    { Response: {} },
    { Response: null },
    [],
    7,
    '',
    { Response: { TaskId: '' } },
    { Response: { TaskId: null } },
    { Response: { TaskId: {} } },
    { Response: { TaskId: true } },
    { Response: { TaskId: 0 } },
    { Response: { TaskId: '0' } },
    { Response: { TaskId: -1 } },
    { Response: { Error: 7 } },
    { Response: { Error: [] } },
    { code: 'insufficient_user_quota', message: 'x' },
  ])('is unknown after HTTP 200 with %j, because the task may exist', (body) => {
    expect(read(body).kind).toBe('unknown');
  });

  test('is unknown after a refusal that was truncated, or that is not complete JSON', () => {
    const { text } = callFailure('InvalidParameterValue');
    expect(read(text, 200, false).kind).toBe('unknown');
    expect(read(text.slice(0, -2)).kind).toBe('unknown');
  });
});

test('a Protocol B response with a 2xx status is a refusal only if it contains a listed code', () => {
  fc.assert(
    fc.property(fc.json(), fc.string(), (json, code) => {
      const verdicts = [json, JSON.stringify({ Response: { Error: { Code: `x${code}` } } })].map((text) =>
        read(text),
      );
      for (const verdict of verdicts) expect(['accepted', 'unknown']).toContain(verdict.kind);
    }),
    { numRuns: 50 },
  );
});
