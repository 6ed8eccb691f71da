import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { listOf, printable, printableLine } from '../src/printable.ts';
import { anyCharacter } from './support/any-character.ts';

const anyText = fc.oneof(
  fc.string({ unit: anyCharacter }),
  // Random code units include lone surrogates.
  fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units)),
  fc
    .array(
      fc.constantFrom('\x1b', '[31m', ']8;;http://x\x07', '\r', '\n', '\u202e', '\u2066', '\x9b', 'a', '😀'),
    )
    .map((parts) => parts.join('')),
);

function dangerous(text: string): number[] {
  return Array.from(text, (character) => character.codePointAt(0) ?? 0).filter(
    (code) =>
      (code < 0x20 && code !== 0x0a && code !== 0x09) ||
      (code >= 0x7f && code <= 0x9f) ||
      (code >= 0x202a && code <= 0x202e) ||
      (code >= 0x2066 && code <= 0x2069) ||
      [0x200b, 0x200e, 0x200f, 0x61c, 0x2028, 0x2029, 0xfeff].includes(code) ||
      (code >= 0xd800 && code <= 0xdfff),
  );
}

describe('printable', () => {
  it('limits the length even if the caller sets no limit', () => {
    expect([printable('x'.repeat(10_000)).length, printableLine('x'.repeat(10_000)).length]).toEqual([
      2000, 2000,
    ]);
  });

  it.each([
    ['\x1b[2J', '\\u{1b}[2J'],
    ['\x1b]52;c;cm0gLXJm\x07', '\\u{1b}]52;c;cm0gLXJm\\u{7}'],
    ['\u009b31m', '\\u{9b}31m'],
    ['good\rbad', 'good\\u{d}bad'],
    ['one\r\ntwo\tthree', 'one\ntwo\tthree'],
    ['a\u202etxt.exe\u2069', 'a\\u{202e}txt.exe\\u{2069}'],
    ['a\0b\u200b', 'a\\u{0}b\\u{200b}'],
    ['\ud83d', '\\u{d83d}'],
    ['👨‍👩‍👧 模型 مدل‌ها', '👨‍👩‍👧 模型 مدل‌ها'],
  ])('formats %j as %j', (text, shown) => {
    expect(printable(text)).toBe(shown);
  });

  it('removes every control character and respects the limit', () => {
    fc.assert(
      fc.property(anyText, fc.integer({ min: 0, max: 60 }), (text, limit) => {
        const shown = printable(text, limit);
        expect(dangerous(shown)).toEqual([]);
        expect(shown.length).toBeLessThanOrEqual(limit);
      }),
      { numRuns: 200 },
    );
  });

  it('does not change plain text, nor its own output', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme-ascii', maxLength: 200 }), (text) => {
        expect(printable(text)).toBe(text);
      }),
    );
    fc.assert(
      fc.property(anyText, (text) => {
        expect(printable(printable(text))).toBe(printable(text));
      }),
    );
  });

  it('marks truncated text and never splits a character', () => {
    expect(printable('abcdef', 4)).toBe('abc…');
    expect(printable('ab😀cdef', 4)).toBe('ab…');
    expect(printable('ab\x1bcdef', 6)).toBe('ab…');
    expect(printable('abc', 3)).toBe('abc');
  });

  it('takes time in proportion to the limit rather than the length', () => {
    const shown = printable('\x1b'.repeat(20_000_000), 100);
    expect(shown.length).toBeLessThanOrEqual(100);
    expect(shown.endsWith('…')).toBe(true);
  });
});

describe('printableLine', () => {
  it('returns one line', () => {
    expect(printableLine('  one\r\n\ttwo\u2028three\u0085four\n')).toBe('one two three four');
  });

  it('removes every control character and line break, and respects the limit', () => {
    fc.assert(
      fc.property(anyText, fc.integer({ min: 0, max: 60 }), (text, limit) => {
        const shown = printableLine(text, limit);
        expect(dangerous(shown)).toEqual([]);
        expect(shown).not.toMatch(/[\n\t]/);
        expect(shown.length).toBeLessThanOrEqual(limit);
      }),
      { numRuns: 200 },
    );
  });
});

it.each([
  [[], ''],
  [['a', 'b'], 'a, b'],
  [['a', 'b', 'c'], 'a, b and 1 more'],
])('a list of at most two texts shows %j as "%s"', (texts, list) => {
  expect(listOf(texts, 2)).toBe(list);
});
