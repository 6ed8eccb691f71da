import { expect, it } from 'vitest';
import { table } from '../../../src/cli/output/table.ts';

it('a table pads its columns, and escapes control characters', () => {
  expect(
    table(
      ['id', 'n'],
      [
        ['a', '1'],
        ['long', '\u001b2'],
        ['日本', '3'],
      ],
    ).split('\n'),
  ).toEqual([
    expect.stringMatching(/^id {4}n$/),
    expect.stringMatching(/^a {5}1$/),
    expect.stringMatching(/^long {2}[^\u001b]*2$/),
    '日本  3',
  ]);
});

it('a table can have more rows than a function call can have arguments', () => {
  const rows = Array.from({ length: 150_000 }, (_, index) => [`m${index}`]);
  expect(table(['id'], rows).split('\n')).toHaveLength(150_001);
});

const rows = [
  ['state', '/a/path/that/is/long', 'the folder of the state'],
  ['key', '-', 'default'],
];

it('a table narrows its widest columns and wraps their text to fit the width', () => {
  expect(table(['what', 'value', 'from'], rows, 31).split('\n')).toEqual([
    'what   value        from',
    'state  /a/path/tha  the folder',
    '       t/is/long    of the',
    '                    state',
    'key    -            default',
  ]);
});

it('a table that would have to break a word is printed as records that fit the width', () => {
  expect(table(['what', 'value', 'from'], rows, 20).split('\n')).toEqual([
    'state',
    '  value',
    '    /a/path/that/is/',
    '    long',
    '  from the folder of',
    '    the state',
    'key',
    '  from default',
  ]);
  expect(table(['id', 'rows', 'doubt'], [['a-name', '12', '0']], 18)).toBe('a-name\n  rows 12\n  doubt 0');
  expect(table(['id', 'rows', 'doubt'], [['a-longer-name', '12', '0']], 19)).toBe(
    'a-longer-name\n  rows 12 · doubt 0',
  );
});
