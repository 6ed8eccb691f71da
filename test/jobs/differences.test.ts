import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { differences } from '../../src/jobs/differences.ts';
import { hasUnsafe, printableLine } from '../../src/printable.ts';
import { anyCharacter } from '../support/any-character.ts';

const long = 'a boat leaves the harbour at dawn, and the sea is calm; '.repeat(3);

describe('the differences between two requests', () => {
  it.each([
    [{ duration: 5 }, { duration: 8 }, 'duration was 5, is 8'],
    [{ a: { b: 'x' } }, { a: {} }, 'a.b was "x", is absent'],
    [{ p: 'a boat' }, { p: 'a  boat' }, 'p was "a boat", is "a \\u{20}boat"'],
    [{ p: 'a boat' }, { p: 'a\u{a0}boat' }, 'p was "a boat", is "a\\u{a0}boat"'],
    [{ p: 'a\nb' }, { p: 'a\u200bb' }, 'p was "a\\nb", is "a\\u{200b}b"'],
    [{ p: 'caf\u00e9' }, { p: 'cafe\u0301' }, 'p was "caf\\u{e9}", is "cafe\\u{301}"'],
    [
      { p: `${long}dawn` },
      { p: `${long}dusk` },
      'p was "…d the sea is calm; dawn", is "…d the sea is calm; dusk"',
    ],
    [
      { p: [`${long}😀${long}`] },
      { p: [`${long}😁${long}`] },
      'p was …d the sea is calm; 😀a boat leaves the harbour at dawn, and …, is …d the sea is calm; 😁a boat leaves the harbour at dawn, and …',
    ],
  ])('from %j to %j are %s', (before, now, line) => {
    expect(differences(before, now)).toEqual([line]);
  });

  it('are visible, bounded and printable for all texts', () => {
    const text = fc.string({
      unit: fc.oneof(fc.constantFrom(' ', '\t', '"', '\\', 'é', 'e\u0301'), anyCharacter),
    });
    fc.assert(
      fc.property(text, text, text, fc.constantFrom('', long), (start, before, now, padding) => {
        fc.pre(before !== now);
        const line = (value: string): string => padding + start + value + padding;
        const [difference = ''] = differences(line(before), line(now));
        expect(hasUnsafe(difference)).toBe(false);
        expect(printableLine(difference, 2000)).toBe(difference);
        const [, was, is] = /^body was (".*"), is (".*")$/.exec(difference) ?? [];
        expect(was?.normalize('NFKC')).not.toBe(is?.normalize('NFKC'));
      }),
    );
  });
});
