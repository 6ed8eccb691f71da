import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  isSameRepresentation,
  readContentRange,
  strongValidator,
} from '../../../src/http/download/validator.ts';

const date = 'Mon, 01 Jan 2024 00:02:00 GMT';

describe('strongValidator', () => {
  it.each([
    [{ etag: '"a"' }, '"a"'],
    [{ etag: '"a-b\u00e9:,"', 'last-modified': 'Mon, 01 Jan 2024 00:00:00 GMT', date }, '"a-b\u00e9:,"'],
    [{ 'last-modified': 'Mon, 01 Jan 2024 00:01:00 GMT', date }, 'Mon, 01 Jan 2024 00:01:00 GMT'],
    [
      { etag: 'W/"a"', 'last-modified': 'Mon, 01 Jan 2024 00:00:00 GMT', date },
      'Mon, 01 Jan 2024 00:00:00 GMT',
    ],
  ])('returns the validator of %o: %s', (headers, validator) => {
    expect(strongValidator(headers as unknown as Record<string, string>)).toBe(validator);
  });

  it.each([
    {},
    { etag: 'W/"a"' },
    { etag: '""' },
    { etag: 'a' },
    { etag: '"a' },
    { etag: '"a", "b"' },
    { 'last-modified': 'Mon, 01 Jan 2024 00:01:01 GMT', date },
    { 'last-modified': 'Mon, 01 Jan 2024 00:00:00 GMT' },
    { 'last-modified': 'once', date },
    { 'last-modified': '', date },
  ])('returns undefined for %o', (headers) => {
    expect(strongValidator(headers as unknown as Record<string, string>)).toBeUndefined();
  });
});

describe('isSameRepresentation', () => {
  it('compares the header that the validator was read from', () => {
    expect(isSameRepresentation({ etag: '"a"', 'last-modified': date }, '"a"')).toBe(true);
    expect(isSameRepresentation({ etag: '"b"' }, '"a"')).toBe(false);
    expect(isSameRepresentation({ etag: 'W/"a"' }, '"a"')).toBe(false);
    expect(isSameRepresentation({}, '"a"')).toBe(true);
    expect(isSameRepresentation({ etag: '"b"', 'last-modified': date }, date)).toBe(true);
    expect(isSameRepresentation({ 'last-modified': 'another day' }, date)).toBe(false);
  });
});

describe('readContentRange', () => {
  it.each([
    ['bytes 0-99/100', { start: 0, end: 99, total: 100 }],
    ['bytes 5-5/6', { start: 5, end: 5, total: 6 }],
    ['bytes 5-9/*', { start: 5, end: 9, total: undefined }],
    ['bytes */100', { start: undefined, end: undefined, total: 100 }],
    ['Bytes 0-0/1 ', { start: 0, end: 0, total: 1 }],
  ])('reads %j', (value, range) => {
    expect(readContentRange(value)).toEqual(range);
  });

  it.each([
    undefined,
    '',
    'bytes',
    'bytes 1-0/5',
    'bytes 0-5/5',
    'bytes -5/9',
    'bytes 0-/9',
    'items 0-1/2',
    'bytes 0-1',
    'bytes 0-1/2, bytes 3-4/5',
    'bytes 0x1-2/3',
    `bytes 0-1/${'9'.repeat(20)}`,
  ])('returns undefined for %j', (value) => {
    expect(readContentRange(value)).toBeUndefined();
  });

  it('reads every valid range, and never throws', () => {
    const numbers = fc.tuple(fc.nat(), fc.nat(), fc.nat());
    fc.assert(
      fc.property(numbers, ([start, more, rest]) => {
        const [end, total] = [start + more, start + more + 1 + rest];
        expect(readContentRange(`bytes ${start}-${end}/${total}`)).toEqual({ start, end, total });
      }),
    );
    fc.assert(fc.property(fc.string(), (value) => void readContentRange(`bytes ${value}`)));
  });
});
