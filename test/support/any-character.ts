import fc from 'fast-check';

const surrogates = { from: 0xd800, count: 0x800 };

/**
 * Any Unicode character, for `fc.string({ unit: anyCharacter })`. Draws the same characters as fast-check's 'binary'
 * unit, which first builds a table of all 1.1 million characters in each process. That takes longer than the tests.
 */
export const anyCharacter = fc.nat(0x10ffff - surrogates.count).map(
  (index) => String.fromCodePoint(index < surrogates.from ? index : index + surrogates.count),
  (character) => {
    const point = typeof character === 'string' ? (character.codePointAt(0) ?? -1) : -1;
    const index = point < surrogates.from ? point : point - surrogates.count;
    if (index < 0 || String.fromCodePoint(point) !== character) throw new TypeError('not one character');
    if (point >= surrogates.from && index < surrogates.from) throw new TypeError('half a character');
    return index;
  },
);
