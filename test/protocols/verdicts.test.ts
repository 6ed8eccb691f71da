import { describe, expect, it } from 'vitest';
import type { Reply } from '../../src/exchange.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { b } from '../../src/protocols/b/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
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
  ])('maps HTTP %i to %s, or to unknown if the response was truncated', (status, kind) => {
    for (const text of ['', '<html><title>503</title></html>', 'no healthy upstream']) {
      expect(judgeFailedSubmission(reply(status, '', { text })).kind).toBe(kind);
      expect(judgeFailedSubmission(reply(status, '', { text, complete: false })).kind).toBe('unknown');
    }
  });

  it.each<[string, unknown, string]>([
    ['an error object', { error: { message: 'overloaded' } }, 'unavailable'],
    ['an error in a list', [{ error: { code: 503, message: 'overloaded' } }], 'unavailable'],
    [
      'the phrase "Service Unavailable" with a code',
      { error: { message: 'Service Unavailable', code: 'x' } },
      'unavailable',
    ],
    ['a Protocol B error', { Response: { Error: { Code: 'ServiceUnavailable' } } }, 'unavailable'],
    ['a code and a message', { code: 503, message: 'upstream is away' }, 'unavailable'],
    ['a message alone', { message: 'slow down' }, 'unavailable'],
    ['no error', {}, 'unknown'],
    ['a list', ['overloaded'], 'unknown'],
    ['text', '"overloaded"', 'unknown'],
    [
      'the phrase "Service Unavailable" alone, as from a load balancer',
      { message: 'Service Unavailable' },
      'unknown',
    ],
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
  ])("allows a retry only for the gateway's own 503: %s", (_, body, kind) => {
    const answer = saying(503, body);
    expect(judgeFailedSubmission(answer)).toMatchObject({ kind, failure: { code: 'server_error' } });
    expect(judgeFailedSubmission({ ...answer, complete: false }).kind).toBe('unknown');
    const busy = { ...answer, headers: { 'retry-after': '3' } };
    expect(judgeFailedSubmission(busy).kind).toBe('unavailable');
    expect(judgeFailedSubmission({ ...busy, complete: false }).kind).toBe('unknown');
  });

  it.each<[string, unknown, string]>([
    [
      'a Protocol A operation',
      { name: 'models/m/operations/op', error: { message: 'x' } },
      'models/m/operations/op',
    ],
    ['a Protocol B task', { Response: { TaskId: 't-1', Error: { Code: 'X' } } }, 't-1'],
    ['a task', { task_id: 't-1', error: { message: 'x' } }, 't-1'],
    ['a task in an envelope', { code: 503, message: 'x', data: { task_id: 't-1' } }, 't-1'],
    ['a task as data', { code: 'x', message: 'x', data: 'task_abc123DEF456' }, 'task_abc123DEF456'],
    ['a short id', { task_id: 'tX', error: { message: 'slow' } }, 'tX'],
    ['a task in the error', { error: { message: 'x', task_id: 't-1' } }, 't-1'],
    ['a Responses document', { id: 'resp_1', status: 'failed', error: { message: 'x' } }, 'resp_1'],
    ['a long number', '{"task_id":12345678901234567890,"error":{"message":"x"}}', '12345678901234567890'],
  ])('never reads a response with a task id as a refusal: %s', (_, body, handle) => {
    for (const status of [307, 400, 401, 404, 429, 500, 503])
      for (const more of [{}, { headers: { 'retry-after': '1' } }, { complete: false }]) {
        const verdict = judgeFailedSubmission({ ...saying(status, body), ...more });
        expect(verdict).toMatchObject({ kind: 'unknown', handle });
        expect('failure' in verdict && verdict.failure.message).toContain(`HTTP ${status}, with the task id`);
      }
  });

  const made = { task_id: '424010985738629', base_resp: { status_msg: 'rate limit' } };
  const long = 'task_abcdefgh12345678abcdefgh12345678';
  const nested = (value: object, depth: number): object =>
    depth === 0
      ? value
      : { code: 'fail_to_fetch_task', message: JSON.stringify(nested(value, depth - 1)), data: null };
  it.each<[string, unknown, string]>([
    ['JSON in the message', { code: 'x', message: JSON.stringify(made) }, made.task_id],
    ['JSON in JSON in the message', nested(made, 3), made.task_id],
    ['JSON in a string', JSON.stringify(JSON.stringify(made)), made.task_id],
    ['a short id', nested({ task_id: 'tX' }, 1), 'tX'],
    ['an id without a label', nested({ id: long, status: 'queued' }, 1), long],
    ['a Protocol B response', nested({ Response: { TaskId: '7' } }, 1), '7'],
    ['a Protocol A operation', nested({ name: 'models/m/operations/op' }, 1), 'models/m/operations/op'],
    [
      'a nested member',
      { error: { message: 'no', details: [{ upstream: JSON.stringify(made) }] } },
      made.task_id,
    ],
    ['an object', { error: { upstream: [made] } }, made.task_id],
    ['truncated JSON', { message: JSON.stringify(made).slice(0, 28) }, made.task_id],
    ['JSON inside a sentence', { message: `status 429, body ${JSON.stringify(made)}` }, made.task_id],
    ['an id inside a sentence', { error: { message: `task ${long} is queued; slow down` } }, long],
    [
      'an id without digits',
      { message: `task_${'abcdefgh'.repeat(4)} waits` },
      `task_${'abcdefgh'.repeat(4)}`,
    ],
    ['a UUID', 'task-0b5c1f9e-8a7d-4c7e-9d57-1c2f3a4b5c6d', 'task-0b5c1f9e-8a7d-4c7e-9d57-1c2f3a4b5c6d'],
    ['a label', { message: 'busy (Task ID: 424010985738629, request id: 2026)' }, made.task_id],
    ['a label in Chinese', { message: '任务ID：424010985738629 排队中' }, made.task_id],
    ['an operation inside a sentence', 'models/veo-3/operations/abc waits', 'models/veo-3/operations/abc'],
    ['a line of a stream', `data: ${JSON.stringify(made)}\n\n`, made.task_id],
  ])('finds a task id in text: %s', (_, body, handle) => {
    for (const status of [400, 429, 503]) {
      const answer = { ...saying(status, body), headers: { 'retry-after': '1' } };
      expect(judgeFailedSubmission(answer)).toMatchObject({ kind: 'unknown', handle });
      expect(judgeFailedSubmission({ ...answer, complete: false }).kind).toBe('unknown');
      expect(judgeFailedSubmission(answer, { prompt: '7 boats' })).toMatchObject({ kind: 'unknown' });
    }
  });

  it('finds a task id in the Location header', () => {
    const headers = { location: `/v1/videos/${long}` };
    expect(judgeFailedSubmission(reply(429, 'slow', { headers }))).toMatchObject({ handle: long });
  });

  it.each<[string, string | object]>([
    ['a request id', 'No channel (request id: 20261129104512345678901AbCdEf12)'],
    ['a trace', 'busy, trace_id=4bf92f3577b34da6a3ce929d0e0e4736 log id: 202611291045A1B2C3'],
    ['a code', { code: 'task_not_exist', message: 'task_not_exist', data: null }],
    ['codes', 'task_failed: task_type_i2v_1080p is no task_type; task_id is required, task_id: max 64'],
    ['a limit', 'concurrent task limit 10 reached; 424010985738629 tokens left'],
    [
      'JSON of a refusal',
      JSON.stringify({ error: { message: 'busy', code: 1302 }, request_id: 'r-123456789' }),
    ],
    ['the id of a request', nested({ request_id: '20261129104512345678', data: null }, 1)],
    ['an empty id', JSON.stringify({ task_id: '', base_resp: { status_code: 1002 } })],
    ['the name of the field', { message: 'no', errors: { task_id: 'required', taskId: 'max. 64' } }],
    ['no id', JSON.stringify({ task_id: 'null', message: 'slow' })],
    ['another kind of id', 'external_task_id: 1234567890'],
  ])('does not mistake a different kind of id in text for a task id: %s', (_, body) => {
    const answer = (status: number): Reply =>
      saying(status, typeof body === 'string' ? { message: body } : body);
    expect(judgeFailedSubmission(answer(400)).kind).toBe('rejected');
    expect(judgeFailedSubmission(answer(429)).kind).toBe('unavailable');
  });

  it.each<[string, object, string]>([
    ['the prompt', { prompt: `like ${long}, but blue` }, `unsafe text: like ${long}, but blue`],
    [
      'a prompt that is JSON',
      { prompt: JSON.stringify({ id: long }) },
      `unsafe: ${JSON.stringify({ id: long })}`,
    ],
    ['the id of a task to extend', { extend: { from: [long] } }, `task ${long} not found`],
    [
      'the id of an earlier task, in JSON,',
      { remix_id: long },
      JSON.stringify({ task_id: long, message: 'it has expired' }),
    ],
    ['a numeric task id', { remix_id: 4240109857 }, 'task_id: 4240109857 does not exist'],
  ])('treats a message that only quotes %s from the request as a refusal', (_, sent, message) => {
    expect(judgeFailedSubmission(reply(400, message), { ...sent }).kind).toBe('rejected');
    expect(judgeFailedSubmission(reply(400, message)).kind).toBe('unknown');
    const other = `${message} (task_zyxwvuts87654321 was created)`;
    expect(judgeFailedSubmission(reply(429, other), { ...sent })).toMatchObject({
      kind: 'unknown',
      handle: 'task_zyxwvuts87654321',
    });
  });

  it.each([
    [{ prompt: '42 boats' }, JSON.stringify({ task_id: '42' })],
    [{ prompt: `${long}9` }, `${long} waits`],
  ])('recognizes a task id in the response even if it resembles part of the request: %j', (sent, message) => {
    expect(judgeFailedSubmission(reply(429, message), sent).kind).toBe('unknown');
  });

  it.each<[string, unknown]>([
    ['a word', { id: 'unauthorized', message: 'no' }],
    ['a name that is not an operation', { name: 'BadRequest9', message: 'no' }],
    ['an id of the call', { request_id: 'req-1', requestId: 'req-1', message: 'no' }],
    ['the id of a row', { data: { id: 17 }, message: 'no' }],
    ['the word for no task', { task_id: 'None', data: { taskId: 'null' }, message: 'no' }],
    ['a sentence', { task_id: 'this field is required', message: 'no' }],
    ['an empty task id', { Response: { TaskId: '0', Error: { Code: 'X' } }, task_id: '', message: 'no' }],
  ])('ignores values that are not task ids: %s', (_, body) => {
    expect(judgeFailedSubmission(saying(400, body)).kind).toBe('rejected');
  });

  it('does not allow a retry that cannot help', () => {
    expect(judgeFailedSubmission(reply(503, 'No available channel for model x'))).toMatchObject({
      kind: 'rejected',
      failure: { code: 'not_found' },
    });
    expect(judgeFailedSubmission(reply(429, 'insufficient quota'))).toMatchObject({
      kind: 'rejected',
      failure: { code: 'balance' },
    });
  });

  it("includes a redirect's target in the message", () => {
    const found = judgeFailedSubmission(
      reply(308, '', { headers: { location: 'https://other.example/v1' } }),
    );
    expect(found).toMatchObject({ kind: 'rejected', failure: { code: 'invalid_request' } });
    expect('failure' in found && found.failure.message).toContain('https://other.example/v1');
    const nowhere = judgeFailedSubmission(reply(307));
    expect('failure' in nowhere && nowhere.failure.message).toContain('an unspecified address');
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
  ])('maps HTTP %i with %j to %s', (status, message, kind) => {
    expect(judgeFailedQuery(reply(status, message)).kind).toBe(kind);
  });
});

