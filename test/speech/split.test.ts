import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cutText, speakable, splitText } from '../../src/speech/split.ts';

const length = (text: string): number => Array.from(text).length;

describe('the text splitter', () => {
  test.each([
    ['returns text that fits as one piece', 'Hello there. Bye.', 100, ['Hello there. Bye.']],
    [
      'prefers paragraphs to lines',
      'One. Two.\nThree.\n\nFour. Five.',
      20,
      ['One. Two.\nThree.', 'Four. Five.'],
    ],
    ['prefers lines to sentences', 'One. Two\nThree. Four', 15, ['One. Two', 'Three. Four']],
    ['prefers sentences to words', 'It rains. It is cold and wet.', 22, ['It rains.', 'It is cold and wet.']],
    [
      'splits after sentences with different end marks',
      'Really?! “Yes.” Go…  Now!',
      12,
      ['Really?!', '“Yes.” Go…', 'Now!'],
    ],
    [
      'needs no space after a CJK sentence',
      '你好。世界很大！「真的吗？」是的。',
      8,
      ['你好。世界很大！', '「真的吗？」', '是的。'],
    ],
    ['prefers clauses to words', 'red, green and blue', 12, ['red,', 'green and', 'blue']],
    ['splits between words if the text has no other break', 'alpha beta gamma', 11, ['alpha beta', 'gamma']],
    ['splits between characters as a last resort', 'abcdefgh', 3, ['abc', 'def', 'gh']],
    ['does not split at a decimal point', 'It is 3.14159 now', 13, ['It is 3.14159', 'now']],
    ['accepts a sentence that ends exactly at the limit', 'Abc. Def.', 4, ['Abc.', 'Def.']],
    ['returns no pieces for blank text', ' \n\t ', 3, []],
    ['drops text that cannot be spoken', 'One.\n\n* * *\n\nTwo.', 6, ['One.', 'Two.']],
  ])('%s', (_, text, max, pieces) => {
    expect(splitText(text, max)).toEqual(pieces);
  });

  test('never splits a displayed character that fits into a piece', () => {
    const family = '👨‍👩‍👧‍👦';
    expect(splitText(`${family}${family}`, 9)).toEqual([family, family]);
    expect(splitText('e\u0301e\u0301e\u0301', 3)).toEqual(['e\u0301', 'e\u0301', 'e\u0301']);
    expect(splitText('😀😀😀', 2)).toEqual(['😀😀', '😀']);
  });

  test('splits between code points if one displayed character is longer than a piece', () => {
    const pieces = splitText('👨‍👩‍👧‍👦', 2);
    expect(pieces.some((piece) => /\p{Surrogate}/u.test(piece))).toBe(false);
  });
});

describe('text that was split for speech', () => {
  const unit = fc.constantFrom(
    'a',
    'Ä',
    '其',
    '。',
    '！',
    '. ',
    '! ',
    ', ',
    ' ',
    '\n',
    '\n\n',
    '😀',
    '👩‍🚀',
    '"',
    '…',
    '7',
    'é',
  );
  const text = fc.oneof(fc.string({ unit, maxLength: 200 }), fc.string({ unit: 'grapheme', maxLength: 100 }));
  const max = fc.integer({ min: 1, max: 40 });

  test('is complete in its pieces, none of which is too long or ends inside a character', () => {
    fc.assert(
      fc.property(text, max, (all, limit) => {
        expect(cutText(all, limit).join('')).toBe(all);
        const pieces = splitText(all, limit);
        for (const piece of pieces) {
          expect(length(piece)).toBeLessThanOrEqual(limit);
          expect(piece).not.toMatch(/\p{Surrogate}/u);
          expect(speakable.test(piece)).toBe(true);
        }
        const spoken = (parts: string[]): string =>
          parts.join('').replace(/[^\p{L}\p{N}\p{Extended_Pictographic}]/gu, '');
        expect(spoken(pieces)).toBe(spoken([all]));
      }),
      { numRuns: 100 },
    );
  });

  test('is split by length if it has no breaks, even if it is 100,000 characters long', () => {
    expect(splitText('x'.repeat(100_000), 1000)).toHaveLength(100);
  });
});
