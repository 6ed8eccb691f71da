import { createReadStream, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { extname } from 'node:path';
import { messageOf, systemCode, usageError, type MgwError } from '../../errors.ts';
import type { JobKind } from '../../job.ts';
import { printableLine } from '../../printable.ts';
import { detectEncoding, Source, Unreadable } from './source.ts';
import { readHead, type Head } from './schema.ts';
import type { ManifestRecord, Problem, WrittenField } from './fields.ts';
import { defaultsOf, kindInference, readRow, type Defaults, type Row } from './row.ts';
import { namesIn } from './template.ts';
import { isObject, parseBodyJson, type Json, type JsonObject } from '../../json.ts';

/** A row, or a problem with a row (if `isRow`) or with the file, in the order of the file. */
export type Item = { row: Row; record: ManifestRecord } | { problems: readonly Problem[]; isRow: boolean };

/** Whether a record can be skipped without reading it as a row. */
export type IsLeftOut = (record: ManifestRecord, index: number) => Promise<boolean> | boolean;

/** An opened manifest. Its rows are streamed, in memory that does not grow with their number. */
export interface Manifest {
  path: string;
  head: Head;
  /** Notes for the user about how the manifest was read. */
  notes?: readonly string[];
  /** Default fields of every row, including those of the command line. */
  defaults: readonly WrittenField[];
  /**
   * Reads the file from its beginning each time. Records for which `isLeftOut` is true are skipped. Positions count
   * from 1.
   * @throws MgwError('usage') if the file cannot be read, or was changed since it was opened.
   */
  items(isLeftOut?: IsLeftOut): AsyncGenerator<Item>;
}

/** The format of a manifest, as `--format` names it. */
export const formatNames = ['csv', 'jsonl', 'yaml'] as const;
export type Format = (typeof formatNames)[number];

const formats: Record<string, Format> = {
  '.jsonl': 'jsonl',
  '.ndjson': 'jsonl',
  '.csv': 'csv',
  '.tsv': 'csv',
  '.yaml': 'yaml',
  '.yml': 'yaml',
};

/** The options for opening a manifest. */
export interface Opening {
  /** The fields of `-d`. */
  given?: readonly WrittenField[];
  /** The format; if absent, the file extension determines it. */
  format?: Format | undefined;
  /** The content; the file of the path is read if absent. */
  content?: Buffer | undefined;
  /** Names of columns that are not fields, as templates use them. */
  columns?: ReadonlySet<string> | undefined;
  /**
   * Finds the protocol of a model, for rows without one.
   * @throws MgwError('usage') if the model does not determine it.
   */
  kindOf?: ((model: string) => Promise<JobKind>) | undefined;
}

/** Opens a manifest. @throws MgwError('usage') if there is no such file, or its format is unknown or unsupported. */
export async function openManifest(path: string, opening: Opening = {}): Promise<Manifest> {
  const { content, given = [] } = opening;
  const format = opening.format ?? formats[extname(path).toLowerCase()];
  if (format === undefined) throw unknownFormat(path);
  const opened = content === undefined ? await statOf(path) : undefined;
  const bytes = (): AsyncIterable<Buffer> => (content === undefined ? bytesOf(path) : inChunks(content));
  const found = await detectEncoding(bytes());
  if (found === 'workbook') throw isWorkbook(path);
  // Only a spreadsheet writes Windows-1252; in the other formats a line that is not UTF-8 is an error.
  const encoding = found === 'windows-1252' && format !== 'csv' ? 'utf-8' : found;
  const note = 'is not UTF-8, so it was read as Windows-1252. Check letters such as é in: mgw batch plan';
  const notes = encoding === 'windows-1252' ? [`${shown(path)} ${note} ${shown(path)} --json`] : [];
  const sourceOf = (report: (problem: Problem) => void): Source => new Source(bytes(), report, encoding);
  if (format === 'yaml') {
    const { head, fields, ...rest } = await contentOfYaml(sourceOf, opening);
    return { path, head, notes, defaults: fields, items: (isLeftOut) => itemsOf(rest, isLeftOut) };
  }
  const items = async function* (isLeftOut?: IsLeftOut): AsyncGenerator<Item> {
    if (opened) await checkSame(path, opened);
    yield* itemsOf(await contentOf(sourceOf, format, opening), isLeftOut);
    if (opened) await checkSame(path, opened);
  };
  return { path, head: {}, notes, defaults: given, items };
}

function unknownFormat(path: string): MgwError {
  if (path === '-') return usageError('Standard input needs --format csv, jsonl or yaml.');
  if (/\.(xls[xmb]?|ods|numbers|fods)$/i.test(path)) return isWorkbook(path);
  return usageError(
    `${shown(path)}: the name of a manifest must end in ${Object.keys(formats).join(', ')}. For any other name, use --format.`,
  );
}

function isWorkbook(path: string): MgwError {
  const name = path === '-' ? 'Standard input' : shown(path);
  return usageError(
    `${name} is a workbook, which mgw does not read. Save the sheet as CSV: in Excel, File > Save As > CSV UTF-8; in LibreOffice, File > Save As > Text CSV; in Numbers, File > Export To > CSV. Then give mgw the CSV.`,
  );
}

interface Content extends Pick<Opening, 'columns' | 'kindOf'> {
  /** Problems with settings of all rows. If there are any, no row is read. */
  faults: readonly Problem[];
  defaults: Defaults;
  records: (
    report: (problem: Problem) => void,
  ) => AsyncIterable<ManifestRecord> | Iterable<ManifestRecord | Problem>;
}

/** The maximum number of problems of a manifest. */
export const maxProblems = 10_000;

async function* itemsOf(content: Content, isLeftOut: IsLeftOut = () => false): AsyncGenerator<Item> {
  yield* content.faults.map(ofFile);
  if (content.faults.length > 0) return;
  const problems: Problem[] = [];
  let count = 0;
  const report = (problem: Problem): void => {
    count += 1;
    const message = `the file has more than ${maxProblems} problems. The rest was not read`;
    if (count > maxProblems) throw new Unreadable({ line: problem.line, message });
    problems.push(problem);
  };
  const { defaults, columns } = content;
  const inferred = kindInference(defaults, content.kindOf);
  try {
    let index = 0;
    for await (const record of content.records(report)) {
      index += 1;
      yield* problems.splice(0).map(ofFile);
      if (!('message' in record) && (await isLeftOut(record, index))) continue;
      const kind = 'message' in record ? record : await inferred(record);
      if ('message' in record || typeof kind === 'object') {
        report(kind as Problem);
        yield { problems: problems.splice(0), isRow: true };
        continue;
      }
      const row = readRow(record, index, { defaults, columns, kind }, report);
      yield row === undefined ? { problems: problems.splice(0), isRow: true } : { row, record };
    }
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    problems.push(error.problem);
  }
  yield* problems.splice(0).map(ofFile);
}

function ofFile(problem: Problem): Item {
  return { problems: [problem], isRow: false };
}

type SourceOf = (report: (problem: Problem) => void) => Source;

// The parsers of CSV and YAML are loaded only if the manifest needs them.
async function contentOf(sourceOf: SourceOf, format: Format, opening: Opening): Promise<Content> {
  const { given = [], columns, kindOf } = opening;
  const faults: Problem[] = [];
  const defaults = defaultsOf(given, (problem) => faults.push(problem), columns);
  const read = format === 'csv' ? (await import('./csv.ts')).readCsv : readJsonLines;
  const records: Content['records'] = (report) => read(sourceOf(report), report);
  return { faults, defaults, records, columns, kindOf };
}

// Reads JSON Lines: an object on each line. Empty lines are skipped.
async function* readJsonLines(
  source: Source,
  report: (problem: Problem) => void,
): AsyncGenerator<ManifestRecord> {
  for await (const { bytes, line: first } of source.blocks()) {
    const lines = bytes.toString('utf8').split('\n');
    for (const [index, text] of lines.entries()) {
      const line = first + index;
      if (text.trim() === '' || source.badLines.has(line)) continue;
      const value = parsed(text, line, report);
      if (value === undefined) continue;
      if (isObject(value)) yield { line, fields: fieldsOf(value, line) };
      else report({ line, message: notAnObject(value) });
    }
  }
}

function fieldsOf(value: JsonObject, line: number): WrittenField[] {
  return Object.entries(value).map(([name, member]) => ({ name, value: member ?? null, line }));
}

function parsed(text: string, line: number, report: (problem: Problem) => void): Json | undefined {
  try {
    return parseBodyJson(text);
  } catch (error) {
    const why = printableLine(messageOf(error), 200);
    report({ line, message: error instanceof RangeError ? why : `it is not JSON: ${why}` });
    return undefined;
  }
}

function notAnObject(value: Json): string {
  return Array.isArray(value)
    ? 'it is a list: JSON Lines needs one object on each line, without brackets around them'
    : 'it is not an object: JSON Lines needs one on each line, such as {"prompt":"a boat"}';
}

async function contentOfYaml(
  sourceOf: SourceOf,
  { given = [], columns: named, kindOf }: Opening,
): Promise<Content & { head: Head; fields: readonly WrittenField[] }> {
  const faults: Problem[] = [];
  const report = (problem: Problem): void => void faults.push(problem);
  try {
    const { readYaml, maxYamlBytes } = await import('./yaml.ts');
    const manifest = readYaml(await textOf(sourceOf(report), maxYamlBytes), report);
    const fields = [...manifest.defaults, ...given];
    const head = readHead(manifest.head, report);
    const columns = new Set([...(named ?? []), ...namesIn(head.output ?? '')]);
    const defaults = defaultsOf(fields, report, columns);
    const { records } = manifest;
    return { head, fields, faults, defaults, records, columns, kindOf };
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    report(error.problem);
    return { head: {}, fields: [], faults, defaults: new Map(), records: () => [] };
  }
}

async function textOf(source: Source, maxBytes: number): Promise<string> {
  const blocks: Buffer[] = [];
  let size = 0;
  for await (const { bytes } of source.blocks()) {
    size += bytes.length;
    if (size > maxBytes)
      throw new Unreadable({
        line: 1,
        message: 'a YAML manifest may have at most 2 MiB; JSON Lines and CSV have no limit',
      });
    blocks.push(bytes);
  }
  const [bad] = source.badLines;
  if (bad !== undefined) throw new Unreadable({ line: bad, message: 'no part of the file was used' });
  return Buffer.concat(blocks).toString('utf8');
}

async function* inChunks(content: Buffer): AsyncGenerator<Buffer> {
  const size = 64 * 1024;
  for (let at = 0; at < content.length; at += size)
    yield await Promise.resolve(content.subarray(at, at + size));
}

async function* bytesOf(path: string): AsyncGenerator<Buffer> {
  try {
    yield* createReadStream(path) as AsyncIterable<Buffer>;
  } catch (error) {
    throw unreadableFile(path, error);
  }
}

async function statOf(path: string): Promise<Stats> {
  const found = await stat(path).catch((error: unknown) => {
    throw unreadableFile(path, error);
  });
  if (!found.isFile())
    throw usageError(
      `The manifest ${shown(path)} is not a regular file, which it must be because mgw reads it more than once.`,
    );
  return found;
}

async function checkSame(path: string, opened: Stats): Promise<void> {
  const now = await statOf(path);
  if (now.ino !== opened.ino || now.size !== opened.size || now.mtimeMs !== opened.mtimeMs)
    throw usageError(`The manifest ${shown(path)} was changed while it was read: run the command again.`);
}

function unreadableFile(path: string, error: unknown): MgwError {
  const why = systemCode(error) === 'ENOENT' ? 'there is no such file' : messageOf(error);
  return usageError(`The manifest ${shown(path)} cannot be read: ${why}.`);
}

function shown(path: string): string {
  return printableLine(path, 300);
}
