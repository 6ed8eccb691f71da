import stringWidth from 'string-width';
import { describe, expect, it } from 'vitest';
import { fittedTable, type Column } from '../../../src/cli/output/table.ts';

interface Row {
  id: string;
  note?: string;
  path?: string;
}

const columns: Column<Row>[] = [
  { head: 'id', cell: ({ id }) => id },
  { head: 'note', cell: ({ note }) => note, minWidth: 6, rank: 1 },
  { head: 'path', cell: ({ path }) => path, minWidth: 6, rank: 2 },
];
const rows: Row[] = [
  { id: 'job_1', note: 'a paper boat at sea', path: '/clips/boat.mp4' },
  { id: 'job_2', note: '日本の海に浮かぶ紙の船' },
];

describe('a fitted table', () => {
  it('contains all text if no width is given', () => {
    expect(fittedTable(columns, rows, undefined).split('\n')).toEqual([
      'id     note                    path',
      'job_1  a paper boat at sea     /clips/boat.mp4',
      'job_2  日本の海に浮かぶ紙の船  -',
    ]);
  });

  it.each([20, 25, 30, 40, 47])('has no line wider than the given %i columns', (width) => {
    const lines = fittedTable(columns, rows, width).split('\n');
    expect(Math.max(...lines.map((line) => stringWidth(line)))).toBeLessThanOrEqual(width);
    expect(lines[1]).toMatch(/^job_1 {2}a pap/);
  });

  it('omits a column only if shortening is not enough, starting with empty columns', () => {
    const without = [{ id: 'job_1', path: '/clips/boat.mp4' }];
    expect(fittedTable(columns, rows, 21).split('\n')[0]).toBe('id     note    path');
    expect(fittedTable(columns, rows, 20).split('\n')[0]).toBe('id     note');
    expect(fittedTable(columns, without, 18).split('\n')[1]).toBe('job_1  /clips/boa…');
  });

  it('shortens the widest columns first', () => {
    expect(fittedTable(columns, rows, 42).split('\n')[1]).toBe('job_1  a paper boat at s…  /clips/boat.mp4');
  });
});
