import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cutText, speakable, splitText } from '../../src/speech/split.ts';

const length = (text: string): number => Array.from(text).length;

describe('if a text is cut', () => {
  test.each([
    ['a text that fits is one piece', 'Hello there. Bye.', 100, ['Hello there. Bye.']],
    ['paragraphs before lines', 'One. Two.\nThree.\n\nFour. Five.', 20, ['One. Two.\nThree.', 'Four. Five.']],
    ['lines before sentences', 'One. Two\nThree. Four', 15, ['One. Two', 'Three. Four']],
    ['sentences before words', 'It rains. It is cold and wet.', 22, ['It rains.', 'It is cold and wet.']],
    ['sentences of several kinds', 'Really?! “Yes.” Go…  Now!', 12, ['Really?!', '“Yes.” Go…', 'Now!']],
    [
      'CJK sentences need no blank',
      '你好。世界很大！「真的吗？」是的。',
      8,
      ['你好。世界很大！', '「真的吗？」', '是的。'],
    ],
    ['clauses before words', 'red, green and blue', 12, ['red,', 'green and', 'blue']],
    ['words, where there is nothing else', 'alpha beta gamma', 11, ['alpha beta', 'gamma']],
    ['characters at last', 'abcdefgh', 3, ['abc', 'def', 'gh']],
    ['a number keeps its point', 'It is 3.14159 now', 13, ['It is 3.14159', 'now']],
    ['a sentence that ends exactly at the limit', 'Abc. Def.', 4, ['Abc.', 'Def.']],
    ['a blank text has no pieces', ' \n\t ', 3, []],
    ['what cannot be spoken is left out', 'One.\n\n* * *\n\nTwo.', 6, ['One.', 'Two.']],
  ])('%s', (_, text, most, pieces) => {
    expect(splitText(text, most)).toEqual(pieces);
  });

  test('characters that are seen as one stay whole', () => {
    const family = '👨‍👩‍👧‍👦';
    expect(splitText(`${family}${family}`, 9)).toEqual([family, family]);
    expect(splitText('e\u0301e\u0301e\u0301', 3)).toEqual(['e\u0301', 'e\u0301', 'e\u0301']);
    expect(splitText('😀😀😀', 2)).toEqual(['😀😀', '😀']);
  });

  test('one that is longer than a piece may be is cut between code points', () => {
    const pieces = splitText('👨‍👩‍👧‍👦', 2);
    expect(pieces.some((piece) => /\p{Surrogate}/u.test(piece))).toBe(false);
  });
});

describe('for any text', () => {
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
  const most = fc.integer({ min: 1, max: 40 });

  test('nothing is lost, and no piece is too long or cut inside a character', () => {
    fc.assert(
      fc.property(text, most, (all, limit) => {
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
      { numRuns: 1000 },
    );
  });

  test('a megabyte without a single place is done at once', () => {
    expect(splitText('x'.repeat(1_000_000), 1000)).toHaveLength(1000);
  });
});
