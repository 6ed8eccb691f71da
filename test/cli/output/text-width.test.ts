import stringWidth from 'string-width';
import { expect, it } from 'vitest';
import { wrap, cutToWidth, widthOf } from '../../../src/cli/help/wrap.ts';
import { columnsOf } from '../../../src/cli/io.ts';

it('only a terminal that reports its columns has a width', () => {
  expect(columnsOf({ isTTY: true, columns: 80 })).toBe(80);
  expect([{ isTTY: true, columns: 0 }, { columns: 80 }].map(columnsOf)).toEqual([undefined, undefined]);
});

it.each([
  ['a paper boat', 12, 'a paper boat'],
  ['a paper boat', 8, 'a paper…'],
  ['日本の海', 6, '日本…'],
  ['👨‍👩‍👧 family', 4, '👨‍👩‍👧 …'],
])('the text %j is truncated to %i columns as %j', (text, width, cut) =>
  expect(cutToWidth(text, width)).toBe(cut),
);

it.each([
  ['a paper boat at sea', 10, ['a paper', 'boat at', 'sea']],
  ['a paper boat', 7, ['a paper', 'boat']],
  ['/clips/a-long-name.mp4', 10, ['/clips/a-l', 'ong-name.m', 'p4']],
  ['    "prompt": "a boat"', 12, ['    "prompt"', ': "a boat"']],
  ['', 5, ['']],
])('the text %j is wrapped at %i columns', (text, width, lines) =>
  expect(wrap(text, width, '', widthOf)).toEqual(lines.join('\n')),
);

it('mgw measures Latin text without string-width, but with the same result', () => {
  const own = Array.from({ length: 0x2100 }, (_, code) => String.fromCharCode(code));
  expect(own.filter((text) => widthOf(text) !== stringWidth(text))).toEqual([]);
});
