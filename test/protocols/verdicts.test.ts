import { describe, expect, it } from 'vitest';
import type { Reply } from '../../src/exchange.ts';
import { judgeFailedQuery, judgeRefusedSubmission, unreadable } from '../../src/protocols/verdicts.ts';

function reply(status: number, message = '', more: Partial<Reply> = {}): Reply {
  return { status, headers: {}, text: message && JSON.stringify({ message }), complete: true, ...more };
}

describe('judgeRefusedSubmission', () => {
  it.each([
    ...[400, 401, 402, 403, 404, 405, 413, 415, 422].map((status) => [status, 'rejected'] as const),
    ...[307, 308].map((status) => [status, 'rejected'] as const),
    ...[429, 503].map((status) => [status, 'unavailable'] as const),
    ...[300, 301, 302, 303, 304, 406, 408, 409, 410, 411, 418, 425, 499].map(
      (status) => [status, 'unknown'] as const,
    ),
    ...[500, 501, 502, 504, 505, 520, 522, 524, 529, 599].map((status) => [status, 'unknown'] as const),
  ])('%i is %s', (status, kind) => {
    expect(judgeRefusedSubmission(reply(status)).kind).toBe(kind);
    expect(judgeRefusedSubmission(reply(status, 'words', { complete: false })).kind).toBe('unknown');
  });

  it('does not try again what trying again cannot help', () => {
    expect(judgeRefusedSubmission(reply(503, 'No available channel for model x'))).toMatchObject({
      kind: 'rejected',
      failure: { code: 'not_found' },
    });
    expect(judgeRefusedSubmission(reply(429, 'insufficient quota'))).toMatchObject({
      kind: 'rejected',
      failure: { code: 'balance' },
    });
  });

  it('names where a redirect would have led', () => {
    const found = judgeRefusedSubmission(
      reply(308, '', { headers: { location: 'https://other.example/v1' } }),
    );
    expect(found).toMatchObject({ kind: 'rejected', failure: { code: 'invalid_request' } });
    expect('failure' in found && found.failure.message).toContain('https://other.example/v1');
    const nowhere = judgeRefusedSubmission(reply(307));
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
  ])('%i %j is %s', (status, message, kind) => {
    expect(judgeFailedQuery(reply(status, message)).kind).toBe(kind);
  });
});

describe('unreadable', () => {
  it('shows the head of what came', () => {
    expect(unreadable(reply(200), 'task id')).toMatchObject({
      code: 'bad_reply',
      message: 'an empty answer instead of task id',
    });
    const long = unreadable(reply(200, '', { text: ` ${'x'.repeat(500)}` }), 'task id');
    expect(long.message).toBe(`no task id in the answer: ${'x'.repeat(200)}`);
  });
});
