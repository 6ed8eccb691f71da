import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { retryAfter, withRetryDelay } from '../../src/http/failures.ts';

const now = Date.parse('2026-11-20T12:00:00Z');

describe('retryAfter', () => {
  it.each([
    ['5', 5000],
    [' 5 ', 5000],
    ['0', 0],
    ['1.5', 1500],
    ['86400', 86_400_000],
    ['1e99', 1e102],
    ['-5', 0],
    ['Fri, 20 Nov 2026 12:00:30 GMT', 30_000],
    ['Friday, 20-Nov-26 12:00:30 GMT', 30_000],
    ['Fri Nov 20 12:00:30 2026 GMT', 30_000],
    ['2026-11-20T12:00:30Z', 30_000],
    ['Fri, 20 Nov 2026 11:00:00 GMT', 0],
    ['5, 10', 10_000],
    ['10, 5', 10_000],
    ['Fri, 20 Nov 2026 12:00:30 GMT, 10', 30_000],
    ['', undefined],
    ['soon', undefined],
    ['soon 99999', undefined],
    ['1e999', undefined],
    ['1.2.3', undefined],
    ['NaN', undefined],
    ['Infinity', undefined],
    ['0x10', undefined],
  ])('reads Retry-After %j as %s ms', (value, ms) => {
    expect(retryAfter({ 'retry-after': value }, undefined, now)).toBe(ms);
  });

  it('reads retry-after-ms in milliseconds, and returns the longer of two values', () => {
    expect(retryAfter({ 'retry-after-ms': '250' })).toBe(250);
    expect(retryAfter({ 'retry-after-ms': 'x' })).toBeUndefined();
    expect(retryAfter({ 'retry-after-ms': '250', 'retry-after': '1' })).toBe(1000);
  });

  it.each([
    [{ error: { details: [{ '@type': 'x' }, { '@type': 'y', retryDelay: '38s' }] } }, 38_000],
    [{ error: { details: [{ retryDelay: '0.5s' }] } }, 500],
    [{ error: { details: [{ retryDelay: 38 }] } }, undefined],
    [{ error: { details: [{ retryDelay: '38m' }] } }, undefined],
    [{ error: { details: { retryDelay: '38s' } } }, undefined],
    [{ error: { details: [null, 5, 'x'] } }, undefined],
    [{ error: null }, undefined],
    [undefined, undefined],
  ])('reads the delay in the body %j as %s ms', (body, ms) => {
    expect(retryAfter({}, body)).toBe(ms);
  });

  it('returns a finite time of at least 0 for any input', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.double().map(String), fc.date().map(String)), (value) => {
        const ms = retryAfter({ 'retry-after': value, 'retry-after-ms': value }, undefined, now) ?? 0;
        expect(ms >= 0 && Number.isFinite(ms)).toBe(true);
      }),
    );
  });
});

it.each([
  [0, 'busy'],
  [7000, 'busy. Try again in 7 s.'],
  [7001, 'busy. Try again in 8 s.'],
])('a delay of %s ms is reported as "%s"', (retryAfterMs, message) => {
  expect(withRetryDelay('busy', { retryAfterMs })).toBe(message);
  expect(withRetryDelay('busy', {})).toBe('busy');
});
