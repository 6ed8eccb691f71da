import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { usageError } from '../../../src/errors.ts';
import { openManifest, type OpenOptions } from '../../../src/batch/manifest/manifest.ts';
import { problemText } from '../../../src/batch/manifest/fields.ts';
import type { Row } from '../../../src/batch/manifest/row.ts';
import { freshFolder } from '../../support/fresh-folder.ts';

interface Read {
  rows: Row[];
  problems: string[];
  notes: readonly string[];
}

const columns = new Set(['notes']);
const kindOf: OpenOptions['kindOf'] = (model) =>
  model === 'vendor-h3' ? Promise.resolve('c') : Promise.reject(usageError(`No protocol for ${model}.`));

async function read(name: string, content: string | Uint8Array, opening: OpenOptions = {}): Promise<Read> {
  const path = join(freshFolder(), name);
  writeFileSync(path, content);
  const manifest = await openManifest(path, { kindOf, columns, ...opening });
  const found: Read = { rows: [], problems: [], notes: manifest.notes ?? [] };
  for await (const item of manifest.items())
    if ('row' in item) found.rows.push(item.row);
    else found.problems.push(...item.problems.map((problem) => problemText('m', problem)));
  return found;
}

const utf16 = (text: string): Buffer => Buffer.from(`\ufeff${text}`, 'utf16le');

