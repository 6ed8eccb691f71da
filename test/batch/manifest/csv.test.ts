import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readCsv } from '../../../src/batch/manifest/csv.ts';
import type { ManifestRecord, Problem } from '../../../src/batch/manifest/fields.ts';
import { Source, Unreadable } from '../../../src/batch/manifest/source.ts';
import { anyCharacter } from '../../support/any-character.ts';

interface Read {
  records: ManifestRecord[];
  problems: Problem[];
}

/** Reads CSV in chunks of the given size. */
async function read(bytes: Buffer | string, chunk = 7): Promise<Read> {
  const all = Buffer.from(bytes as string);
  const problems: Problem[] = [];
  const report = (problem: Problem): void => void problems.push(problem);
  const chunks = Array.from({ length: Math.ceil(all.length / chunk) }, (_, index) =>
    all.subarray(index * chunk, (index + 1) * chunk),
  );
  const records: ManifestRecord[] = [];
  try {
    for await (const record of readCsv(new Source(chunks as never, report, 'utf-8'), report))
      records.push(record);
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    problems.push(error.problem);
  }
  return { records, problems };
}

const shown = ({ records }: Read): [number, Record<string, unknown>][] =>
  records.map(({ line, fields }) => [
    line,
    Object.fromEntries(fields.map(({ name, value }) => [name, value])),
  ]);
const problemTexts = ({ problems }: Read): string[] =>
  problems.map(({ line, message }) => `${line}: ${message}`);

