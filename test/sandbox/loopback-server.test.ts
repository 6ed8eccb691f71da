import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseRange } from '../../src/sandbox/listener.ts';

test.each([
  ['', 'whole'],
  ['bytes=0-', { start: 0, end: 10 }],
  ['bytes=3-5', { start: 3, end: 6 }],
  ['bytes=3-3', { start: 3, end: 4 }],
  ['bytes=3-99', { start: 3, end: 10 }],
  ['bytes=-4', { start: 6, end: 10 }],
  ['bytes=-99', { start: 0, end: 10 }],
  ['bytes=-0', 'beyond'],
  ['bytes=10-', 'beyond'],
  ['bytes=5-3', 'whole'],
  ['bytes=0-1,3-4', 'whole'],
  ['bytes=-', 'whole'],
  ['items=0-1', 'whole'],
  ['bytes=a-b', 'whole'],
])('the Range header %j is read, for a ten-byte file, as %j', (header, span) => {
  expect(parseRange(header, 10)).toEqual(span);
});

test('a range that is read from a Range header always lies within the file', () => {
  fc.assert(
    fc.property(fc.nat(), fc.nat(), fc.integer({ min: 1, max: 2 ** 40 }), (first, last, total) => {
      for (const header of [`bytes=${first}-${last}`, `bytes=${first}-`, `bytes=-${last}`]) {
        const span = parseRange(header, total);
        if (typeof span === 'string') continue;
        expect(span.start).toBeGreaterThanOrEqual(0);
        expect(span.end).toBeGreaterThan(span.start);
        expect(span.end).toBeLessThanOrEqual(total);
      }
    }),
    { numRuns: 50 },
  );
});
