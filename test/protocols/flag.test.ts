import { describe, expect, it } from 'vitest';
import { decimalNumber, oneOf, text, wholeNumber } from '../../src/protocols/flag.ts';

describe('the parser of whole numbers', () => {
  it.each([
    ['0', 0],
    ['5', 5],
    ['-1', -1],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
  ])('reads %j', (given, number) => {
    expect(wholeNumber(given)).toBe(number);
  });

  it.each([
    '',
    ' ',
    ' 5',
    '5 ',
    '5\n',
    '05',
    '+5',
    '-0',
    '5.0',
    '4.5',
    '1e3',
    '0x5',
    '5s',
    'NaN',
    'Infinity',
    '٥',
    '9007199254740992',
    true,
  ])('refuses %j, and the error describes the allowed values', (given) => {
    expect(() => wholeNumber(given)).toThrow('a whole number in digits, such as 5');
  });
});

describe('the parser of decimal numbers', () => {
  it.each([
    ['0', 0],
    ['5', 5],
    ['4.5', 4.5],
    ['-0.25', -0.25],
  ])('reads %j', (given, number) => {
    expect(decimalNumber(given)).toBe(number);
  });

  it.each([
    '',
    ' 5',
    '5 ',
    '05',
    '+5',
    '.5',
    '5.',
    '1e3',
    '1_000',
    '1,5',
    'NaN',
    '-Infinity',
    '0x5',
    '9'.repeat(400),
    false,
  ])('refuses a value that is not a plain decimal number: %j', (given) => {
    expect(() => decimalNumber(given)).toThrow('a number in digits, such as 5');
  });
});

describe('the parser of text flags', () => {
  it('returns text unchanged', () => {
    expect(text(' a\n')).toBe(' a\n');
  });

  it.each(['', ' ', '\n\t', true])('refuses a value that is blank or not a string: %j', (given) => {
    expect(() => text(given)).toThrow('non-empty text');
  });
});

describe('the parser of listed values', () => {
  it('accepts only the exact spelling of its values', () => {
    const parse = oneOf('t2v', 'i2v');
    expect(parse('i2v')).toBe('i2v');
    for (const value of ['I2V', 'i2v ', '', true]) expect(() => parse(value)).toThrow('t2v, i2v');
  });
});
