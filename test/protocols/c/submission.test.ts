import { describe, expect, it } from 'vitest';
import type { Json } from '../../../src/json.ts';
import { c } from '../../../src/protocols/c/protocol.ts';
import type { SubmitVerdict } from '../../../src/exchange.ts';

import { replyOf } from '../conformance.ts';

const body = { model: 'vendor-h3', prompt: 'a cat' };

function read(answer: string | Json, status = 200, complete = true): SubmitVerdict {
  const sample = typeof answer === 'string' ? { text: answer } : { body: answer };
  return c.readSubmission(replyOf({ ...sample, status }, complete), body);
}

// One response for each place in which a handle is found. conformance.test.ts contains the most common responses.
const dialects: [string, Json, string, string?][] = [
  ['task_id alone', { task_id: '7890123456' }, '7890123456'],
  ['data that is text', { code: 'success', message: '', data: 'task_abc123DEF456' }, 'task_abc123DEF456'],
  ['a list', { code: 200, data: [{ status: 'submitted', task_id: 't-1' }] }, 't-1', 'submitted'],
  ['a list of ids', { code: 200, data: [{ id: 't-1' }] }, 't-1'],
  ['camel case', { success: true, data: { taskId: 't-1', status: 'processing' } }, 't-1', 'processing'],
  ['camel case at the top', { taskId: 't-1' }, 't-1'],
  ['Kling', { code: 0, request_id: 'r', data: { task_id: 't-1', task_status: 'new' } }, 't-1', 'new'],
  ['Jimeng', { code: 10000, data: { task_id: 't-1' }, message: 'Success', status: 10000 }, 't-1'],
  ['a task object', { task: { id: 't-1', status: 'queued' } }, 't-1', 'queued'],
  ['DashScope', { request_id: 'r', output: { task_id: 't-1', task_status: 'PENDING' } }, 't-1', 'PENDING'],
  ['wrapped as a result', { code: 200, request_id: 'r', result: { task_id: 't-1' } }, 't-1'],
  ['wrapped twice', { code: 0, data: { task: { id: 't-1', status: 'queued' } } }, 't-1', 'queued'],
  ['Vidu', { task_id: 't-1', state: 'created', model: 'm' }, 't-1', 'created'],
  ['SiliconFlow', { requestId: 'r-1' }, 'r-1'],
  ['a request id and nothing else', { request_id: 'r-1' }, 'r-1'],
  ['Zhipu', { id: 'z-1', request_id: 'r', task_status: 'PROCESSING' }, 'z-1', 'PROCESSING'],
  ['OpenRouter', { id: 'o-1', polling_url: '/api/v1/videos/o-1', status: 'pending' }, 'o-1', 'pending'],
  ['video_id', { video_id: 'v-1' }, 'v-1'],
  ['job_id', { job_id: 'j-1' }, 'j-1'],
  ['a wrapped row', { data: { id: 1042, task_id: 'task_1', status: 'SUBMITTED' } }, 'task_1', 'SUBMITTED'],
  ['id and task_id differ', { id: 'one', task_id: 'two' }, 'two'],
  ['an integer', { id: 123456789 }, '123456789'],
  ['an empty task_id next to an id', { task_id: '', id: 'x-1' }, 'x-1'],
  ['a null task_id next to data', { task_id: null, data: { id: 'x-1' } }, 'x-1'],
  ['a long base64url id', { id: 'cHJvamVjdHM_'.repeat(30) }, 'cHJvamVjdHM_'.repeat(30)],
];

describe("an accepted task's handle", () => {
  it.each(dialects)('is read from a response of the form: %s', (_, answer, handle, nativeStatus) => {
    expect(read(answer)).toEqual({ kind: 'accepted', handle, nativeStatus, warning: undefined });
  });

  it.each([200, 201, 202])('is read from a response with HTTP %i', (status) => {
    expect(read({ id: 'x-1' }, status)).toMatchObject({ kind: 'accepted', handle: 'x-1' });
  });

  it.each(['12345678901234567890', '9007199254740993', '-12345678901234567890123'])(
    'contains every digit of %s',
    (id) => {
      expect(read(`{"id": ${id}, "status": "queued"}`)).toMatchObject({ kind: 'accepted', handle: id });
    },
  );

  it('is read from a body with a byte order mark or long fractions', () => {
    expect(read('\ufeff{"cost":0.12345678901234567890,"id":"x-1"}')).toMatchObject({ handle: 'x-1' });
  });
});

describe('a handle in a response with an error', () => {
  it.each<[string, Json, string, string]>([
    ['an error object', { id: 'task_1', error: { code: 'x', message: 'slow' } }, 'task_1', 'slow'],
    ['a bad code', { code: 'odd', message: 'but made', data: { task_id: 'task_1' } }, 'task_1', 'but made'],
    ['success false', { success: false, message: 'hm', task_id: 12345 }, '12345', 'hm'],
    ['a task id as data', { code: 500, message: 'hm', data: 'task_abc123DEF456' }, 'task_abc123DEF456', 'hm'],
    ['base_resp', { task_id: 't-1', base_resp: { status_code: 1000, status_msg: 'hm' } }, 't-1', 'hm'],
  ])('is used with a warning despite the error: %s', (_, answer, handle, words) => {
    const verdict = read(answer);
    expect(verdict).toMatchObject({ kind: 'accepted', handle });
    expect(verdict.kind === 'accepted' && verdict.warning).toBe(
      `The task was accepted, but the response reports an error: ${words}`,
    );
  });

  it.each<[string, Json]>([
    ['a sentence in data', { code: 400, message: 'bad', data: 'the prompt is too long' }],
    ['a word in data', { code: 400, message: 'bad', data: 'prompt_required' }],
    ['a row number', { code: 400, message: 'bad', data: { id: 17 } }],
    ['an id of the request', { error: { message: 'bad', code: 400 }, request_id: 'r-1' }],
    ['zero', { code: 400, message: 'bad', task_id: 0 }],
  ])('is not taken from another member: %s', (_, answer) => {
    expect(read(answer).kind).toBe('rejected');
  });
});