describe('the CSV reader', () => {
  it('counts lines like a text editor', async () => {
    const text =
      '\ufeffid,prompt,seed\r\n1,"two\r\nlines, ""and"" more",5\r\n\r\n2,plain,\r\n,,\r\n3,"\n\n",7';
    expect(shown(await read(text))).toEqual([
      [2, { id: '1', prompt: 'two\nlines, "and" more', seed: '5' }],
      [5, { id: '2', prompt: 'plain' }],
      [7, { id: '3', prompt: '\n\n', seed: '7' }],
    ]);
  });

  it('trims cells, except those with text for the model', async () => {
    const text = 'id , prompt, model,set.user,Animal\n one,\ta boat , vendor-h3-mini\u00a0, you ,  \n';
    expect(shown(await read(text))).toEqual([
      [2, { id: 'one', prompt: '\ta boat ', model: 'vendor-h3-mini', 'set.user': ' you ' }],
    ]);
  });

  it('accepts a row without its last comments, unless the file may be cut off there', async () => {
    const text = 'prompt,Notes,#\na boat\na boat,good\na boat at s';
    const result = await read(text);
    expect(shown(result)).toEqual([
      [2, { prompt: 'a boat' }],
      [3, { prompt: 'a boat', Notes: 'good' }],
    ]);
    expect(problemTexts(result)).toEqual(['4: the row has one cell, but the header has 3']);
  });

  it("returns every cell, regardless of the cell's content and the chunk size", async () => {
    const eol = fc.constantFrom('\n', '\r\n');
    const cell = fc.oneof(
      fc.string({ unit: anyCharacter, maxLength: 12 }),
      fc.string({ unit: fc.constantFrom('"', ',', '\n', '\r\n', 'x', ' ', 'é', '🚤') }),
    );
    const plain = cell.filter(
      (text) => !text.includes('\0') && !/\r(?!\n)/.test(text) && Buffer.from(text).toString() === text,
    );
    const rows = fc.array(fc.tuple(plain, plain, plain));
    await fc.assert(
      fc.asyncProperty(
        rows,
        eol,
        fc.boolean(),
        fc.integer({ min: 1, max: 40 }),
        async (cells, end, bom, chunk) => {
          const quoted = (text: string): string =>
            /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
          const lines = [['id', 'prompt', 'text'], ...cells].map((row) => row.map(quoted).join(','));
          let line = 2;
          const expected = cells.map((row) => {
            const at = line;
            line += 1 + (row.join('').match(/\n/g)?.length ?? 0);
            const [id = '', prompt = '', text = ''] = row.map((value) => value.replaceAll('\r\n', '\n'));
            const fields = Object.entries({ id: id.trim(), prompt, text });
            return [at, Object.fromEntries(fields.filter(([, value]) => value !== ''))];
          });
          const found = await read((bom ? '\ufeff' : '') + lines.join(end) + end, chunk);
          expect(found.problems).toEqual([]);
          expect(shown(found)).toEqual(
            expected.filter(
              ([, fields]) =>
                Object.values(fields as object)
                  .join('')
                  .trim() !== '',
            ),
          );
        },
      ),
      { numRuns: 40 },
    );
  });

  it('gives each row and problem in arbitrary bytes a line number within the file', async () => {
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 6 }),
      fc.constantFrom('"', ',', '\n', 'id,prompt\n').map((text) => Buffer.from(text)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(piece), fc.integer({ min: 1, max: 20 }), async (pieces, chunk) => {
        const bytes = Buffer.concat(pieces);
        const lines = bytes.toString('latin1').split(/\r\n|\n|\r/).length;
        const { records, problems } = await read(bytes, chunk);
        for (const { line } of [...records, ...problems]) {
          expect(line).toBeGreaterThanOrEqual(1);
          expect(line).toBeLessThanOrEqual(lines);
        }
      }),
      { numRuns: 40 },
    );
  });

  it.each([
    ['id,prompt', []],
    [
      'id,prompt\n1,a,b\n2\n3,c',
      ['2: the row has 3 cells, but the header has 2', '3: the row has one cell, but the header has 2'],
    ],
    [
      'id,prompt\n1,"a\n2,b\n',
      ['2: the row that begins here has an unclosed quote. The rest of the file was not read'],
    ],
    ['id,prompt\n1,a\n\n2,"a"b\n', [expect.stringMatching(/^4: .*text after a closing quote/)]],
    ['id,prompt\n1,"x\ny"\n2,a"b\n', [expect.stringMatching(/^4: .*a quote inside an unquoted cell/)]],
    ['id,,prompt\n1,,a\n2,x,b', ['3: column 2 has a value here, but no name in the header']],
    ['aspect_ratio,Aspect Ratio', ['1: columns 1 and 2 are both called Aspect Ratio']],
    ['', ['1: the file is empty: its first row must contain the field names']],
    ['id,prompt\n  \n', []],
    ['id,prompt\n1,a\0b\n2,c\n', ['2: it contains a NUL byte']],
  ])('reads %j, and reports the problems %j', async (text, problems) => {
    expect(problemTexts(await read(text))).toEqual(problems);
  });

  it('skips a row that is not UTF-8, and reads the rows after it', async () => {
    const bad = Buffer.concat([
      Buffer.from('id,prompt\n1,"a\n'),
      Buffer.from([0xff]),
      Buffer.from('"\n2,b\n'),
    ]);
    const found = await read(bad);
    expect(problemTexts(found)).toEqual(['3: it is not valid UTF-8']);
    expect(shown(found)).toEqual([[4, { id: '2', prompt: 'b' }]]);
  });

  it('does not use the first row as the header if the header is not UTF-8', async () => {
    const found = await read(
      Buffer.concat([Buffer.from([0xff]), Buffer.from('id,prompt\nid,prompt\n2,b\n')]),
    );
    expect(problemTexts(found)).toEqual(['1: it is not valid UTF-8', '2: the header cannot be read']);
    expect(found.records).toEqual([]);
  });

  it('limits cell and line sizes', async () => {
    const mib = 'x'.repeat(1024 * 1024);
    expect(problemTexts(await read(`id,prompt\n1,${mib.repeat(8)}`, 1 << 20))).toEqual([
      '2: the line is longer than 8 MiB',
    ]);
    const lines = `${mib}\n`.repeat(8);
    expect(problemTexts(await read(`id,prompt\n1,"${lines}"`, 1 << 20))).toEqual([
      expect.stringMatching(/^2: .*longer than 8 MiB/),
    ]);
  });
});
