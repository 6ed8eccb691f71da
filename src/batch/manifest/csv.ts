import { finished } from 'node:stream/promises';
import { CsvError, Parser } from 'csv-parse';
import { printableLine } from '../../printable.ts';
import {
  fieldName,
  isPath,
  isRemark,
  maxFields,
  type ManifestRecord,
  type Problem,
  type WrittenField,
} from './fields.ts';
import { maxLineBytes, Unreadable, type Source } from './source.ts';

interface CsvRecord {
  cells: string[];
  line: number;
  lastLine: number;
  /** Whether a line break follows. Without one, the file may be cut off within the row. */
  hasLineBreak: boolean;
}

/**
 * Reads CSV (RFC 4180) as spreadsheets write it. The first row contains the field names. Commas, semicolons or tabs
 * separate cells. An empty cell is an absent field. Ignores empty rows, and empty cells and columns at the end. Some
 * spreadsheets leave out the last cells of a row if they are empty, so a row may lack comments.
 * @throws Unreadable if a quote is misplaced, because later cell boundaries are then unknown.
 */
export async function* readCsv(
  source: Source,
  report: (problem: Problem) => void,
): AsyncGenerator<ManifestRecord> {
  let header: Header | undefined;
  let emptyCount = 0;
  for await (const record of records(source)) {
    const length = record.cells.findLastIndex((cell) => cell.trim() !== '') + 1;
    if (length === 0 && (emptyCount += 1) > maxEmptyRows)
      throw new Unreadable({
        line: record.line,
        message: `the file has more than ${maxEmptyRows} empty rows; remove them. The rest of the file was not read`,
      });
    if (
      header === undefined &&
      record.line === 1 &&
      /^sep=.?$/i.test(record.cells[0] ?? '') &&
      record.cells.slice(1).join('') === ''
    )
      continue;
    if (header === undefined) {
      if (length === 0) continue;
      header = readHeader({ ...record, cells: record.cells.slice(0, length) }, source.badLines, report);
      continue;
    }
    const { cells, line } = record;
    const width = header.names.length;
    if (length === 0) continue;
    const isShort =
      cells.length < width && !(record.hasLineBreak && header.names.slice(cells.length).every(isRemark));
    if (length > width || isShort) {
      const cellCount = length > width ? length : cells.length;
      const count = cellCount === 1 ? 'one cell' : `${cellCount} cells`;
      report({ line, message: `the row has ${count}, but the header has ${width}` });
      continue;
    }
    const unnamedIndex = header.names.findIndex((name, index) => name === '' && cells[index]?.trim() !== '');
    if (unnamedIndex < 0) yield { line, fields: fieldsOf(record, header) };
    else report({ line, message: `column ${unnamedIndex + 1} has a value here, but no name in the header` });
  }
  if (header === undefined && source.badLines.size === 0)
    report({ line: 1, message: 'the file is empty: its first row must contain the field names' });
}

/** The maximum number of empty rows. An empty row takes as long to read as a row with values. */
const maxEmptyRows = 2 ** 20;

// The first line of a file made for Excel may specify the separator.
const separatorLine = /^sep=(.)\r?\n/i;

interface Header {
  /** The column names; '' for a column without a name. */
  names: readonly string[];
  line: number;
}

// If two columns have the same name, every row is ambiguous, so nothing below the header is read.
function readHeader(
  { cells, line }: CsvRecord,
  badLines: ReadonlySet<number>,
  report: (problem: Problem) => void,
): Header {
  if ([...badLines].some((bad) => bad < line))
    throw new Unreadable({ line, message: 'the header cannot be read' });
  if (cells.length > maxFields)
    throw new Unreadable({ line, message: `the header has ${cells.length} columns; allowed: ${maxFields}` });
  const names = cells.map((cell) => cell.trim());
  const columns = new Map<string, number>();
  const messages: string[] = [];
  for (const [index, name] of names.entries()) {
    const earlierIndex = columns.get(fieldName(name));
    if (name === '') continue;
    if (earlierIndex === undefined) columns.set(fieldName(name), index);
    else
      messages.push(
        `columns ${earlierIndex + 1} and ${index + 1} are both called ${printableLine(name, 60)}`,
      );
  }
  const last = messages.pop();
  for (const message of messages) report({ line, message });
  if (last !== undefined) throw new Unreadable({ line, message: last });
  return { names, line };
}

function fieldsOf({ cells, line }: CsvRecord, header: Header): WrittenField[] {
  const fields: WrittenField[] = [];
  for (const [index, name] of header.names.entries()) {
    const value = valueOf(fieldName(name), cells[index] ?? '');
    if (name !== '' && value !== '') fields.push({ name, value, line, nameLine: header.line, isText: true });
  }
  return fields;
}

// Line breaks within a cell change with those of the file, so they are the same for every file.
function valueOf(name: string, cell: string): string {
  const text = cell.replace(/\r\n?/g, '\n');
  if (isPath(name) || textFields.has(name)) return text;
  const value = text.trim();
  // A spreadsheet may read 16:9 as a time of day, and save it as 16:09 or 16:09:00.
  return name === 'aspect-ratio' ? value.replace(/^0?(\d+):0?(\d+)(?::00)?$/, '$1:$2') : value;
}

