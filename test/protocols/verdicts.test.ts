import { describe, expect, it } from 'vitest';
import type { Reply } from '../../src/exchange.ts';
import { judgeFailedQuery, judgeFailedSubmission, unreadable } from '../../src/protocols/verdicts.ts';

function reply(status: number, message = '', more: Partial<Reply> = {}): Reply {
  return { status, headers: {}, text: message && JSON.stringify({ message }), complete: true, ...more };
}

function saying(status: number, body: unknown): Reply {
  return reply(status, '', { text: typeof body === 'string' ? body : JSON.stringify(body) });
}

describe('judgeFailedSubmission', () => {
  it.each([
    ...[400, 401, 402, 403, 404, 405, 413, 415, 422].map((status) => [status, 'rejected'] as const),
    ...[307, 308].map((status) => [status, 'rejected'] as const),
    [429, 'unavailable'] as const,
    ...[300, 301, 302, 303, 304, 406, 408, 409, 410, 411, 418, 425, 499].map(
      (status) => [status, 'unknown'] as const,
    ),
    ...[500, 501, 502, 503, 504, 505, 520, 522, 524, 529, 599].map((status) => [status, 'unknown'] as const),
  ])('judges %i as %s if whole, and as unknown if it was cut', (status, kind) => {
    for (const text of ['', '<html><title>503</title></html>', 'no healthy upstream']) {
      expect(judgeFailedSubmission(reply(status, '', { text })).kind).toBe(kind);
      expect(judgeFailedSubmission(reply(status, '', { text, complete: false })).kind).toBe('unknown');
    }
  });

  it.each<[string, unknown, string]>([
    ['an error object', { error: { message: 'overloaded' } }, 'unavailable'],
    ['an error in a list', [{ error: { code: 503, message: 'overloaded' } }], 'unavailable'],
    ['the phrase with a code', { error: { message: 'Service Unavailable', code: 'x' } }, 'unavailable'],
    ['an action error', { Response: { Error: { Code: 'ServiceUnavailable' } } }, 'unavailable'],
    ['a code and a message', { code: 503, message: 'upstream is away' }, 'unavailable'],
    ['words', { message: 'slow down' }, 'unavailable'],
    ['no error', {}, 'unknown'],
    ['a list', ['overloaded'], 'unknown'],
    ['a text', '"overloaded"', 'unknown'],
    ['the phrase alone, as from a load balancer', { message: 'Service Unavailable' }, 'unknown'],
    [
      'a framework in front of the gateway',
      { status: 503, error: 'Service Unavailable', path: '/x' },
      'unknown',
    ],
    [
      'Envoy in JSON',
      { code: 503, message: 'upstream connect error or disconnect/reset before headers' },
      'unknown',
    ],
    ['Envoy', 'upstream connect error or disconnect/reset before headers. reset reason: x', 'unknown'],
  ])('retries only the gateway’s own 503: %s', (_, body, kind) => {
    const answer = saying(503, body);
    expect(judgeFailedSubmission(answer)).toMatchObject({ kind, failure: { code: 'server_error' } });
    expect(judgeFailedSubmission({ ...answer, complete: false }).kind).toBe('unknown');
    const busy = { ...answer, headers: { 'retry-after': '3' } };
    expect(judgeFailedSubmission(busy).kind).toBe('unavailable');
    expect(judgeFailedSubmission({ ...busy, complete: false }).kind).toBe('unknown');
  });

  it.each<[string, unknown, string]>([
    ['an operation', { name: 'models/m/operations/op', error: { message: 'x' } }, 'models/m/operations/op'],
    ['an action', { Response: { TaskId: 't-1', Error: { Code: 'X' } } }, 't-1'],
    ['a task', { task_id: 't-1', error: { message: 'x' } }, 't-1'],
    ['a task in an envelope', { code: 503, message: 'x', data: { task_id: 't-1' } }, 't-1'],
    ['a task as data', { code: 'x', message: 'x', data: 'task_abc123DEF456' }, 'task_abc123DEF456'],
    ['a task in the error', { error: { message: 'x', task_id: 't-1' } }, 't-1'],
    ['a response', { id: 'resp_1', status: 'failed', error: { message: 'x' } }, 'resp_1'],
    ['a long number', '{"task_id":12345678901234567890,"error":{"message":"x"}}', '12345678901234567890'],
  ])('never refuses a response with a task id: %s', (_, body, handle) => {
    for (const status of [307, 400, 401, 404, 429, 500, 503])
      for (const more of [{}, { headers: { 'retry-after': '1' } }, { complete: false }]) {
        const verdict = judgeFailedSubmission({ ...saying(status, body), ...more });
        expect(verdict).toMatchObject({ kind: 'unknown', handle });
        expect('failure' in verdict && verdict.failure.message).toContain(`HTTP ${status}, which names`);
      }
  });

  it.each<[string, unknown]>([
    ['a word', { id: 'unauthorized', message: 'no' }],
    ['a name that is not an operation', { name: 'BadRequest9', message: 'no' }],
    ['an id of the call', { request_id: 'req-1', requestId: 'req-1', message: 'no' }],
    ['the id of a row', { data: { id: 17 }, message: 'no' }],
    ['an empty task id', { Response: { TaskId: '0', Error: { Code: 'X' } }, task_id: '', message: 'no' }],
  ])('ignores anything but a task id: %s', (_, body) => {
    expect(judgeFailedSubmission(saying(400, body)).kind).toBe('rejected');
  });

  it('does not retry if a retry cannot help', () => {
    expect(judgeFailedSubmission(reply(503, 'No available channel for model x'))).toMatchObject({
      kind: 'rejected',
      failure: { code: 'not_found' },
    });
    expect(judgeFailedSubmission(reply(429, 'insufficient quota'))).toMatchObject({
      kind: 'rejected',
      failure: { code: 'balance' },
    });
  });

  it('names the target of a redirect', () => {
    const found = judgeFailedSubmission(
      reply(308, '', { headers: { location: 'https://other.example/v1' } }),
    );
    expect(found).toMatchObject({ kind: 'rejected', failure: { code: 'invalid_request' } });
    expect('failure' in found && found.failure.message).toContain('https://other.example/v1');
    const nowhere = judgeFailedSubmission(reply(307));
    expect('failure' in nowhere && nowhere.failure.message).toContain('an address it does not name');
  });
});

describe('judgeFailedQuery', () => {
  it.each([
    [404, '', 'missing'],
    [400, 'task_not_exist', 'missing'],
    [200, 'task_not_exist', 'missing'],
    [401, 'Invalid token', 'unauthorized'],
    [403, 'no access', 'unauthorized'],
    [200, 'invalid api key', 'unauthorized'],
    [401, 'This token quota is exhausted', 'again'],
    [403, 'insufficient balance', 'again'],
    [400, 'odd', 'again'],
    [408, '', 'again'],
    [429, '', 'again'],
    [500, 'task x not found', 'again'],
    [503, 'No available channel for model x', 'again'],
    [524, '', 'again'],
    [302, '', 'again'],
  ])('judges %i %j as %s', (status, message, kind) => {
    expect(judgeFailedQuery(reply(status, message)).kind).toBe(kind);
  });
});

describe('unreadable', () => {
  it('shows the start of the response', () => {
    expect(unreadable(reply(200), 'task id')).toMatchObject({
      code: 'bad_reply',
      message: 'an empty response instead of task id',
    });
    const long = unreadable(reply(200, '', { text: ` ${'x'.repeat(500)}` }), 'task id');
    expect(long.message).toBe(`no task id in the response: ${'x'.repeat(200)}`);
  });
});
