import { existsSync } from 'node:fs';
import { runInThisContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { instrument } from '../../scripts/mutants/instrument.mjs';
import { explanations, sample } from '../../scripts/mutants/sample.mjs';
import { moneyPath } from '../../scripts/mutants/tree.mjs';

interface Mutant {
  id: string;
  path: string;
  line: number;
  kind: string;
  text: string;
}
const mutantsOf = instrument as (path: string, text: string) => { text: string; mutants: Mutant[] };

interface Active {
  __mgwMutants?: { active: number };
}

/**
 * Runs a source's function with one mutant after another. Returns the results by the mutants'
 * kinds, with '' for no mutant.
 */
function results(source: string, ...args: unknown[]): Record<string, unknown> {
  const { text, mutants } = mutantsOf('src/x.ts', source);
  const run = runInThisContext(`(() => { ${text}; return f; })()`) as (...args: unknown[]) => unknown;
  const active = (globalThis as Active).__mgwMutants;
  if (active === undefined) throw new Error('the runtime is missing');
  const resultOf = (number: number): unknown => {
    active.active = number;
    try {
      return run(...args);
    } catch (error) {
      return String(error);
    } finally {
      active.active = -1;
    }
  };
  const all = mutants.map(({ kind }, number): [string, unknown] => [kind, resultOf(number)]);
  return Object.fromEntries([['', resultOf(-1)], ...all]);
}

describe('mutants', () => {
  it.each<[string, unknown[], Record<string, unknown>]>([
    ['function f(a) { if (a) return 1; return 2; }', [0], { '': 2, true: 1, false: 2, undefined: undefined }],
    [
      'function f(a, b) { return a && b; }',
      [true, false],
      { '': false, dropped: true, undefined: undefined },
    ],
    ['function f(a, b) { return a < b; }', [1, 1], { '': false, '<=': true, undefined: undefined }],
    ['function f(a, b) { return a === b; }', [1, 1], { '': true, not: false }],
    ['function f(a) { return !a; }', [1], { '': false, not: true }],
    ['function f(a) { return a ?? 2; }', [1], { '': 1, fallback: 2, undefined: undefined }],
    [
      'function f(a) { if (a) throw new Error("no"); return !1; }',
      [1],
      {
        '': 'Error: no',
        true: 'Error: no',
        false: false,
        'no throw': false,
        not: 'Error: no',
      },
    ],
    [
      'function f() { const a = new Set(); a.add(1); return a.size; }',
      [],
      { '': 1, 'no call': 0, undefined: undefined },
    ],
    [
      'function f(a) { let b = 0; if (a) b = 1; else b = 2; return !b; }',
      [1],
      {
        '': false,
        true: false,
        false: false,
        'no call': false,
        not: true,
      },
    ],
    [
      'const f = (a) => ({ isDurable: true, a }).isDurable;',
      [1],
      { '': true, not: false, undefined: undefined },
    ],
    [
      'const f = (a) => `WHERE a AND ${a} FOR UPDATE`;',
      ['b'],
      {
        '': 'WHERE a AND b FOR UPDATE',
        undefined: undefined,
        'sql AND': 'WHERE a OR b FOR UPDATE',
        'sql FOR UPDATE': 'WHERE a AND b',
      },
    ],
  ])('are generated from %s', (source, args, expected) => {
    expect(results(source, ...args)).toEqual(expected);
  });

  it('do not change line numbers, and are named after their location', () => {
    const { text, mutants } = mutantsOf('src/x.ts', 'const a = 1;\nif (a > 0) f();\n');
    expect(text.split('\n')).toHaveLength(3);
    expect(mutants.map(({ id }) => id)).toEqual([
      'src/x.ts:2:5:true',
      'src/x.ts:2:5:false',
      'src/x.ts:2:7:>=',
      'src/x.ts:2:12:no call',
    ]);
  });
});

it('every file and folder of `moneyPath` exists', () => {
  expect(moneyPath.filter((path) => !existsSync(path))).toEqual([]);
});

it('the same seed selects the same sample of mutants', () => {
  const items = Array.from({ length: 100 }, (_, index) => index);
  const drawn = sample(items, 10, '7') as number[];
  expect(new Set(drawn).size).toBe(10);
  expect(sample(items, 10, '7')).toEqual(drawn);
  expect(sample(items, 10, '8')).not.toEqual(drawn);
});

it("an explanation is found by its mutant's file, kind and source", () => {
  const why = explanations('# Title\n\n- `src/x.ts` no call `f(`a`);`: it changes nothing\n') as (
    mutant: Partial<Mutant>,
  ) => string | undefined;
  expect(why({ path: 'src/x.ts', kind: 'no call', text: 'f(`a`);' })).toBe('it changes nothing');
  expect(why({ path: 'src/x.ts', kind: 'true', text: 'f(`a`);' })).toBeUndefined();
});
