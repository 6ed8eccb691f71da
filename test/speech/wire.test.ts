import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Reply } from '../../src/exchange.ts';
import { isBase64 } from '../../src/media/spooled-string.ts';
import { readFrame, readSpeechHead, speechExchange } from '../../src/speech/wire.ts';

const frame = (value: unknown): Buffer =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
const reply = (status: number, body: unknown, headers: Record<string, string> = {}): Reply => ({
  status,
  headers,
  text: typeof body === 'string' ? body : JSON.stringify(body),
  complete: true,
});

test('the speech request has the form that sections 4.4 and 5 of the specification describe', () => {
  const body = { req_params: { text: 'Grüße 你好', audio_params: { format: 'mp3', sample_rate: 24000 } } };
  const exchange = speechExchange(body);
  expect(exchange).toMatchObject({ method: 'POST', path: '/api/v3/tts/unidirectional' });
  expect(exchange.headers).toEqual({
    'content-type': 'application/json; charset=utf-8',
    'x-api-resource-id': 'speech-tts-2.0',
    'x-control-require-usage-tokens-return': '*',
  });
  expect(JSON.parse(exchange.body ?? '')).toEqual(body);
});

describe('a speech frame', () => {
  test.each([
    ['audio', { code: 0, message: '', data: 'SGVsbG8=' }, { kind: 'audio', bytes: Buffer.from('Hello') }],
    ['no data', { code: 0, message: '' }, { kind: 'text' }],
    ['empty data', { code: 0, data: '' }, { kind: 'text' }],
    ['a sentence', { code: 0, data: null, sentence: { text: '其他人。' } }, { kind: 'text' }],
    [
      'an end code with usage',
      { code: 20000000, message: 'ok', data: null, usage: { text_words: 10 } },
      { kind: 'end', usage: { text_words: 10 } },
    ],
    ['an end code without usage', { code: 20000000, message: 'OK' }, { kind: 'end', usage: undefined }],
    ['an end code with audio', { code: 20000000, data: 'SGk=' }, { kind: 'end', bytes: Buffer.from('Hi') }],
    ['invalid usage', { code: 20000000, usage: [7] }, { kind: 'end', usage: undefined }],
  ])('is read if it contains %s', (_, value, expected) => {
    expect(readFrame(frame(value))).toMatchObject(expected);
  });

  test.each([
    ['invalid JSON', '{"code":0,}', /not JSON/],
    ['a number as data', { code: 0, data: 5 }, /data of a frame is a number/],
    ['an object as data', { code: 20000000, data: {} }, /data of a frame is a object/],
    ['Base64 without padding', { code: 0, data: 'SGVsbG8' }, /not strict Base64/],
    ['URL-safe Base64', { code: 0, data: '-_-_' }, /not strict Base64/],
    ['no code', { message: 'ok', data: 'SGk=' }, /code of a frame is missing \(ok\)/],
    ['a string as the code', { code: '0', data: 'SGk=' }, /code of a frame is a string/],
    ['a code that is not an integer', { code: 0.5 }, /not an integer/],
    ['an inherited code', '{"__proto__":{"code":0},"data":"SGk="}', /code of a frame is missing/],
  ])('is invalid if it contains %s', (_, value, why) => {
    const read = readFrame(frame(value));
    expect(read).toMatchObject({ kind: 'fault', why: expect.stringMatching(why) as string });
  });

  test.each([
    ['a nested data member', { code: 0, sentence: { data: 'SGk=' }, data: 'SGVsbG8=' }, 'Hello'],
    ['only a nested data member', { code: 0, sentence: { data: 'SGk=' } }, undefined],
    ['two data members, of which the last is used', '{"code":0,"data":"SGk=","data":"SGVsbG8="}', 'Hello'],
    ['an escaped value', '{"code":0,"data":"SGVsbG8\\u003d"}', 'Hello'],
    ['an escaped name', '{"code":0,"d\\u0061ta":"SGVsbG8="}', 'Hello'],
    ['white space', '{ "data" : "SGVsbG8=" , "code" : 0 }', 'Hello'],
    ['text that looks like a data member', { code: 0, message: '"data":"SGk="', data: 'SGVsbG8=' }, 'Hello'],
  ])('provides audio only from its top-level data member (checked: %s)', (_, value, audio) => {
    const read = readFrame(frame(value));
    expect(read.kind === 'audio' ? read.bytes.toString() : undefined).toBe(audio);
  });

  test('is accepted only if its audio is strict Base64', () => {
    const unit = fc.constantFrom('A', 'b', '7', '+', '/', '=', '-', '_', '\n', ' ', 'é', '\u0141', '😀');
    fc.assert(
      fc.property(fc.string({ unit, minLength: 1 }), (data) => {
        const read = readFrame(frame({ code: 0, data }));
        expect(read.kind).toBe(isBase64(data) ? 'audio' : 'fault');
        if (read.kind === 'audio') expect(read.bytes).toEqual(Buffer.from(data, 'base64'));
      }),
      { numRuns: 200 },
    );
  });

  test.each([
    [{ code: 45000001, message: 'No readable text!' }, 'invalid_request', '45000001'],
    [
      { header: { code: 45000030, message: '[resource_id=x] requested resource not granted' } },
      'auth',
      '45000030',
    ],
    [
      { error: { message: 'Insufficient balance', code: 'insufficient_user_quota' } },
      'balance',
      'insufficient_user_quota',
    ],
    [{ error: 'unsupported_endpoint' }, 'not_found', undefined],
  ])('is an error of the gateway if it contains %j', (value, code, nativeCode) => {
    expect(readFrame(frame(value))).toMatchObject({ kind: 'error', failure: { code, nativeCode } });
  });
});

