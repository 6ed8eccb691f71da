import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IndexLines, indexLine, type IndexEntry, type IndexKind } from '../../src/ledger/index-lines.ts';
import { newJobId } from '../../src/ledger/names.ts';

const at = 1_795_000_000_000;
const ids = Array.from({ length: 6 }, (_, n) => newJobId(at + n));
const [a = '', b = '', c = '', d = ''] = ids;
const entry = (kind: IndexKind, id: string, value = ''): IndexEntry => ({ kind, id, value });
const made = (id: string, value = 'f'): IndexEntry => entry('fingerprint', id, value);

function write(lines: IndexLines, text: string): void {
  const bytes = Buffer.from(text, 'latin1');
  lines.reserve(bytes.length).set(bytes);
  lines.add(bytes.length);
}

function linesOf(...entries: (IndexEntry | string)[]): IndexLines {
  const lines = new IndexLines();
  write(lines, entries.map((each) => (typeof each === 'string' ? each : indexLine(each))).join(''));
  return lines;
}

const listed = (lines: IndexLines, outcomes?: IndexLines): string[] => [...lines.ids(outcomes).slice()];

describe('index lines', () => {
  it('have the same length for all values', () => {
    const lengths = ['', 'x', 'ü'.repeat(1000)].map((value) => indexLine(entry('handle', a, value)).length);
    expect(new Set(lengths)).toEqual(new Set([32]));
    const lines = linesOf(made(a), entry('handle', a, 't1'));
    expect(lines.length).toBe(64);
  });

  it('are the same bytes in every version of mgw', () => {
    const written = {
      ...{ fingerprint: String.raw`T\O\f`, handle: '_QATh', succeeded: 'BDR@s', removed: '^Q[Er' },
    };
    for (const [kind, start] of Object.entries(written))
      expect(indexLine(entry(kind as IndexKind, 'job_01hq7w5d2e9xkm', 'task_1'))).toBe(
        `${start}01hq7w5d2e9xkmX10II4MnNf1i\n`,
      );
  });

  it('are found by kind and value, in order, both before and after their lookup table is built', () => {
    const lines = linesOf(made(a), made(b, 'g'), entry('handle', b, 'f'), made(c));
    for (let search = 0; search < 20; search += 1) {
      expect(lines.find('fingerprint', 'f')).toEqual([a, c]);
      expect(lines.find('handle', 'f')).toEqual([b]);
      expect(lines.find('handle', 'g')).toEqual([]);
      expect(lines.find('succeeded', 'f')).toEqual([]);
    }
    write(lines, indexLine(made(d)));
    expect(lines.find('fingerprint', 'f')).toEqual([a, c, d]);
    lines.clear();
    expect([lines.find('fingerprint', 'f'), lines.length, lines.highest]).toEqual([[], 0, undefined]);
    write(lines, indexLine(made(b)));
    expect(lines.find('fingerprint', 'f')).toEqual([b]);
  });

  it('list the jobs that were not removed, highest id first', () => {
    const lines = linesOf(made(a), made(b), entry('removed', a), made(c));
    expect(listed(lines)).toEqual([c, b]);
    expect([...lines.removed()]).toEqual([a]);
    // Simulates a process that adds a handle after the job was removed.
    write(lines, indexLine(entry('handle', a, 't1')));
    expect([...lines.removed()]).toEqual([a]);
    write(lines, indexLine(made(a)));
    expect(listed(lines)).toEqual([c, b, a]);
    expect([...lines.removed()]).toEqual([]);
    expect(listed(linesOf(made(b), made(a), made(c), made(a)))).toEqual([c, b, a]);
    expect(listed(linesOf())).toEqual([]);
  });

  it('exclude the jobs that succeeded according to another index, regardless of the order of its lines', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...ids)), fc.array(fc.constantFrom(...ids)), (all, succeeded) => {
        const outcomes = linesOf(
          ...succeeded.map((id) => entry('succeeded', id)),
          ...all.map((id) => entry('handle', id, 't')),
        );
        const open = [...new Set(all)].filter((id) => !succeeded.includes(id));
        expect(listed(linesOf(...all.map((id) => made(id))), outcomes)).toEqual(open.sort().reverse());
      }),
    );
    expect(listed(linesOf(made(a)), linesOf())).toEqual([a]);
  });

  it('decode an id only when the id is read', () => {
    const found = linesOf(made(a), made(b), made(c)).ids();
    expect([found.length, found.at(0), found.at(-1), found.at(3)]).toEqual([3, c, a, undefined]);
    expect(found.slice(1, 2)).toEqual([b]);
    const emptied = linesOf(made(a));
    const old = emptied.ids();
    emptied.clear();
    write(emptied, indexLine(made(b)));
    expect(old.at(0)).toBe(a);
  });

  it('sort ids correctly even if they differ in only one character', () => {
    const letters = '0123456789abcdefghjkmnpqrstvwxyz';
    const base = 'job_00000000000000';
    for (let place = 4; place < base.length; place += 1) {
      const higher = `${base.slice(0, place)}${letters[place] ?? ''}${base.slice(place + 1)}`;
      expect(listed(linesOf(made(base), made(higher))), higher).toEqual([higher, base]);
      expect(listed(linesOf(made(higher), made(base))), higher).toEqual([higher, base]);
    }
  });

  it('report whether a job has a line of a kind, and the highest id in the last thousand lines', () => {
    const lines = linesOf(made(b), entry('handle', b, 't'), made(a));
    expect([lines.has('handle', b), lines.has('handle', a), lines.has('succeeded', b)]).toEqual([
      true,
      false,
      false,
    ]);
    expect(lines.highest).toBe(b);
    write(lines, indexLine(made(a)).repeat(2000));
    expect([lines.highest, linesOf(made(b), ...Array<IndexEntry>(1000).fill(made(a))).highest]).toEqual([
      b,
      a,
    ]);
    write(lines, indexLine(made(c)) + indexLine(made(a)));
    expect(lines.highest).toBe(c);
    lines.clear();
    expect(lines.highest).toBeUndefined();
  });

  it('are skipped if they are torn or damaged, but the lines after them are read', () => {
    const whole = indexLine(made(b));
    for (let cut = 0; cut < whole.length - 1; cut += 1) {
      const torn = linesOf(made(a), `${whole.slice(0, cut)}\n`, made(c));
      expect(listed(torn), String(cut)).toEqual([c, a]);
      expect(torn.find('fingerprint', 'f')).toEqual([a, c]);
    }
    for (let at = 0; at < whole.length; at += 1) {
      const flipped = `${whole.slice(0, at)}${String.fromCharCode(whole.charCodeAt(at) ^ 1)}${whole.slice(at + 1)}`;
      const damaged = linesOf(made(a), flipped, '\n', made(c));
      expect([listed(damaged), damaged.find('fingerprint', 'f')], String(at)).toEqual([
        [c, a],
        [a, c],
      ]);
    }
  });

  it('are found after an empty line and after a line that has lost its beginning', () => {
    for (const rest of ['\n', indexLine(made(b)).slice(19)]) {
      const lines = linesOf(rest, made(c));
      expect([listed(lines), lines.find('fingerprint', 'f')]).toEqual([[c], [c]]);
    }
  });

  it('may be read in several parts', () => {
    const text = [made(a), made(b), entry('removed', a)].map(indexLine).join('');
    for (let cut = 0; cut <= text.length; cut += 1) {
      const lines = linesOf(text.slice(0, cut));
      write(lines, text.slice(cut));
      expect([listed(lines), lines.find('fingerprint', 'f')], String(cut)).toEqual([[b], [a, b]]);
    }
    const many = linesOf();
    const all = Array.from({ length: 4000 }, (_, n) => newJobId(at + n));
    for (const id of all) write(many, indexLine(made(id)));
    expect(many.length).toBe(128_000);
    expect(listed(many)).toEqual(all.reverse());
  });
});
