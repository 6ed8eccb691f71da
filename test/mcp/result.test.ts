import { expect, test } from 'vitest';
import { toolResult } from '../../src/mcp/result.ts';

const failed = { ok: false, charged: 'maybe', retry: 'resume', next: null } as const;
const redact = (text: string): string => text.replaceAll('sk-secret', '[redacted]');

const texts = {
  'a text of 5,000 characters': 'a boat '.repeat(714) + 'end',
  'a URL with a query': 'https://example.com/a.png?size=2',
  'right-to-left marks': '\u{200f}שלום\u{200f}',
  'CR LF': 'one\r\ntwo',
};

test.each(Object.entries(texts))('the next call of an answer keeps %s', (_, text) => {
  const next = { tool: 'speak', arguments: { key: 'one', text, image: [text] } };
  const command = ['mgw', 'tts', '--key=one', '--', text];
  const { structuredContent, content } = toolResult({ ...failed, next, command, text }, redact);
  expect(structuredContent).toEqual({ ...failed, next, command, text: expect.any(String) as string });
  expect(structuredContent).not.toHaveProperty('text', text);
  const [first] = content;
  expect(first?.type === 'text' && JSON.parse(first.text)).toEqual(structuredContent);
});

test('an answer contains no signature, even if only a part of the URL is quoted', () => {
  const text = 'failed with url: /in/a.png?X-Amz-Signature=28912c';
  const { structuredContent } = toolResult({ ...failed, text }, redact);
  expect(structuredContent).toHaveProperty('text', 'failed with url: /in/a.png?X-Amz-Signature=[redacted]');
});

test('the next call of an answer contains no key', () => {
  const next = { tool: 'speak', arguments: { text: 'read sk-secret' } };
  const { structuredContent } = toolResult({ ...failed, next, command: ['mgw', 'sk-secret'] }, redact);
  expect(structuredContent).toMatchObject({
    next: { arguments: { text: 'read [redacted]' } },
    command: ['mgw', '[redacted]'],
  });
});
