import fc from 'fast-check';
import { expect, test } from 'vitest';
import { boundedLines } from '../../src/mcp/serve.ts';
import { readAll } from '../support/read-all.ts';

/** What comes out if a text is written in pieces of a size, and the ends of the lines that were dropped. */
function passed(text: string, size: number, max: number): { out: string; dropped: string[] } {
  const dropped: string[] = [];
  const lines = boundedLines((response) => dropped.push(response), max);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) lines.write(bytes.subarray(at, at + size));
  lines.end();
  return { out: readAll(lines).toString(), dropped };
}

test('passes whole lines on, drops longer ones and what has no end, however the bytes are cut', () => {
  const line = fc.string({ maxLength: 30 }).map((text) => text.replaceAll('\n', ''));
  fc.assert(
    fc.property(fc.array(line), line, fc.integer({ min: 1, max: 40 }), (lines, rest, size) => {
      const fits = (each: string): boolean => Buffer.byteLength(each) <= 20;
      const { out, dropped } = passed(lines.map((each) => `${each}\n`).join('') + rest, size, 20);
      expect(out).toBe(
        lines
          .filter(fits)
          .map((each) => `${each}\n`)
          .join(''),
      );
      expect(dropped).toHaveLength(lines.filter((each) => !fits(each)).length);
    }),
  );
});

test.each([
  ['7', (id: string) => `{"jsonrpc":"2.0","id":${id},"method":"${'x'.repeat(5000)}"}\n`],
  ['"call-1"', (id: string) => `{"jsonrpc":"2.0","method":"${'x'.repeat(5000)}","id":${id}}\n`],
  ['null', () => `${'x'.repeat(5000)}\n`],
])('answers a dropped line under its id, %s', (id, line) => {
  const { out, dropped } = passed(line(id), 64, 100);
  expect(out).toBe('');
  expect(dropped).toHaveLength(1);
  expect(JSON.parse(dropped[0] ?? '')).toMatchObject({
    id: JSON.parse(id) as unknown,
    error: { code: -32600 },
  });
});
