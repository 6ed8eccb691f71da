import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ResponseStream } from '../../src/responses/respond.ts';
import type { ResponseEnd } from '../../src/responses/wire.ts';

const response = (more: object): object => ({ id: 'resp_1', object: 'response', ...more });
const outputOf = (text: string): object[] => [{ type: 'message', content: [{ type: 'output_text', text }] }];
const place = { item_id: 'm', output_index: 0, content_index: 0 };
const delta = (text: string): object => ({ type: 'response.output_text.delta', ...place, delta: text });
const completed = (text: string): object => ({
  type: 'response.completed',
  response: response({ status: 'completed', output: outputOf(text) }),
});

/** Formats events as server-sent events, each with a name. */
function sse(...events: object[]): string {
  return events
    .map((event) => `event: ${(event as { type: string }).type}\ndata: ${JSON.stringify(event)}\n\n`)
    .join('');
}

function read(stream: string, cuts: readonly number[] = []): { text: string; end: ResponseEnd } {
  let text = '';
  const reader = new ResponseStream((piece) => (text += piece));
  const bytes = Buffer.from(stream);
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  for (const [index, end] of places.slice(1).entries()) reader.push(bytes.subarray(places[index], end));
  return { end: reader.finish(), text };
}

describe("a streamed response's text", () => {
  test('is returned in deltas, and confirmed at the end', () => {
    const stream = sse({ type: 'response.created' }, delta('Hel'), delta('lo'), completed('Hello'));
    expect(read(stream)).toMatchObject({ text: 'Hello', end: { kind: 'completed', text: 'Hello' } });
  });

  test('is read correctly with any chunks, line ends and comments', () => {
    const plain = sse(delta('Grüße 😀\n'), delta('你好'), completed('Grüße 😀\n你好'));
    const forms = [plain, plain.replaceAll('\n\n', '\r\n\r\n'), `\ufeff: hello\n\n${plain}`, plain.trimEnd()];
    fc.assert(
      fc.property(fc.constantFrom(...forms), fc.array(fc.nat()), (form, cuts) => {
        expect(read(form, cuts)).toMatchObject({ text: 'Grüße 😀\n你好', end: { kind: 'completed' } });
      }),
    );
  });

  test('is read even if events have no names or several data lines', () => {
    const data = JSON.stringify(completed('Hi'), undefined, 1).replaceAll('\n', '\ndata: ');
    expect(read(`data: ${JSON.stringify(delta('Hi'))}\n\ndata: ${data}\n\ndata: [DONE]\n\n`)).toMatchObject({
      text: 'Hi',
      end: { kind: 'completed' },
    });
  });

  test('is read even if the data has no type, if the event has a name', () => {
    const stream = `event: response.output_text.delta\ndata: {"delta":"Hi"}\n\n${sse(completed('Hi'))}`;
    expect(read(stream).text).toBe('Hi');
  });

  test('is read from a "done" event or from the last event if there were no deltas', () => {
    const done = { type: 'response.output_text.done', ...place, text: 'Hello' };
    expect(read(sse(done, completed('Hello'))).text).toBe('Hello');
    expect(read(sse(delta('Hel'), delta('lo'), done, completed('Hello'))).text).toBe('Hello');
    expect(read(sse(completed('Hello')))).toMatchObject({ text: 'Hello', end: { text: 'Hello' } });
  });

  test("is complete and printed once even if a relay changes or omits a part's position", () => {
    const done = { type: 'response.output_text.done', text: 'Hello' };
    expect(read(sse(delta('Hel'), delta('lo'), done, completed('Hello'))).text).toBe('Hello');
    const moved = { ...delta('lo'), item_id: 'm2' };
    expect(read(sse(delta('Hel'), moved, { ...done, item_id: 'm3' }, completed('Hello'))).text).toBe('Hello');
    const [first, second] = [delta('One'), { ...delta('Two'), output_index: 1 }];
    expect(read(sse(first, { ...done, text: 'One' }, second, completed('OneTwo'))).text).toBe('OneTwo');
  });

  test('is completed from the event that ends a part or the response if deltas are missing', () => {
    const lost = 'data: {"type":"response.output_text.delta","delta":"lo\n\n';
    const done = { type: 'response.output_text.done', ...place, text: 'Hello' };
    expect(read(sse(delta('Hel')) + lost + sse(done, completed('Hello')))).toMatchObject({
      text: 'Hello',
      end: { kind: 'completed' },
    });
    expect(read(sse(delta('Hel')) + lost + sse(completed('Hello'))).text).toBe('Hello');
  });

  test('is printed again at the end, and is not confirmed, if a delta in the middle is lost', () => {
    expect(read(sse(delta('He'), delta('o'), completed('Hello')))).toMatchObject({
      text: 'Heo\nHello',
      end: { kind: 'cut', response: { status: 'completed' } },
    });
  });

  test('is confirmed even if it differs from the final text in white space or in the order of interleaved parts', () => {
    const other = (text: string): object => ({ ...delta(text), output_index: 1 });
    for (const stream of [
      sse(delta('Hello '), completed('Hello')),
      sse(delta('On'), other('Tw'), delta('e'), other('o'), completed('OneTwo')),
    ])
      expect(read(stream).end).toMatchObject({ kind: 'completed' });
  });

  test('never contains half a character, even if a delta ends within one', () => {
    const pieces: string[] = [];
    const reader = new ResponseStream((piece) => pieces.push(piece));
    reader.push(Buffer.from(sse(delta('a\ud83d'), delta('\ude00b'), completed('a😀b'))));
    expect([pieces, reader.finish().kind]).toEqual([['a', '😀b'], 'completed']);
  });

  test('does not include other kinds of text, such as reasoning', () => {
    const reasoning = { type: 'response.reasoning_summary_text.delta', delta: 'hmm' };
    expect(read(sse(reasoning, delta('Hi'), completed('Hi'))).text).toBe('Hi');
  });
});

