import fc from 'fast-check';
import { expect, it } from 'vitest';
import { anyCharacter } from './any-character.ts';

it("the tests' character generator returns exactly the characters of Unicode", () => {
  const drawn = fc.sample(anyCharacter, { numRuns: 1000, seed: 1 });
  const points = drawn.map((text) => text.codePointAt(0) ?? -1);
  expect(points.map((point) => String.fromCodePoint(point))).toEqual(drawn);
  expect(points.filter((point) => point >= 0xd800 && point < 0xe000)).toEqual([]);
  expect(Math.min(...points)).toBeLessThan(0x80);
  expect(Math.max(...points)).toBeGreaterThan(0xffff);
  const isOne = (text: string): boolean => anyCharacter.canShrinkWithoutContext(text);
  const edges = ['\0', '\ud7ff', '\ue000', '\uffff', '\u{10000}', '\u{10ffff}'];
  expect(edges.filter(isOne)).toEqual(edges);
  expect(['', 'ab', '\ud800', '\udfff', 'a\u{10000}'].filter(isOne)).toEqual([]);
});
