import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ErrorCode } from '../../src/errors.ts';
import type { Reply } from '../../src/exchange.ts';
import {
  bodyOf,
  classify,
  deniesModelOrVoice,
  messageIn,
  nativeCodeIn,
  readFailure,
  requestIdOf,
} from '../../src/http/failures.ts';
import type { Json } from '../../src/json.ts';
import { anyCharacter } from '../support/any-character.ts';

function reply(status: number, body: Json | undefined, headers: Record<string, string> = {}): Reply {
  return { status, headers, text: body === undefined ? '' : JSON.stringify(body), complete: true };
}

const envelope = (message: string, code: Json = ''): Json => ({
  error: { message, type: 'new_api_error', code },
});

describe('readFailure', () => {
  const cases: [string, number, Json | undefined, ErrorCode][] = [
    ['bad key', 401, envelope('Invalid token (request id: 2026)'), 'auth'],
    ['bad key, Chinese', 401, envelope('无效的令牌'), 'auth'],
    ['expired key', 401, envelope('This token has expired'), 'auth'],
    [
      'used-up key',
      401,
      envelope('This token quota is exhausted TokenStatusExhausted[sk-abc***xyz]'),
      'balance',
    ],
    ['login token', 401, { success: false, message: 'unauthorised', code: 'AUTH_1' }, 'auth'],
    ['banned', 403, envelope('user is banned'), 'auth'],
    ['IP', 403, envelope('IP not allowed', 'access_denied'), 'auth'],
    ['group', 403, envelope('无权访问 vip 分组'), 'auth'],
    ['no right to a model', 403, envelope('This token has no access to model x'), 'auth'],
    ['prohibited', 403, envelope('access prohibited'), 'auth'],
    [
      'balance under 403',
      403,
      envelope('用户额度不足, 剩余额度: ＄0.10', 'insufficient_user_quota'),
      'balance',
    ],
    [
      'balance under 403, message only',
      403,
      envelope('预扣费额度失败, 用户剩余额度: ＄0.1, 需要预扣费额度: ＄2'),
      'balance',
    ],
    [
      'balance of the key',
      403,
      envelope('token quota is not enough', 'pre_consume_token_quota_failed'),
      'balance',
    ],
    [
      'balance under 402',
      402,
      { error: { type: 'insufficient_balance_error', message: 'pay (1008)' } },
      'balance',
    ],
    ['402 without a message', 402, undefined, 'balance'],
    ['balance under 429', 429, envelope('You exceeded your current quota', 'insufficient_quota'), 'balance'],
    ['balance with 200', 200, { base_resp: { status_code: 1008, status_msg: 'no' } }, 'balance'],
    ['account with debts', 403, envelope('Your account is in arrears'), 'balance'],
    ['account in arrears', 400, { code: 'Arrearage', message: 'x' }, 'balance'],
    [
      'no model under 503',
      503,
      envelope('No available channel for model x under group g (distributor)', 'model_not_found'),
      'not_found',
    ],
    ['no model, Chinese', 503, envelope('当前分组 default 下对于模型 x 无可用渠道'), 'not_found'],
    ['no model under 404', 404, envelope("The model 'x' does not exist"), 'not_found'],
    ['no model with 200', 200, envelope('no such model', 'model_not_found'), 'not_found'],
    [
      'no task under 400',
      400,
      { code: 'task_not_exist', message: 'task_not_exist', data: null },
      'not_found',
    ],
    ['no task, bare', 400, { code: 2013, message: 'invalid task_id' }, 'not_found'],
    ['wrong path', 404, envelope('Invalid URL (POST /responses)'), 'not_found'],
    ['404 without a message', 404, undefined, 'not_found'],
    ['rate limit', 429, envelope('您已达到请求数限制：1分钟内最多请求10次'), 'rate_limited'],
    ['rate limit without a message', 429, undefined, 'rate_limited'],
    ['rate limit of a model', 429, envelope('No luck with this model'), 'rate_limited'],
    ['rate limit with 200', 200, { base_resp: { status_code: 1002, status_msg: 'x' } }, 'rate_limited'],
    ['rate limit with 200, a status as code', 200, { code: 429, message: 'x' }, 'rate_limited'],
    [
      'Google rate limit',
      429,
      { error: { code: 429, status: 'RESOURCE_EXHAUSTED', message: 'x' } },
      'rate_limited',
    ],
    ['policy', 400, envelope('blocked by content policy', 'content_policy_violation'), 'content_policy'],
    [
      'policy by code',
      422,
      { error: { type: 'unprocessable_entity_error', code: '1026', message: 'x' } },
      'content_policy',
    ],
    ['policy, Chinese', 400, envelope('内容违规'), 'content_policy'],
    ['letter case is no policy', 400, envelope('the model name is case-sensitive'), 'invalid_request'],
    ['a key is no policy', 401, envelope('moderation of this key'), 'auth'],
    ['bad value', 400, { code: 'invalid_duration', message: 'duration', data: null }, 'invalid_request'],
    ['bad value with 200', 200, { code: 'invalid_request', message: 'x' }, 'invalid_request'],
    ['FastAPI', 422, { detail: [{ loc: ['body'], msg: 'field required', type: 'x' }] }, 'invalid_request'],
    ['too large', 413, { code: 'read_request_body_failed', message: 'x' }, 'invalid_request'],
    ['bad key with 200', 200, { base_resp: { status_code: 1004, status_msg: 'login fail' } }, 'auth'],
    ['server', 500, { code: 'do_request_failed', message: '请求上游地址失败' }, 'server_error'],
    ['overloaded', 529, { error: { type: 'overloaded_error', message: 'x (1000)' } }, 'server_error'],
    ['not built', 501, { code: 'api_not_implemented', message: 'x' }, 'server_error'],
    ['gateway away', 524, undefined, 'server_error'],
    ['slow request', 408, undefined, 'server_error'],
    ['server error that mentions a task', 500, envelope('task x not found in cache'), 'server_error'],
    ['no message with 200', 200, undefined, 'bad_reply'],
    ['redirect', 302, undefined, 'bad_reply'],
  ];
  it.each(cases)('reads %s (HTTP %i, %j) as %s', (_, status, body, code) => {
    expect(readFailure(reply(status, body)).code).toBe(code);
  });

  it('returns the message, the code, the request id and the time to wait', () => {
    const body = { error: { message: 'slow down (request id: 2026112001)', type: 'x', code: 'limit' } };
    expect(readFailure(reply(429, body, { 'retry-after': '7' }))).toEqual({
      code: 'rate_limited',
      message: 'slow down (request id: 2026112001)',
      nativeCode: 'limit',
      requestId: '2026112001',
      retryAfterMs: 7000,
    });
  });

  it('uses the start of the response as the message if there is no message', () => {
    expect(readFailure(reply(502, undefined)).message).toBe('HTTP 502 with an empty body');
    const long = { ...reply(502, undefined), text: 'x'.repeat(1000) };
    expect(readFailure(long).message).toBe(`HTTP 502: ${'x'.repeat(300)}`);
    const page = { ...reply(502, undefined), text: '<html><title>502 Bad Gateway</title><hr>nginx' };
    expect(readFailure(page).message).toBe('HTTP 502: 502 Bad Gateway');
    const nothing = { ...reply(502, undefined), text: '<html></html>' };
    expect(readFailure(nothing).message).toBe('HTTP 502 with a page that has no text');
  });

  it('finds a request id at the end of a long message, and does not use the id as the message', () => {
    const words = `${'(request id: '.repeat(2000)}x) y ${'z'.repeat(5000)}`;
    expect(readFailure(reply(500, envelope(`${words} (request id: 2026)`))).requestId).toBe('2026');
    expect(readFailure(reply(500, envelope(words))).requestId).toBeUndefined();
  });

  it('limits the length of its result', () => {
    const body = { error: { message: 'x'.repeat(1_000_000), code: 'y'.repeat(1_000_000) } };
    const { message, nativeCode } = readFailure(reply(400, body));
    expect([message.length, nativeCode?.length]).toEqual([4000, 200]);
  });

  it('reads any response without throwing', () => {
    const text = fc.oneof(fc.json(), fc.string({ unit: anyCharacter }));
    fc.assert(
      fc.property(fc.integer({ min: 100, max: 599 }), text, (status, body) => {
        const failure = readFailure({ status, headers: {}, text: body, complete: true });
        expect(failure.message).not.toBe('');
      }),
    );
  });
});

