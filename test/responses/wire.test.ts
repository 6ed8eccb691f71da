import { describe, expect, test } from 'vitest';
import { readResponse, responsesExchange } from '../../src/responses/wire.ts';

const message = (...content: object[]): object => ({ type: 'message', content });
const text = (words: string): object => ({ type: 'output_text', text: words, annotations: [] });

test('a Responses request contains the body and the headers', () => {
  const body = { model: 'm', input: 'Hi' };
  expect(responsesExchange(body)).toEqual({
    method: 'POST',
    path: '/v1/responses',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  expect(responsesExchange({ ...body, stream: true }).headers['accept']).toMatch(/^text\/event-stream/);
});

describe('a response document', () => {
  test('returns the text of every message, in order', () => {
    const output = [{ type: 'reasoning' }, message(text('Hello'), text(', ')), message(text('world'))];
    expect(readResponse({ status: 'completed', output } as never)).toMatchObject({
      kind: 'completed',
      text: 'Hello, world',
    });
  });

  test.each([
    [[{ type: 'message', content: 'Hi' }], {}],
    ['Hi', {}],
    [null, { output_text: 'Hi' }],
  ])('is read if it contains text instead of a list, or at the top level: %j %j', (output, more) => {
    expect(readResponse({ status: 'completed', output, ...more })).toMatchObject({ text: 'Hi' });
  });

  test('is accepted without text, for example if it is a tool call', () => {
    const response = { status: 'completed', output: [{ type: 'function_call' }] };
    expect(readResponse(response as never)).toMatchObject({ kind: 'completed', text: '', response });
  });

  test('is accepted without a status if it contains text', () => {
    expect(readResponse({ output: [message(text('Hi'))] } as never)).toMatchObject({
      kind: 'completed',
      text: 'Hi',
    });
    expect(readResponse({ output: [] })).toMatchObject({ kind: 'cut' });
  });

  test.each([
    [{}, 'cut'],
    [{ status: 'done', output: [message(text('Hi'))] }, 'cut'],
    [{ status: 'queued' }, 'pending'],
    [{ status: 'in_progress', output: [message(text('Hi'))] }, 'pending'],
    [{ status: 'failed', error: null }, 'failed'],
    [{ status: 'cancelled' }, 'failed'],
    [{ status: 'completed', error: { message: 'no' }, output: [message(text('Hi'))] }, 'failed'],
    [{ error: { message: 'no' } }, 'failed'],
    [{ error: 'no' }, 'failed'],
    [{ status: 'completed', error: {}, output: [message(text('Hi'))] }, 'completed'],
    [{ status: 'completed', error: [], output: [message(text('Hi'))] }, 'completed'],
    [{ status: 'completed', error: { code: '', message: null }, output: [] }, 'completed'],
    [{ status: 'completed', output: [message({ type: 'refusal', refusal: 'I cannot.' })] }, 'failed'],
    [{ status: 'incomplete', incomplete_details: null, output: [] }, 'incomplete'],
    [{ status: 'completed', output: 'Hi' }, 'completed'],
    [{ status: 'completed', output: [null, 7, { type: 'message', content: 'x' }] }, 'completed'],
  ])('is read from %j as a response of the kind %s', (json, kind) => {
    expect(readResponse(json as never).kind).toBe(kind);
  });
});
