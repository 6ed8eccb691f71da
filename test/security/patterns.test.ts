import { fileURLToPath } from 'node:url';
import { createContext, Script } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { costOf, fill, growsWithText, type Unit } from './growth.ts';
import { hostileUnits, patternsIn } from './patterns.ts';

const source = fileURLToPath(new URL('../../src', import.meta.url));

describe('no regular expression of the source is quadratic', () => {
  it('the walk finds a quadratic one', () => {
    const slow = (pattern: RegExp): boolean => hostileUnits(pattern).some((unit) => !isFast(pattern, unit));
    expect(slow(/\(request id: ([^)]+)\)/)).toBe(true);
    expect(slow(/\s+$/)).toBe(true);
    expect(slow(/^(a+)+$/)).toBe(true);
    expect(slow(/\(request id: ([^)]{1,200})\)/)).toBe(false);
  });

  it('whatever text it is given', () => {
    const slow = patternsIn(source).flatMap(({ place, pattern }) => {
      const unit = hostileUnits(pattern).find((unit) => !isFast(pattern, unit));
      return unit === undefined ? [] : [`${place} for ${JSON.stringify(unit)}`];
    });
    expect(slow).toEqual([]);
  });
});

const script = new Script('text.replace(pattern, "")');
const context = createContext({});

// What is exponential would never come back: it is tried on a few characters first, where it can be stopped.
function isFast(pattern: RegExp, unit: Unit): boolean {
  Object.assign(context, { text: fill(unit, 64), pattern });
  try {
    script.runInContext(context, { timeout: 1000 });
  } catch {
    return false;
  }
  const search = (text: string): unknown => text.replace(pattern, '');
  const text = fill(unit, 16 * 1024);
  return costOf(() => search(text), 1) < 2 || growsWithText(search, unit, 2048, 64 * 1024);
}