describe('messageIn', () => {
  it.each<[Json | undefined, string | undefined]>([
    [{ error: { message: 'a' }, message: 'b' }, 'a'],
    [{ error: 'a', message: 'b' }, 'a'],
    [{ code: 'invalid-argument', error: 'text' }, 'text'],
    [{ Response: { Error: { Code: 'c', Message: 'a' } } }, 'a'],
    [{ message: 'a', msg: 'b' }, 'a'],
    [{ msg: 'a', detail: 'b' }, 'a'],
    [{ detail: 'a' }, 'a'],
    [{ detail: [{ msg: 'a' }, { msg: 'b' }] }, 'a'],
    [{ base_resp: { status_msg: 'a' } }, 'a'],
    [{ output: { message: 'a' } }, 'a'],
    [{ header: { message: 'a' } }, 'a'],
    [{ message: '{"error":{"message":"a"}}' }, 'a'],
    [{ message: '{"message":"{\\"detail\\":\\"a\\"}"}' }, 'a'],
    [{ message: '{not JSON' }, '{not JSON'],
    [{ message: '{}' }, '{}'],
    [{ message: '<html><h1>502</h1>' }, '502'],
    [{ error: {}, message: '' }, undefined],
    [{ message: 5 }, undefined],
    ['text', undefined],
    [null, undefined],
    [undefined, undefined],
  ])('returns the message in %j: %j', (body, message) => {
    expect(messageIn(body)).toBe(message);
  });

  it('limits the depth of JSON inside JSON', () => {
    let message = 'end';
    for (let depth = 0; depth < 12; depth += 1) message = JSON.stringify({ message });
    expect(messageIn({ message })).toContain('end');
  });
});

