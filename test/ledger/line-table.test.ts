import fc from 'fast-check';
import { expect, it } from 'vitest';
import { hashesOf, lineOf, type IndexEntry } from '../../src/ledger/index-lines.ts';
import { hashLength, idStart, LineTable, search } from '../../src/ledger/line-table.ts';

const entries = ['0', '1', '2'].map((digit): IndexEntry => ({
  kind: 'handle',
  value: `task-${digit}`,
  id: `job_1m7x3xbzq0000${digit}`,
}));
const whole = fc.constantFrom(...entries).map(lineOf);
// A line that was torn and closed off, has lost its beginning or a letter, or is something else altogether.
const torn = fc.tuple(whole, fc.nat({ max: 51 })).map(([line, cut]) => line.slice(0, cut));
const broken = fc.oneof(
  torn.map((text) => `${text}\n`),
  fc.tuple(whole, fc.nat({ max: 51 })).map(([line, cut]) => line.slice(cut)),
  fc.tuple(whole, fc.nat({ max: 50 })).map(([line, at]) => `${line.slice(0, at)}?${line.slice(at + 1)}`),
  fc.string({ unit: 'grapheme-ascii', maxLength: 120 }).map((text) => `${text}\n`),
);
const files = fc
  .tuple(fc.array(fc.oneof({ arbitrary: whole, weight: 4 }, broken), { maxLength: 40 }), torn)
  .map(([lines, last]) => Buffer.from(lines.join('') + last, 'latin1'));
// Mostly with a line, since hardly any search begins within one.
const starts = fc.oneof({ arbitrary: fc.constant(0), weight: 3 }, fc.nat({ max: 60 }));

it('finds each place with either hash, whatever was torn, by searching and by its table', () => {
  fc.assert(
    fc.property(files, starts, (bytes, from) => {
      const rest = aligned(bytes).subarray(Math.min(from, bytes.length));
      const table = new LineTable();
      table.extend(rest);
      for (const entry of entries) {
        const hashes = hashesOf(entry);
        const expected = placesOf(rest.toString('latin1'), hashes);
        expect(search(rest, hashes)).toEqual(expected);
        expect(table.find(rest, hashes)).toEqual(expected);
      }
    }),
    { numRuns: 500 },
  );
});

// As a file is read: words are looked at only where they begin at a word.
function aligned(bytes: Buffer): Buffer {
  return Buffer.from(new Uint8Array(bytes).buffer);
}

function placesOf(text: string, hashes: readonly [string, string]): Set<number> {
  const found = hashes.flatMap((hash, index) =>
    [...text.matchAll(new RegExp(hash, 'g'))].map((match) => match.index - index * hashLength + idStart),
  );
  return new Set(found);
}
