import { describe, expect, test } from 'vitest';
import type { Reply } from '../../src/exchange.ts';
import { speechFailure, speechHttpFailure } from '../../src/speech/wire.ts';

describe('the class of a speech failure', () => {
  test.each([
    ['No readable text!', '45002001', 'invalid_request'],
    ['No readable text!', '45000001', 'invalid_request'],
    ['[Invalid argument] EmptyRequest', '45000001', 'invalid_request'],
    ['TTSExceededTextLimit:exceed max limit', '40402003', 'invalid_request'],
    ['single request size too large', '45000000', 'invalid_request'],
    ['speaker permission denied: get resource id: access denied', '45000000', 'auth'],
    ['resource ID is mismatched with speaker related resource', '55000000', 'auth'],
    ['[Invalid argument] speaker not found', '45000001', 'invalid_request'],
    ['[resource_id=x] requested resource not granted', '45000030', 'auth'],
    ['quota exceeded for types: concurrency', '45000000', 'rate_limited'],
    ['quota exceeded for types: text_words_lifetime', '45000000', 'balance'],
    ['Insufficient balance', '1', 'balance'],
    ['余额不足', undefined, 'balance'],
    ['the text is sensitive', '45000000', 'content_policy'],
    ['payload unmarshal: no request text', '45000000', 'invalid_request'],
    ['', '45000292', 'rate_limited'],
    ['', '45002000', 'invalid_request'],
    ['', '45000010', 'auth'],
    ['', '55000000', 'server_error'],
    ['busy', '3005', 'rate_limited'],
    ['who knows', '7', 'server_error'],
  ])(
    'follows the message "%s", or the code %s if the message is unknown: %s',
    (message, nativeCode, code) => {
      expect(speechFailure(message, nativeCode)).toMatchObject({ code, nativeCode });
    },
  );
});

test('a speech error about the voice explains how to set a voice', () => {
  const { message } = speechFailure('speaker permission denied', '45000000');
  expect(message).toBe(
    'speaker permission denied. Choose a voice that is authorized for this key and model: --speaker, tts.speaker in the config, or MGW_TTS_SPEAKER.',
  );
});

test("a speech error about unspeakable text contains the gateway's message", () => {
  expect(speechFailure('No readable text!', '45002001').message).toMatch(
    /^No readable text! The text must contain/,
  );
});

test.each([
  ['speaker zh_1 is not available', '--speaker'],
  ['unauthorized voice', '--speaker'],
  ['音色未授权', '--speaker'],
  ['insufficient permission for speaker zh_1', '--speaker'],
  ['invalid api key', 'mgw auth login'],
  ['[resource_id=x] requested resource not granted', "key's groups"],
  ['Insufficient balance', 'Top up'],
])('the error for the speech failure "%s" contains a suggestion', (message, advice) => {
  expect(speechFailure(message, '45000000').message).toContain(advice);
});

describe('a refusal of speech by its HTTP status', () => {
  const reply = (status: number, text: string): Reply => ({ status, headers: {}, text, complete: true });

  test('is not a balance error if it is a web page', () => {
    expect(speechHttpFailure(reply(400, '<html>load balancer</html>')).code).toBe('invalid_request');
  });

  test.each([
    [401, '', 'auth', 'mgw auth login'],
    [402, '', 'balance', 'Top up'],
  ])(
    'leads to an error with a suggestion if it is HTTP %i without a message',
    (status, text, code, advice) => {
      expect(speechHttpFailure(reply(status, text))).toMatchObject({
        code,
        message: expect.stringContaining(advice) as string,
      });
    },
  );
});

test('the error for a speech failure without a message contains the code', () => {
  expect(speechFailure(' ', '99')).toMatchObject({ message: 'The gateway returned error 99' });
});