describe('a streamed response', () => {
  test.each([
    ['no terminal event', sse(delta('Hel')), /without its last event/],
    ['an empty stream', '', /without its last event/],
    [
      'a truncated last event',
      sse(delta('Hi')) + sse(completed('Hi')).slice(0, -10),
      /without its last event/,
    ],
    ['[DONE] alone', sse(delta('Hi')) + 'data: [DONE]\n\n', /without its last event/],
  ])('is reported as truncated if its last event is missing (%s)', (_, stream, why) => {
    expect(read(stream).end).toMatchObject({ kind: 'cut', why: expect.stringMatching(why) as string });
  });

  test.each([
    [
      'response.failed',
      {
        type: 'response.failed',
        response: response({ error: { code: 'server_error', message: 'Broken.' } }),
      },
    ],
    [
      'an error at the top of the event',
      { type: 'response.failed', error: { code: 'x', message: 'Broken.' } },
    ],
    ['an event of the type error', { type: 'error', code: 'x', message: 'Broken.', param: null }],
    ['a bare error', { error: { message: 'Broken.' } }],
    ['a bare error as text', { error: 'Broken.' }],
  ])('is reported as failed if it contains %s', (_, event) => {
    const stream = sse(delta('Hi')) + `data: ${JSON.stringify(event)}\n\n` + sse(completed('Hi'));
    expect(read(stream)).toMatchObject({
      text: 'Hi',
      end: { kind: 'failed', failure: { message: 'Broken.' } },
    });
  });

  test('is classified by the error message or event type if it failed', () => {
    const event = { type: 'error', code: 'insufficient_quota', message: 'You exceeded your current quota' };
    expect(read(sse(event)).end).toMatchObject({
      failure: { code: 'balance', nativeCode: 'insufficient_quota' },
    });
    expect(read(sse({ type: 'response.cancelled' })).end).toMatchObject({ failure: { code: 'task_failed' } });
    const plain = { kind: 'failed', failure: { message: 'upstream gone' } };
    expect(read('event: error\ndata: upstream gone\n\n').end).toMatchObject(plain);
  });

  test('is reported as incomplete with the reason, and its text is kept, if the gateway reports that it is incomplete', () => {
    const event = {
      type: 'response.incomplete',
      response: response({
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        output: outputOf('Hel'),
      }),
    };
    expect(read(sse(delta('Hel'), event))).toMatchObject({
      text: 'Hel',
      end: { kind: 'incomplete', reason: 'max_output_tokens', text: 'Hel' },
    });
  });

  test('is reported as failed if it is a refusal or was ended by the content filter', () => {
    const filtered = {
      type: 'response.incomplete',
      response: response({ incomplete_details: { reason: 'content_filter' } }),
    };
    expect(read(sse(filtered)).end).toMatchObject({ failure: { code: 'content_policy' } });
    const refusal = { type: 'response.refusal.delta', delta: 'I cannot.' };
    const end = { type: 'response.completed', response: response({ status: 'completed', output: [] }) };
    expect(read(sse(refusal, end)).end).toMatchObject({
      kind: 'failed',
      failure: { code: 'content_policy', message: 'The model refused: I cannot.' },
    });
  });

  test('ends at its last event, and later events are ignored', () => {
    expect(
      read(sse(delta('Hi'), completed('Hi'), delta('!'), { type: 'error', message: 'x' })),
    ).toMatchObject({
      text: 'Hi',
      end: { kind: 'completed' },
    });
  });

  test('is abandoned if its text is endless', () => {
    const reader = new ResponseStream(() => undefined);
    const event = Buffer.from(sse(delta('x'.repeat(1024 * 1024))));
    let eventCount = 0;
    for (; reader.end === undefined && eventCount < 64; eventCount += 1) reader.push(event);
    expect(eventCount).toBeLessThan(20);
    expect(reader.finish()).toMatchObject({ kind: 'cut', why: 'the response is too large' });
  });

  test('is abandoned if an event is endless', () => {
    const reader = new ResponseStream(() => undefined);
    const chunk = Buffer.alloc(1024 * 1024, 'x');
    reader.push(Buffer.from('data: '));
    let eventCount = 0;
    for (; reader.end === undefined && eventCount < 64; eventCount += 1) reader.push(chunk);
    expect(eventCount).toBeLessThan(20);
    expect(reader.finish()).toMatchObject({ kind: 'cut' });
  });
});
