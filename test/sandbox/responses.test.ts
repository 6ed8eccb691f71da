import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { sandbox } from './harness.ts';

interface Event {
  type: string;
  sequence_number: number;
  delta?: string;
  response?: { status: string };
}

/** An independent reader of server-sent events. */
function eventsOf(body: string): Event[] {
  return body
    .split('\n\n')
    .filter((block) => block !== '')
    .map((block) => {
      const [name = '', data = ''] = block.split('\n');
      const event = JSON.parse(data.replace(/^data: /, '')) as Event;
      expect(name).toBe(`event: ${event.type}`);
      return event;
    });
}

describe('a sandbox response that is not streamed', () => {
  test('contains text and token counts, and is charged', async () => {
    const box = await sandbox();
    const answer = await box.call('POST', '/v1/responses', { body: { model: 'text-1', input: 'Say hello' } });
    expect(answer.body).toMatchObject({
      object: 'response',
      status: 'completed',
      model: 'text-1',
      error: null,
      output: [
        { type: 'message', content: [{ type: 'output_text', text: 'The sandbox was asked: Say hello' }] },
      ],
      usage: { input_tokens: 2, output_tokens: 6, total_tokens: 8 },
    });
    expect(readBill(box.stateDir)).toMatchObject([{ area: 'responses', model: 'text-1', amount: 0.008 }]);
  });

  test('is replaced by an HTTP error at no charge if the request is invalid', async () => {
    const box = await sandbox();
    const requests: [unknown, number][] = [
      [{ input: 'Hi' }, 400],
      [{ model: 'text-1' }, 400],
      [{ model: 'text-1', input: '' }, 400],
      [{ model: 'text-1', input: 'Hi', max_output_tokens: 0 }, 400],
      [{ model: 'video-a', input: 'Hi' }, 503],
      [{ model: 'text-1', input: 'Hi [no-balance]' }, 403],
      ['no JSON', 400],
    ];
    for (const [body, status] of requests) {
      const answer = await box.call('POST', '/v1/responses', { body });
      expect([answer.status, typeof answer.at('error.message')], String(body)).toEqual([status, 'string']);
    }
    expect(readBill(box.stateDir)).toEqual([]);
  });

  test.each([
    ['Hi [response-fails]', {}, { status: 'failed', error: { code: 'server_error' }, output: [] }],
    ['Hi [response-refuses]', {}, { status: 'completed', output: [{ content: [{ type: 'refusal' }] }] }],
    [
      'Hi',
      { max_output_tokens: 2 },
      {
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        output: [{ content: [{ text: 'The sandbox' }] }],
      },
    ],
  ])('has the documented form for the input %s and %j', async (input, more, expected) => {
    const box = await sandbox();
    expect(
      (await box.call('POST', '/v1/responses', { body: { model: 'text-1', input, ...more } })).body,
    ).toMatchObject(expected);
  });

  test('answers an input of messages and their parts', async () => {
    const box = await sandbox();
    const input = [
      { role: 'system', content: 'Be short.' },
      { role: 'user', content: [{ type: 'input_text', text: 'Say hello' }] },
    ];
    const answer = await box.call('POST', '/v1/responses', { body: { model: 'text-1', input } });
    expect(JSON.stringify(answer.body)).toContain('Be short.\\nSay hello');
  });

  test('has the status 404 if the base path is wrong', async () => {
    const box = await sandbox();
    expect((await box.call('POST', '/responses', { body: {} })).status).toBe(404);
  });
});

describe('a streamed sandbox response', () => {
  const body = { model: 'text-1', input: 'Say hello', stream: true };

  test('consists of numbered events with the same content, and ends with the response', async () => {
    const box = await sandbox();
    const answer = await box.call('POST', '/v1/responses', { body });
    expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
    const events = eventsOf(answer.bytes.toString());
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual([...events.keys()]);
    expect(events.map(({ delta = '' }) => delta).join('')).toBe('The sandbox was asked: Say hello');
    expect(events[0]).toMatchObject({ type: 'response.created', response: { status: 'in_progress' } });
    expect(events.at(-1)).toMatchObject({ type: 'response.completed', response: { status: 'completed' } });
  });

  test.each([
    ['Hi [response-fails]', 'response.failed'],
    ['Hi [response-refuses]', 'response.completed'],
  ])('ends, for the input %j, with %s', async (input, last) => {
    const box = await sandbox();
    const answer = await box.call('POST', '/v1/responses', { body: { ...body, input } });
    expect(eventsOf(answer.bytes.toString()).at(-1)?.type).toBe(last);
  });

  test('has no last event if the fault is responses-cut, regardless of the percentage', async () => {
    const box = await sandbox({
      faults: ['responses-cutx1@0%', 'responses-cutx1@50%', 'responses-cutx1@100%'],
    });
    const hasEnd: boolean[] = [];
    for (let count = 0; count < 4; count += 1) {
      const events = eventsOf((await box.call('POST', '/v1/responses', { body })).bytes.toString());
      hasEnd.push(events.some(({ type }) => type === 'response.completed'));
    }
    expect(hasEnd).toEqual([false, false, false, true]);
  });

  test('arrives in pieces, and the first piece arrives before the last is created', async () => {
    const box = await sandbox();
    const headers = { Authorization: `Bearer ${box.key}`, 'Content-Type': 'application/json' };
    const init = { method: 'POST', headers, body: JSON.stringify(body) };
    const response = await fetch(`${box.url}/v1/responses`, init);
    const pieces: string[] = [];
    for await (const piece of response.body ?? []) pieces.push(Buffer.from(piece as Uint8Array).toString());
    expect(pieces.length).toBeGreaterThan(3);
    expect(pieces[0]).toContain('response.created');
    expect(pieces[0]).not.toContain('response.completed');
  });

  test('is refused at no charge if the fault is responses-429', async () => {
    const box = await sandbox({ faults: ['responses-429x1'] });
    expect((await box.call('POST', '/v1/responses', { body })).status).toBe(429);
    expect(readBill(box.stateDir)).toEqual([]);
  });
});
