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

// An exponential pattern would never finish. All patterns are first tried on short strings, in a context with a time
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

// A pattern that takes quadratic time is compared with one that certainly does, on the same machine. Linear time is a
// fiftieth of that or less, so anything from an eighth on is measured again at several lengths.
function isFast(pattern: RegExp, unit: Unit): boolean {
  return costOf(() => search(pattern, unit, 32 * 1024), 1) < quadraticCost() / 8 || isLinear(pattern, unit);
}

const quadratic = { pattern: /\(request id: ([^)]+)\)/, unit: { pump: '(request id: ' } };
let knownCost: number | undefined;

function quadraticCost(): number {
  return (knownCost ??= costOf(() => search(quadratic.pattern, quadratic.unit, 32 * 1024)));
}

function isLinear(pattern: RegExp, unit: Unit): boolean {
  return growsWithText((text) => text.replace(pattern, ''), unit, 2048, 128 * 1024);
}

function search(pattern: RegExp, unit: Unit, size: number): string {
  return fill(unit, size).replace(pattern, '');
}