describe('the error for an unreadable response', () => {
  it('quotes the start of the response', () => {
    expect(unreadable(reply(200), 'task id')).toMatchObject({
      code: 'bad_reply',
      message: 'an empty response instead of task id',
    });
    const long = unreadable(reply(200, '', { text: ` ${'x'.repeat(500)}` }), 'task id');
    expect(long.message).toBe(`no task id in the response: ${'x'.repeat(200)}`);
    const page = unreadable(reply(200, '', { text: '<!DOCTYPE html><p>Hi' }), 'task id');
    expect(page.message).toMatch(/<!DOCTYPE html><p>Hi \(a web page: check the base URL\)$/);
  });
});

describe('a task id in a 2xx response to a submission, but not in its field,', () => {
  const made = { task_id: '424010985738629', base_resp: { status_msg: 'rate limit' } };
  const long = 'task_abcdefgh12345678abcdefgh12345678';

  it.each<[string, unknown, string]>([
    ['a sentence', { message: `Task ${long} was submitted` }, long],
    ['a nested member', { result: { data: { task_id: made.task_id } } }, made.task_id],
    [
      'an operation in another member',
      { operation: { name: 'models/m/operations/op' } },
      'models/m/operations/op',
    ],
    [
      'a Protocol B response with another member',
      { Response: { Data: { TaskId: '251-Video-1c' } } },
      '251-Video-1c',
    ],
    ['an event stream', `data: ${JSON.stringify(made)}\n\n`, made.task_id],
  ])('is kept: %s', (_, body, handle) => {
    for (const protocol of [a, b, c]) {
      const verdict = protocol.readSubmission(saying(200, body), {});
      if (verdict.kind !== 'accepted') expect(verdict).toMatchObject({ kind: 'unknown', handle });
      else expect(verdict.handle).toBe(handle);
    }
  });

  it('is kept from the Location header', () => {
    const answer = reply(202, '', { headers: { location: `/v1/videos/${long}` } });
    for (const protocol of [a, b, c])
      expect(protocol.readSubmission(answer, {})).toMatchObject({ kind: 'unknown', handle: long });
  });

  const anything = expect.anything() as unknown;
  it('is not kept if it may be incomplete, because the response ends with it', () => {
    for (const text of ['data: {"task_id":"task_12345678', '{"name":"models/m/operations/op-1'])
      for (const protocol of [a, b, c])
        expect(protocol.readSubmission(saying(200, text), {})).toEqual({
          kind: 'unknown',
          failure: anything,
        });
  });
});