describe('nativeCodeIn', () => {
  it.each<[Json, string | undefined]>([
    [{ error: { code: 'a', type: 'b' }, code: 'c' }, 'a'],
    [{ error: { code: '', type: 'b' } }, 'b'],
    [{ error: { code: 429, status: 'X' } }, '429'],
    [{ Response: { Error: { Code: 'InvalidParameter' } } }, 'InvalidParameter'],
    [{ code: 0 }, '0'],
    [{ base_resp: { status_code: 1008 } }, '1008'],
    [{ header: { code: 45000030 } }, '45000030'],
    [{ code: null, error: null }, undefined],
  ])('returns the code in %j: %j', (body, code) => {
    expect(nativeCodeIn(body)).toBe(code);
  });
});

describe('requestIdOf', () => {
  it.each<[Record<string, string>, Json | undefined, string | undefined]>([
    [{ 'x-oneapi-request-id': 'a', 'x-request-id': 'b' }, { request_id: 'c' }, 'a'],
    [{ 'x-request-id': 'b' }, undefined, 'b'],
    [{ 'x-tt-logid': 'b' }, undefined, 'b'],
    [{ 'x-request-id': '' }, { request_id: 'c' }, 'c'],
    [{}, { Response: { RequestId: 'c' } }, 'c'],
    [{}, { requestId: 'c' }, 'c'],
    [{}, { header: { reqid: 'c' } }, 'c'],
    [{}, envelope('no (request id: 20261120)'), '20261120'],
    [{}, { message: 'no' }, undefined],
    [{}, undefined, undefined],
  ])('returns the id in the headers %j and the body %j: %j', (headers, body, id) => {
    expect(requestIdOf(reply(400, body, headers))).toBe(id);
  });
});

describe('bodyOf', () => {
  it('unwraps only an error in a list of one element', () => {
    expect(bodyOf(reply(400, [{ error: { code: 1 } }]))).toEqual({ error: { code: 1 } });
    expect(bodyOf(reply(200, [{ id: 'x' }]))).toEqual([{ id: 'x' }]);
    expect(bodyOf(reply(400, [{ error: 1 }, { error: 2 }]))).toHaveLength(2);
    expect(bodyOf({ ...reply(200, undefined), text: '<html>' })).toBeUndefined();
  });
});

describe('deniesModelOrVoice', () => {
  it.each([
    'This token has no access to model vendor-h3',
    'Project x does not have access to model `vendor-h3`',
    '该令牌无权访问模型 vendor-h3',
    'Authentication Error, API Key not allowed to access model. This token can only access models=[x]',
    'speaker permission denied: get resource id: access denied',
    'resource ID is mismatched with speaker related resource',
    '[resource_id=speech-tts-2.0] requested resource not granted',
  ])('is true for %s', (message) => {
    expect(deniesModelOrVoice(message)).toBe(true);
  });

  it.each([
    'Invalid token (request id: 2026)',
    'This token has expired',
    'user is banned',
    'IP not allowed',
    '无权访问 vip 分组',
    'The caller does not have permission',
    'Unauthorized: invalid API key for model vendor-h3-mini',
    'invalid_api_key: no access to model vendor-h3-mini',
    'Unauthorized (model vendor-h3-mini): the token has expired',
    'API key not valid. The voice service denied permission',
    'You have insufficient permissions for this operation. Missing scopes: model.request, api.model.read',
  ])('is false for a refusal of the key: %s', (message) => {
    expect(deniesModelOrVoice(message)).toBe(false);
  });
});

describe('classify', () => {
  it.each<[string, number, ErrorCode]>([
    ['45000292 quota exceeded for types: concurrency', 200, 'rate_limited'],
    ['45000000 quota exceeded for types: text_words_lifetime', 200, 'balance'],
    ['45000030  [resource_id=x] requested resource not granted', 403, 'auth'],
    ['InvalidParameter.VoilationContent the prompt', 200, 'content_policy'],
    ['RequestLimitExceeded your current request times', 200, 'rate_limited'],
    ['AuthFailure.TokenFailure x', 200, 'auth'],
    ['ResourceNotFound.Task x', 200, 'not_found'],
    ['the number 1008 and 1026', 400, 'invalid_request'],
  ])('reads %s with HTTP %i as %s', (words, status, code) => {
    expect(classify(words, status)).toBe(code);
  });
});