describe('an error with HTTP 200', () => {
  const statusOf = (code: number): Json => ({
    task_id: '',
    base_resp: { status_code: code, status_msg: 'words' },
  });
  it.each<[string, Json, string, string]>([
    ['balance', statusOf(1008), 'rejected', 'balance'],
    ['rate limit', statusOf(1002), 'unavailable', 'rate_limited'],
    ['key', statusOf(1004), 'rejected', 'auth'],
    ['policy', statusOf(1026), 'rejected', 'content_policy'],
    ['value', statusOf(2013), 'rejected', 'invalid_request'],
    ['no known kind', statusOf(1000), 'unknown', 'bad_reply'],
    ['upstream policy', { code: 50411, message: 'Pre Img Risk', data: null }, 'rejected', 'content_policy'],
    ['upstream rate', { code: 50429, message: 'QPS', data: null }, 'unavailable', 'rate_limited'],
    ['the message of a rate limit', { code: 'x', message: 'concurrency limit' }, 'unknown', 'rate_limited'],
    ['success false', { success: false, message: 'get user group failed' }, 'unknown', 'bad_reply'],
    ['no model', { error: { message: 'no model x', code: 'model_not_found' } }, 'rejected', 'not_found'],
    ['bare text', { error: 'invalid_request: duration' }, 'rejected', 'invalid_request'],
    ['a status as code', { code: 422, message: 'no such tier' }, 'rejected', 'invalid_request'],
    ['429 as code', { code: '429', message: 'slow down' }, 'unavailable', 'rate_limited'],
    ['503 as code', { code: 503, message: 'upstream is away' }, 'unknown', 'server_error'],
    ['401 in the error', { error: { type: 'x', message: 'no', http_code: '401' } }, 'rejected', 'auth'],
    ['raw upstream text', { code: 'x', message: '{"error":{"message":"eof"}}' }, 'unknown', 'bad_reply'],
  ])('is classified by its code or message: %s', (_, answer, kind, code) => {
    expect(read(answer)).toMatchObject({ kind, failure: { code } });
  });

  it('leaves the outcome unknown if the response contains a task in progress or was truncated', () => {
    expect(read({ object: 'video', status: 'queued', error: { message: 'rate limit' } }).kind).toBe(
      'unknown',
    );
    const refusal = JSON.stringify({ code: 429, message: 'slow down' });
    expect(read(refusal, 200, false).kind).toBe('unknown');
    expect(read(refusal.slice(0, -1)).kind).toBe('unknown');
  });
});

describe('a 2xx response without a handle to a Protocol C submission', () => {
  it.each([
    ['white space', ' \n'],
    ['a number', '17'],
    ['text', '"task_1"'],
    ['a list', '[]'],
    ['HTML', '<html><body>{"id":"task_1"}</body></html>'],
    ['half of JSON', '{"id":"task_'],
    ['values that are not ids', '{"id":null,"task_id":{},"data":[],"taskId":true,"output":{"task_id":1.5}}'],
    ['a good code and a request id', '{"code":0,"message":"SUCCEED","request_id":"r","data":{}}'],
    ['data that is a sentence', '{"code":0,"data":"your task was submitted"}'],
    ['inherited members', '{"__proto__":{"id":"task_1"}}'],
  ])('leaves the outcome unknown if its body is %s', (_, text) => {
    expect(read(text)).toMatchObject({ kind: 'unknown', failure: { code: 'bad_reply' } });
  });
});

describe('a truncated response to a Protocol C submission', () => {
  const cut = 'The response was truncated after the task id.';
  it.each([
    ['{"task_id":"task_1"', 'task_1'],
    ['{"id":"task_1","task_id":"ta', 'task_1'],
    ['{"code":0,"data":{"task_id":"t-1","task_st', 't-1'],
    ['{"code":200,"data":[{"task_id":"t-1"', 't-1'],
    ['{"task_id":12345678901234567890,"status":"q', '12345678901234567890'],
    ['{"task_id":"a\\"b"', 'a"b'],
  ])('yields the complete handle: %s', (text, handle) => {
    expect(read(text, 200, false)).toMatchObject({ kind: 'accepted', handle, warning: cut });
    expect(read(text)).toMatchObject({ kind: 'accepted', handle, warning: cut });
  });

  it.each([
    '{"task_id":"task_1',
    '{"task_id":"task_1\\"',
    '{"task_id":1234567',
    '{"id":1042,"created_at":17',
    '{"request_id":"r-1","output":{"task_i',
    '{"requestId":"r-1"',
    '{"data":"ok","mess',
    '{"code":0,"data":{"id":1042,"task_',
  ])('leaves the outcome unknown if the handle may be incomplete: %s', (text) => {
    expect(read(text, 200, false).kind).toBe('unknown');
  });
});
