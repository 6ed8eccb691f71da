import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatDuration, parseDuration } from '../src/clock.ts';

describe('parseDuration', () => {
  it.each([
    ['50ms', 50],
    ['5s', 5000],
    ['20m', 1_200_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['0.5s', 500],
    ['1d2h3m4s5ms', 93_784_005],
    ['365d', 365 * 86_400_000],
  ])('reads %s as %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each([
    '',
    '5',
    '-1m',
    '+5s',
    '5 s',
    ' 5s',
    '5s ',
    '1e3s',
    'NaN',
    'Infinitys',
    '5S',
    '5sec',
    '30m1h',
    '5s5s',
    'm',
    '.5s',
    '٥s',
    '1,5s',
  ])('refuses %j and says what is allowed', (text) => {
    expect(() => parseDuration(text)).toThrow(/number with a unit, such as 50ms, 5s, 20m or 1h30m/);
  });

  it.each(['0s', '0ms', '0h0m', '0.1s0ms'.replace('0.1', '0.0'), '366d', `${'9'.repeat(40)}h`])(
    'refuses %s, which is out of range',
    (text) => {
      expect(() => parseDuration(text)).toThrow('a duration from 1ms to 365d');
    },
  );

  it('never throws anything else, and gives whole ms in range', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[\d.dhms -]{0,12}$/), (text) => {
        let ms: number;
        try {
          ms = parseDuration(text);
        } catch (error) {
          expect(String(error)).toMatch(/^Error: a (number|duration) /);
          return;
        }
        expect(Number.isSafeInteger(ms) && ms >= 1).toBe(true);
      }),
    );
  });
});

describe('formatDuration', () => {
  it.each([
    [0, '0s'],
    [-5, '0s'],
    [50, '50ms'],
    [5000, '5s'],
    [1500, '1s500ms'],
    [5_400_000, '1h30m'],
  ])('writes %d ms as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  it('is read back as it was', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 365 * 86_400_000 }), (ms) => {
        expect(parseDuration(formatDuration(ms))).toBe(ms);
      }),
    );
  });
});
