import { finished } from 'node:stream/promises';
import { CsvError, Parser } from 'csv-parse';
import { printableLine } from '../../printable.ts';
import { fieldName, nameFault } from './fields.ts';
import type { ManifestRecord, Problem, WrittenField } from './record.ts';
import { maxLineBytes, Unreadable, type Source } from './source.ts';

interface CsvRecord {
  cells: string[];
  line: number;
  lastLine: number;
}

/**
 * Reads CSV (RFC 4180), whose first row names the fields; an empty cell is an absent field, and a row without any
 * field is passed over.
 * @throws Unreadable at a quote that does not fit: from there on nobody can tell what is a cell.
 */
export async function* readCsv(
  source: Source,
  report: (problem: Problem) => void,
): AsyncGenerator<ManifestRecord> {
  let header: string[] | undefined;
  for await (const record of records(source)) {
    if (header === undefined) {
      header = readHeader(record, source.badLines, report);
      continue;
    }
    const { cells, line } = record;
    if (cells.every((cell) => cell === '') || isBlankLine(cells, header)) continue;
    if (cells.length !== header.length) {
      const count = cells.length === 1 ? 'one cell' : `${cells.length} cells`;
      report({ line, message: `it has ${count}, and the header has ${header.length}` });
      continue;
    }
    yield { line, fields: fieldsOf(record, header) };
  }
  if (header === undefined && source.badLines.size === 0)
    report({ line: 1, message: 'the file is empty: its first row names the fields' });
}

// An editor leaves them at the end of a file.
function isBlankLine(cells: readonly string[], header: readonly string[]): boolean {
  return header.length > 1 && cells.length === 1 && cells[0]?.trim() === '';
}

// Without one of its columns no row is what was meant, so that nothing is read below a header with a fault.
function readHeader(
  { cells, line }: CsvRecord,
  badLines: ReadonlySet<number>,
  report: (problem: Problem) => void,
): string[] {
  if ([...badLines].some((bad) => bad < line))
    throw new Unreadable({ line, message: 'the header cannot be read' });
  const separator = cells.length === 1 ? /[;\t]/.exec(cells[0] ?? '')?.[0] : undefined;
  if (separator !== undefined)
    throw new Unreadable({
      line,
      message: `its cells are separated by ${separator === ';' ? 'semicolons' : 'tabs'}: use commas`,
    });
  const names = cells.map((cell) => cell.trim());
  const plain = names.map(fieldName);
  const faults = names.map((name, index) => {
    const before = plain.indexOf(plain[index] ?? '');
    if (name === '') return `column ${index + 1} has no name`;
    if (before === index) return nameFault(name);
    return `columns ${before + 1} and ${index + 1} are both called ${printableLine(name, 60)}`;
  });
  const found = faults.filter((fault) => fault !== undefined);
  for (const message of found.slice(0, -1)) report({ line, message });
  const last = found.at(-1);
  if (last !== undefined) throw new Unreadable({ line, message: last });
  return names;
}

function fieldsOf({ cells, line }: CsvRecord, header: readonly string[]): WrittenField[] {
  const fields: WrittenField[] = [];
  for (const [index, value] of cells.entries()) {
    const name = header[index];
    if (name !== undefined && value !== '') fields.push({ name, value, line, isText: true });
  }
  return fields;
}

// The parser pushes nothing itself: where it fails, what it had read before would be lost.
async function* records(source: Source): AsyncGenerator<CsvRecord> {
  let read: { record: string[]; raw: string }[] = [];
  let line = 1;
  const parser = new Parser({
    record_delimiter: ['\r\n', '\n', '\r'],
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: maxLineBytes,
    raw: true,
    // With `raw` the record comes inside an object, which the types do not know.
    on_record: (one: unknown) => {
      read.push(one as (typeof read)[number]);
      return null;
    },
  });
  parser.on('error', () => undefined);
  const take = (): CsvRecord[] =>
    read.splice(0).map(({ record, raw }) => {
      const start = line + lineBreaks(leadingBreaks(raw));
      line += lineBreaks(raw);
      return { cells: record, line: start, lastLine: Math.max(start, line - 1) };
    });
  try {
    for await (const { bytes } of source.blocks()) {
      await write(parser, bytes);
      yield* take().filter((record) => isText(record, source));
    }
    parser.end();
    await finished(parser, { readable: false });
    yield* take().filter((record) => isText(record, source));
  } catch (error) {
    yield* take().filter((record) => isText(record, source));
    throw error instanceof CsvError ? unreadable(error, line) : error;
  } finally {
    read = [];
    parser.destroy();
  }
}

function isText({ line, lastLine }: CsvRecord, { badLines }: Source): boolean {
  for (let at = line; badLines.size > 0 && at <= lastLine; at += 1) if (badLines.has(at)) return false;
  return true;
}

function write(parser: Parser, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    parser.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

// Of a line break of two characters that ends a record, the raw text has the first one alone.
function lineBreaks(raw: string): number {
  return raw.match(/\r\n|\n|\r/g)?.length ?? 0;
}

function leadingBreaks(raw: string): string {
  return /^[\r\n]*/.exec(raw)?.[0] ?? '';
}

const faults: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'a quoted cell of the row that begins here is not closed',
  CSV_INVALID_CLOSING_QUOTE:
    'in the row that begins here something follows a closing quote; a quote inside a quoted cell is written twice',
  INVALID_OPENING_QUOTE:
    'in the row that begins here a quote stands inside a cell that does not begin with one; such a cell is put in quotes, and the quote is written twice',
  CSV_MAX_RECORD_SIZE: 'the row that begins here is longer than 8 MiB; is a quote not closed?',
};

function unreadable(error: CsvError, line: number): Unreadable {
  const raw: unknown = error['raw'];
  const start = line + (typeof raw === 'string' ? lineBreaks(leadingBreaks(raw)) : 0);
  const why = faults[error.code] ?? printableLine(error.message, 200);
  return new Unreadable({ line: start, message: `${why}. What follows was not read` });
}