describe('a spreadsheet file', () => {
  const rows = (separator: string): string =>
    [
      ['ID', 'Protocol', 'Prompt', 'Aspect Ratio', 'TEXT', 'Notes', '', ''],
      ['shot 002', 'C', 'un caf\u00e9 \u2014 "le soir"', '16:9', '', 'retake', '', ''],
      ['voice', 'TTS', '', '', 'Bonjour', '', '', ''],
      ['', '', '', '', '', '', '', ''],
    ]
      .map((cells) => cells.map((cell) => (/"/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)))
      .map((cells) => `${cells.join(separator)}\r\n`)
      .join('');
  const windows1252 = Buffer.from(rows(';').replace('\u2014', '\x97'), 'latin1');

  it.each([
    ['Excel, CSV UTF-8, semicolons', Buffer.from(`\ufeff${rows(';')}`), 0],
    ['Excel, CSV, Windows-1252', windows1252, 1],
    ['Excel, Unicode text: UTF-16 and tabs', utf16(rows('\t')), 0],
    ['UTF-16, big endian', utf16(rows('\t')).swap16(), 0],
    ['LibreOffice, UTF-8, commas', Buffer.from(rows(',').replaceAll('\r\n', '\n')), 0],
  ])('is read without loss: %s', async (_, content, notes) => {
    const found = await read('clips.csv', content);
    expect(found.problems).toEqual([]);
    expect(found.notes).toHaveLength(notes);
    expect(found.rows).toMatchObject([
      {
        line: 2,
        kind: 'c',
        id: 'shot-002',
        flags: { prompt: 'un caf\u00e9 \u2014 "le soir"', 'aspect-ratio': '16:9' },
      },
      { line: 3, kind: 'tts', id: 'voice', text: 'Bonjour' },
    ]);
  });

  it('is read as UTF-8 even if one line is damaged', async () => {
    const content = Buffer.concat([
      Buffer.from('protocol,prompt\nc,caf\u00e9\nc,'),
      Buffer.from([0xe9, 0x0a]),
    ]);
    const { problems, notes } = await read('m.csv', content);
    expect([problems, notes]).toEqual([['m:3: it is not valid UTF-8'], []]);
  });

  it("is refused if it has an unknown column, unless the column's name starts with # or is in --ignore-columns", async () => {
    const text = 'protocol,prompt,Durration,#Mood,NOTES\nc,a boat,5,calm,x\nc,a ship,,,\n';
    const { rows: good, problems } = await read('m.csv', text);
    expect(problems).toEqual(['m:1: unknown field Durration; did you mean duration?']);
    expect(good).toMatchObject([{ line: 3 }]);
  });

  it('is read even if it has a line with sep=, or an aspect ratio that the spreadsheet program converted to a time', async () => {
    const text = 'sep=;\r\nProtocol;Prompt;Aspect Ratio\r\nc;a, b, c;16:09:00\r\nc;d;09:16\r\nc;e;21:9\r\n';
    const { rows: found, problems } = await read('m.csv', text);
    expect(problems).toEqual([]);
    expect(found.map(({ line, flags }) => [line, flags['aspect-ratio']])).toEqual([
      [3, '16:9'],
      [4, '9:16'],
      [5, '21:9'],
    ]);
  });

  it('is read without columns called Notes or Comment, and every other unknown column is reported once', async () => {
    const { rows: good } = await read('m.csv', 'protocol,prompt,Notes,COMMENT\nc,a boat,x,y\n', {
      columns: new Set(),
    });
    expect(good).toHaveLength(1);
    const { problems } = await read('m.csv', 'protocol,prompt,Shot Owner\nc,a,x\ntts,,y\n');
    expect(problems[0]).toBe('m:1: unknown field Shot Owner; to ignore a column, use --ignore-columns');
  });

  it.each([
    ['clips.csv', Buffer.from('PK\x03\x04\x14')],
    ['clips.csv', Buffer.from('d0cf11e0a1b11ae1', 'hex')],
    ['clips.xlsx', 'PK'],
    ['clips.ods', 'PK'],
    ['clips.numbers', 'PK'],
  ])(
    'is refused with instructions for saving it as CSV if it is a workbook: %s, %o',
    async (name, content) => {
      await expect(read(name, content)).rejects.toThrow(/is a workbook.*Save the sheet as CSV/);
    },
  );
});

describe('a row without a protocol', () => {
  it('is reported together with its unknown columns', async () => {
    const { problems } = await read('m.csv', 'id,foo\na,x\n');
    expect(problems.map((problem) => problem.slice(0, 24)).sort()).toEqual([
      'm:1: unknown field foo; ',
      'm:2: protocol: missing; ',
    ]);
  });

  it("uses its model's protocol, or is speech if it has text", async () => {
    const { rows, problems } = await read(
      'm.csv',
      'model,prompt,text\nvendor-h3,a boat,\n,,Hello\nother,x,\n,x,\n',
    );
    expect(rows.map(({ kind }) => kind)).toEqual(['c', 'tts']);
    expect(problems).toEqual([
      'm:4: protocol: missing. No protocol for other.',
      'm:5: protocol: missing; add a model, or set the protocol to a, b, c or tts here or as a default',
    ]);
  });
});

describe('templates in a manifest', () => {
  it("accept the row's fields and columns in any spelling, and a doubled brace as a literal brace", async () => {
    const text =
      'protocol,prompt,Duration,Animal,#Art Style,output\nc,"a {animal} in {art_style}, {{{duration}}} s",5,fox,ink,{animal}/{id}.{ext}\n';
    const { rows, problems } = await read('m.csv', text);
    expect(problems).toEqual([]);
    expect(rows).toMatchObject([{ flags: { prompt: 'a fox in ink, {5} s' }, output: 'fox/{id}.{ext}' }]);
  });

  it("accept the names of a matrix's lists", async () => {
    const yaml =
      'defaults: {protocol: c, prompt: "a {animal} in {style}"}\nmatrix: {animal: [fox, owl], style: [ink]}';
    const { rows, problems } = await read('m.yaml', yaml);
    expect(problems).toEqual([]);
    expect(rows.map(({ flags }) => flags['prompt'])).toEqual(['a fox in ink', 'a owl in ink']);
  });

  it.each([
    ['a {anmal}', /^m:2: prompt: the row has no \{anmal\} \(for a literal brace.*\); did you mean animal\?/],
    ['a {"json": 1}', /^m:2: prompt: the row has no/],
    ['{prompt}', /^m:2: prompt: the row has no \{prompt\}/],
    ['a { b', /^m:2: prompt: the row has no \{ \(for a literal brace, write \{\{ or \}\}\)$/],
  ])('are refused if they contain an unknown name: %s', async (prompt, message) => {
    const cell = `"${prompt.replaceAll('"', '""')}"`;
    const { rows, problems } = await read('m.csv', `protocol,prompt,#animal\nc,${cell},fox\n`);
    expect(rows).toEqual([]);
    expect(problems).toEqual([expect.stringMatching(message)]);
  });
});

describe('a manifest that is too large, too complex or empty', () => {
  const names = Array.from({ length: 1001 }, (_, n) => `k${n}`);
  it.each([
    [
      'a YAML row of 1,001 fields',
      'm.yaml',
      () => `rows:\n- {${names.join(', ')}}`,
      /^m:2: it has 1001 fields; allowed: 1000/,
    ],
    [
      'a YAML row of 1,001 fields and its 999 aliases',
      'm.yaml',
      () => `rows:\n- &row {${names.join(', ')}}\n${'- *row\n'.repeat(999)}`,
      /^m:1001: with its aliases expanded, the file is too large/,
    ],
    [
      'a CSV of 1,001 columns',
      'm.csv',
      () => `${names.join(',')}\n`,
      /^m:1: the header has 1001 columns; allowed: 1000/,
    ],
    [
      'a JSON line of 1,001 fields',
      'm.jsonl',
      () => JSON.stringify(Object.fromEntries(names.map((name) => [name, 1]))),
      /^m:1: the row has 1001 fields; allowed: 1000/,
    ],
    [
      'a row of 100,001 separators',
      'm.csv',
      () => `id;prompt\n${';'.repeat(100_001)}`,
      /^m:2: the line has more than 100000 separators/,
    ],
    [
      '10,001 invalid rows',
      'm.jsonl',
      () => '1\n'.repeat(10_001),
      /^m:10001: the file has more than 10000 problems/,
    ],
    ['only empty cells', 'm.csv', () => ';;;\n;;;\n', /^m:1: the file is empty/],
    [
      'a prompt that grows to megabytes',
      'm.jsonl',
      () => JSON.stringify({ protocol: 'c', '#z': 'y'.repeat(2 ** 20), prompt: '{z}'.repeat(20) }),
      /^m:1: prompt: the text with its 9 placeholders is too long/,
    ],
    [
      'a prompt of 10,001 doubled braces',
      'm.jsonl',
      () => JSON.stringify({ protocol: 'c', prompt: '{{'.repeat(10_001) }),
      /^m:1: prompt: the text with its 10001 placeholders is too long/,
    ],
    [
      'lists nested 6,000 levels deep',
      'm.yaml',
      () => `rows:\n- {protocol: c, set.a: ${'['.repeat(6_000)}${']'.repeat(6_000)}}`,
      /the lists or maps are nested too deeply/,
    ],
  ])('causes an error: %s', async (_, name, content, message) => {
    const { problems } = await read(name, content());
    expect(problems).toContainEqual(expect.stringMatching(message));
  });
});