describe("a speech response's head", () => {
  test('proves the charge and provides the handle if its status is 200', () => {
    expect(readSpeechHead(reply(200, '', { 'x-tt-logid': 'log1', 'x-request-id': 'r' }))).toEqual({
      kind: 'accepted',
      handle: 'log1',
    });
    expect(readSpeechHead(reply(200, '', { 'x-request-id': 'r' }))).toMatchObject({ handle: 'r' });
    expect(readSpeechHead(reply(200, ''))).toMatchObject({
      kind: 'accepted',
      handle: expect.stringMatching(/^speech-[0-9a-f-]{36}$/) as string,
    });
  });

  test.each([
    [400, { code: 45002001, message: 'No readable text!' }, 'rejected', 'invalid_request'],
    [401, { error: { message: 'Invalid token', code: '' } }, 'rejected', 'auth'],
    [403, { error: { message: 'Insufficient balance' } }, 'rejected', 'balance'],
    [403, { code: 45000000, message: 'speaker permission denied' }, 'rejected', 'auth'],
    [404, { error: { message: 'no such path', code: 'unsupported_endpoint' } }, 'rejected', 'not_found'],
    [429, '', 'unavailable', 'rate_limited'],
    [503, { error: { message: 'overloaded' } }, 'unavailable', 'server_error'],
    [500, { error: { message: 'oops' } }, 'unknown', 'server_error'],
    [502, '<html>', 'unknown', 'server_error'],
    [408, '', 'unknown', 'server_error'],
    [302, '', 'unknown', 'bad_reply'],
    [307, '', 'rejected', 'invalid_request'],
  ])('is read from HTTP %i and the body %j as %s', (status, body, kind, code) => {
    expect(readSpeechHead(reply(status, body))).toMatchObject({ kind, failure: { code } });
  });

  test('proves nothing if it is a truncated refusal', () => {
    expect(readSpeechHead({ ...reply(400, '{"code":'), complete: false })).toMatchObject({ kind: 'unknown' });
  });

  test('provides the error if the refusal has an empty body', () => {
    const message = Buffer.from('empty speaker 说话人').toString('latin1');
    const headers = { 'x-api-status-code': '45002000', 'x-api-message': message };
    const verdict = readSpeechHead(reply(400, '', headers));
    expect(verdict).toMatchObject({
      failure: {
        code: 'invalid_request',
        nativeCode: '45002000',
        message: expect.stringMatching(/说话人.*--speaker/) as string,
      },
    });
  });
});
