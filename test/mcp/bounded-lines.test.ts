import fc from 'fast-check';
import { expect, test } from 'vitest';
import { boundedLines } from '../../src/mcp/serve.ts';
import { readAll } from '../support/read-all.ts';

/** Returns the output for text written in pieces of `size` bytes, and the responses to the dropped lines. */
function passed(text: string, size: number, max: number): { out: string; dropped: string[] } {
  const dropped: string[] = [];
  const lines = boundedLines(
    (response) => dropped.push(response),
    () => undefined,
    max,
  );
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) lines.write(bytes.subarray(at, at + size));
  lines.end();
  return { out: readAll(lines).toString(), dropped };
}

test('the MCP line reader returns complete messages and drops messages that are too long, regardless of how the input is split', () => {
  const message = fc.string({ maxLength: 30 }).map((method) => JSON.stringify({ jsonrpc: '2.0', method }));
  fc.assert(
    fc.property(fc.array(message), message, fc.integer({ min: 1, max: 80 }), (messages, rest, size) => {
      const fits = (each: string): boolean => Buffer.byteLength(each) <= 50;
      const { out, dropped } = passed(messages.map((each) => `${each}\n`).join('') + rest, size, 50);
      expect(out).toBe(
        messages
          .filter(fits)
          .map((each) => `${each}\n`)
          .join(''),
      );
      expect(dropped).toHaveLength(messages.filter((each) => !fits(each)).length);
    }),
  );
});

test.each([
  ['hello', -32700, null],
  ['\0\0', -32700, null],
  ['null', -32600, null],
  ['{}', -32600, null],
  ['{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7],
  ['{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, null],
  // JavaScript would round this id.
  ['{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}', -32600, null],
  ['[{"jsonrpc":"2.0","id":7,"method":"ping"}]', -32600, null],
])('the MCP line reader refuses the invalid message %j with the error %i', (line, code, id) => {
  const { out, dropped } = passed(`${line}\n`, 64, 1000);
  expect(out).toBe('');
  expect(dropped.map((each) => JSON.parse(each) as unknown)).toMatchObject([{ id, error: { code } }]);
});

test.each(['', '\r', '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}'])(
  'the MCP line reader does not respond to the line %j',
  (line) => {
    expect(passed(`${line}\n`, 64, 1000).dropped).toEqual([]);
  },
);

test.each([
  ['7', (id: string) => `{"jsonrpc":"2.0","id":${id},"method":"${'x'.repeat(5000)}"}\n`],
  ['"call-1"', (id: string) => `{"jsonrpc":"2.0","method":"${'x'.repeat(5000)}","id":${id}}\n`],
  ['null', () => `${'x'.repeat(5000)}\n`],
])("the MCP line reader responds to a line that is too long with the line's id, %s", (id, line) => {
  const { out, dropped } = passed(line(id), 64, 100);
  expect(out).toBe('');
  expect(dropped).toHaveLength(1);
  expect(JSON.parse(dropped[0] ?? '')).toMatchObject({
    id: JSON.parse(id) as unknown,
    error: { code: -32600 },
  });
});
