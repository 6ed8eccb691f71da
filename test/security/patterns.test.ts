import { fileURLToPath } from 'node:url';
import { createContext, Script } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { costOf, fill, growsWithText, type Unit } from './growth.ts';
import { hostileUnits, patternsIn } from './patterns.ts';

const source = fileURLToPath(new URL('../../src', import.meta.url));

describe('the search for slow regular expressions', () => {
  it('detects an expression that takes quadratic time', () => {
    const slow = (pattern: RegExp): boolean => slowUnit(pattern) !== undefined;
    expect(slow(/\(request id: ([^)]+)\)/)).toBe(true);
    expect(slow(/\s+$/)).toBe(true);
    expect(slow(/^(a+)+$/)).toBe(true);
    expect(slow(/\(request id: ([^)]{1,200})\)/)).toBe(false);
  });

  it('finds none in the source', () => {
    const patterns = patternsIn(source);
    expect(patterns.length).toBeGreaterThan(400);
    const slow = patterns.flatMap(({ place, pattern }) => {
      const unit = slowUnit(pattern);
      return unit === undefined ? [] : [`${place} for ${JSON.stringify(unit)}`];
    });
    expect(slow).toEqual([]);
  });
});

const script = new Script('for (; tried < texts.length; tried += 1) texts[tried].replace(pattern, "")');
const context = createContext({});

function slowUnit(pattern: RegExp): Unit | undefined {
  const units = hostileUnits(pattern);
  return stuckUnit(pattern, units) ?? units.find((unit) => !isFast(pattern, unit));
}

// An exponential pattern would never finish. All patterns are first tried on short texts, in a context with a time
// limit.
function stuckUnit(pattern: RegExp, units: readonly Unit[]): Unit | undefined {
  const run = { pattern, texts: units.map((unit) => fill(unit, 64)), tried: 0 };
  Object.assign(context, run);
  try {
    script.runInContext(context, { timeout: 1000 });
    return undefined;
  } catch {
    return units[(context as typeof run).tried];
  }
}

function isFast(pattern: RegExp, unit: Unit): boolean {
  const search = (text: string): unknown => text.replace(pattern, '');
  const text = fill(unit, 4 * 1024);
  return costOf(() => search(text), 1) < 0.5 || growsWithText(search, unit, 2048, 32 * 1024);
}
