import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  add,
  compare,
  excess,
  formatDecimal,
  max,
  multiply,
  parseDecimal,
  divideByPowerOfTen,
  subtract,
} from '../src/decimal.ts';

const amount = fc
  .tuple(fc.bigInt({ min: 0n, max: 10n ** 18n - 1n }), fc.stringMatching(/^\d{0,18}$/))
  .map(([whole, fraction]) => (fraction === '' ? String(whole) : `${whole}.${fraction}`));
const value = amount.map(parseDecimal);

describe('an amount', () => {
  it('is formatted with its original digits, except for trailing zeros', () => {
    fc.assert(
      fc.property(amount, (text) => {
        const plain = text.includes('.') ? text.replace(/\.?0+$/, '') : text;
        expect(formatDecimal(parseDecimal(text))).toBe(plain);
      }),
    );
  });

  it.each([
    '',
    '-1',
    '+1',
    '1e3',
    '01',
    '.5',
    '1.',
    '1,5',
    ' 1',
    'NaN',
    '1'.repeat(61),
    `0.${'1'.repeat(61)}`,
  ])('is refused if it is %j', (text) => {
    expect(() => parseDecimal(text)).toThrow('a decimal number');
  });

  it('is added exactly, unlike a floating-point number', () => {
    expect(formatDecimal(add(parseDecimal('0.1'), parseDecimal('0.2')))).toBe('0.3');
    expect(formatDecimal(multiply(parseDecimal('1.1'), parseDecimal('1.1')))).toBe('1.21');
    expect(formatDecimal(divideByPowerOfTen(parseDecimal('2.5'), 4))).toBe('0.00025');
  });

  it('follows the rules of arithmetic if it is added, subtracted, multiplied or compared', () => {
    fc.assert(
      fc.property(value, value, value, (one, two, three) => {
        const text = formatDecimal;
        expect(text(add(add(one, two), three))).toBe(text(add(one, add(three, two))));
        expect(text(subtract(add(one, two), two))).toBe(text(one));
        expect(text(multiply(one, add(two, three)))).toBe(
          text(add(multiply(one, two), multiply(one, three))),
        );
        expect(compare(add(one, two), one)).toBe(compare(two, parseDecimal('0')));
        expect(compare(one, two)).toBe(0 - compare(two, one));
      }),
    );
  });

  it('exceeds a smaller amount by the difference, and a larger amount by zero', () => {
    fc.assert(
      fc.property(value, value, (one, two) => {
        expect(formatDecimal(excess(add(one, two), two))).toBe(formatDecimal(one));
        expect(formatDecimal(excess(one, add(one, two)))).toBe('0');
      }),
    );
  });

  it('is the maximum of itself and a smaller amount, in either order', () => {
    fc.assert(
      fc.property(value, value, (one, two) => {
        const sum = add(one, two);
        expect([max(one, sum), max(sum, one)].map(formatDecimal)).toEqual([sum, sum].map(formatDecimal));
      }),
    );
  });

  it('cannot become negative, because subtracting a larger amount throws a RangeError', () => {
    expect(() => subtract(parseDecimal('1'), parseDecimal('1.01'))).toThrow(RangeError);
  });
});