const textFields = new Set(['prompt', 'negative-prompt', 'text']);

/**
 * Returns the separator that a line such as `sep=;` specifies, or else the most frequent separator in the first line.
 */
function separatorOf(text: string): string {
  const declared = separatorLine.exec(text)?.[1];
  if (declared !== undefined) return declared;
  const header = (/[^\r\n]*\S[^\r\n]*/.exec(text)?.[0] ?? '').replace(/"[^"]*"/g, '');
  const count = (separator: string): number => header.split(separator).length;
  return [';', '\t'].reduce((best, each) => (count(each) > count(best) ? each : best), ',');
}

// Collects the records in `parsed`, because the stream loses the records before an error, and `on_record` triples the
// time per row.
class RecordParser extends Parser {
  readonly parsed: { record: string[]; raw: string }[] = [];

  override push(record: (typeof this.parsed)[number] | null): boolean {
    if (record === null) return super.push(null);
    this.parsed.push(record);
    return true;
  }
}

async function* records(source: Source): AsyncGenerator<CsvRecord> {
  let line = 1;
  const blocks = source.blocks();
  let beginning = '';
  let next = await blocks.next();
  for (; !next.done; next = await blocks.next()) {
    beginning += next.value.bytes.toString('utf8');
    if (beginning.trim() !== '') break;
  }
  const separator = separatorOf(beginning);
  const parser = new RecordParser({
    delimiter: separator,
    record_delimiter: ['\r\n', '\n', '\r'],
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: maxLineBytes,
    raw: true,
  });
  parser.on('error', () => undefined);
  const dequeueRecords = (): CsvRecord[] => {
    const records = parser.parsed.splice(0).map(({ record, raw }) => {
      const start = line + lineBreaks(leadingBreaks(raw));
      line += lineBreaks(raw);
      const hasLineBreak = /[\r\n]$/.test(raw);
      return { cells: record, line: start, lastLine: Math.max(start, line - 1), hasLineBreak };
    });
    return records.filter((record) => isValidText(record, source));
  };
  const feed = (bytes: Buffer, firstLine: number): Promise<void> => {
    checkWidth(bytes, firstLine, separator);
    return writeChunk(parser, bytes);
  };
  try {
    if (beginning !== '') await feed(Buffer.from(beginning), 1);
    yield* dequeueRecords();
    for await (const block of blocks) {
      await feed(block.bytes, block.line);
      yield* dequeueRecords();
    }
    parser.end();
    await finished(parser, { readable: false });
    yield* dequeueRecords();
  } catch (error) {
    yield* dequeueRecords();
    throw error instanceof CsvError ? unreadable(error, line) : error;
  } finally {
    parser.destroy();
  }
}

/** The maximum number of separators in a line. Without this limit, the parser could create an array of any size. */
const maxSeparators = 100_000;

function checkWidth(bytes: Buffer, firstLine: number, separator: string): void {
  const byte = Buffer.from(separator).at(-1);
  let [line, separatorCount] = [firstLine, 0];
  for (let at = 0; at < bytes.length; at += 1) {
    if (bytes[at] === 0x0a || bytes[at] === 0x0d) separatorCount = 0;
    if (bytes[at] === 0x0a) line += 1;
    if (bytes[at] === byte) separatorCount += 1;
    if (separatorCount > maxSeparators)
      throw new Unreadable({
        line,
        message: `the line has more than ${maxSeparators} separators. The rest of the file was not read`,
      });
  }
}

function isValidText({ line, lastLine }: CsvRecord, { badLines }: Source): boolean {
  for (let at = line; badLines.size > 0 && at <= lastLine; at += 1) if (badLines.has(at)) return false;
  return true;
}

function writeChunk(parser: Parser, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    parser.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

// If a record ends with CRLF, the raw text includes only the CR.
function lineBreaks(raw: string): number {
  return raw.match(/\r\n|\n|\r/g)?.length ?? 0;
}

function leadingBreaks(raw: string): string {
  return /^[\r\n]*/.exec(raw)?.[0] ?? '';
}

const quoteFaults: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'the row that begins here has an unclosed quote',
  CSV_INVALID_CLOSING_QUOTE:
    'the row that begins here has text after a closing quote; inside a quoted cell, double each quote',
  INVALID_OPENING_QUOTE:
    'the row that begins here has a quote inside an unquoted cell; enclose the cell in quotes, and double the quote inside it',
  CSV_MAX_RECORD_SIZE: 'the row that begins here is longer than 8 MiB; check for an unclosed quote',
};

function unreadable(error: CsvError, line: number): Unreadable {
  const raw: unknown = error['raw'];
  const start = line + (typeof raw === 'string' ? lineBreaks(leadingBreaks(raw)) : 0);
  const reason = quoteFaults[error.code] ?? printableLine(error.message, 200);
  return new Unreadable({ line: start, message: `${reason}. The rest of the file was not read` });
}
