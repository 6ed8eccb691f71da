import { createReadStream, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { extname } from 'node:path';
import { messageOf, systemCode, usageError, MgwError } from '../../errors.ts';
import type { JobKind } from '../../job.ts';
import { printableLine } from '../../printable.ts';
import { detectEncoding, Source, Unreadable } from './source.ts';
import { readHead, type Head } from './schema.ts';
import type { ManifestRecord, Problem, WrittenField } from './fields.ts';
import { defaultsOf, kindInference, readRow, type Defaults, type Row } from './row.ts';
import { namesIn } from './template.ts';
import { isObject, parseUniqueJson, type Json, type JsonObject } from '../../json.ts';

/** A row, or the problems with a row (`isRow` is true) or with the file. */
export type Item = { row: Row; record: ManifestRecord } | { problems: readonly Problem[]; isRow: boolean };

/** Whether a record can be skipped without parsing it as a row. */
export type IsSkipped = (record: ManifestRecord, index: number) => Promise<boolean> | boolean;

/** An opened manifest. Its rows are streamed, so memory use does not grow with their number. */
export interface Manifest {
  path: string;
  head: Head;
  /** Notes for the user about how the manifest was read. */
  notes?: readonly string[];
  /** Default fields for every row, including those from the command line. */
  defaults: readonly WrittenField[];
  /**
   * Yields the items in file order. Each call reads the file from its beginning. Skips records for which `isSkipped`
   * returns true. Positions start at 1.
   * @throws MgwError('usage') if the file cannot be read, or was changed since it was opened.
   */
  items(isSkipped?: IsSkipped): AsyncGenerator<Item>;
}

/** The values of `--format`. */
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

/** Options for opening a manifest. */
export interface OpenOptions {
  /** The fields from `-d`. */
  commandDefaults?: readonly WrittenField[];
  /** The format; if absent, the file extension determines it. */
  format?: Format | undefined;
  /** The content; if absent, the file at the path is read. */
  content?: Buffer | undefined;
  /** The names of columns that are not fields, as templates use them. */
  columns?: ReadonlySet<string> | undefined;
  /**
   * Finds the protocol of the given model, for rows without a protocol.
   * @throws MgwError('usage') if the model does not determine the protocol.
   */
  kindOf?: ((model: string) => Promise<JobKind>) | undefined;
}

/** Returns the format that a file's extension specifies; undefined if it specifies none. */
export const formatOf = (path: string): Format | undefined => formats[extname(path).toLowerCase()];

/** Opens a manifest. @throws MgwError('usage') if the file does not exist, or its format is unknown or unsupported. */
export async function openManifest(path: string, opening: OpenOptions = {}): Promise<Manifest> {
  const { content, commandDefaults = [] } = opening;
  const format = opening.format ?? formatOf(path);
  if (format === undefined) throw unknownFormatError(path);
  const initialStat = content === undefined ? await statOf(path) : undefined;
  const readChunks = (): AsyncIterable<Buffer> => (content === undefined ? bytesOf(path) : inChunks(content));
  const detected = await detectEncoding(readChunks());
  if (detected === 'workbook') throw workbookError(path);
  // Only spreadsheets write Windows-1252. In other formats, a line that is not UTF-8 is an error.
  const encoding = detected === 'windows-1252' && format !== 'csv' ? 'utf-8' : detected;
  const note = 'is not UTF-8, so it was read as Windows-1252. Check letters such as é in: mgw batch plan';
  const notes =
    encoding === 'windows-1252' ? [`${printablePath(path)} ${note} ${printablePath(path)} --json`] : [];
  const sourceOf = (report: (problem: Problem) => void): Source => new Source(readChunks(), report, encoding);
  if (format === 'yaml') {
    const { head, fields, ...rest } = await contentOfYaml(sourceOf, opening);
    return { path, head, notes, defaults: fields, items: (isSkipped) => itemsOf(rest, isSkipped) };
  }
  const items = async function* (isSkipped?: IsSkipped): AsyncGenerator<Item> {
    if (initialStat) await checkSame(path, initialStat);
    yield* itemsOf(await contentOf(sourceOf, format, opening), isSkipped);
    if (initialStat) await checkSame(path, initialStat);
  };
  return { path, head: {}, notes, defaults: commandDefaults, items };
}

function unknownFormatError(path: string): MgwError {
  if (path === '-') return usageError('Standard input requires --format csv, jsonl or yaml.');
  if (/\.(xls[xmb]?|ods|numbers|fods)$/i.test(path)) return workbookError(path);
  return usageError(
    `${printablePath(path)}: the name of a manifest must end in ${Object.keys(formats).join(', ')}. For any other name, use --format.`,
  );
}

function workbookError(path: string): MgwError {
  const name = path === '-' ? 'Standard input' : printablePath(path);
  return usageError(
    `${name} is a workbook, which mgw does not read. Save the sheet as CSV: in Excel, File > Save As > CSV UTF-8; in LibreOffice, File > Save As > Text CSV; in Numbers, File > Export To > CSV. Then use the CSV file.`,
  );
}

interface Content extends Pick<OpenOptions, 'columns' | 'kindOf'> {
  /** Problems with settings that apply to all rows. If there are any, no row is read. */
  faults: readonly Problem[];
  defaults: Defaults;
  records: (
    report: (problem: Problem) => void,
  ) => AsyncIterable<ManifestRecord> | Iterable<ManifestRecord | Problem>;
}

/** The maximum number of problems to report for a manifest. */
export const maxProblems = 10_000;

async function* itemsOf(content: Content, isSkipped: IsSkipped = () => false): AsyncGenerator<Item> {
  yield* content.faults.map(fileProblem);
  if (content.faults.length > 0) return;
  const problems: Problem[] = [];
  let count = 0;
  const report = (problem: Problem): void => {
    count += 1;
    const message = `the file has more than ${maxProblems} problems. The rest of the file was not read`;
    if (count > maxProblems) throw new Unreadable({ line: problem.line, message });
    problems.push(problem);
  };
  const { defaults, columns } = content;
  const inferKind = kindInference(defaults, content.kindOf);
  try {
    let index = 0;
    for await (const record of content.records(report)) {
      index += 1;
      yield* problems.splice(0).map(fileProblem);
      if (!('message' in record) && (await isSkipped(record, index))) continue;
      const kind = 'message' in record ? record : await inferKind(record);
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
  yield* problems.splice(0).map(fileProblem);
}

function fileProblem(problem: Problem): Item {
  return { problems: [problem], isRow: false };
}

type SourceOf = (report: (problem: Problem) => void) => Source;

// The CSV and YAML parsers are loaded only if the manifest needs them.
async function contentOf(sourceOf: SourceOf, format: Format, opening: OpenOptions): Promise<Content> {
  const { commandDefaults = [], columns, kindOf } = opening;
  const faults: Problem[] = [];
  const defaults = defaultsOf(commandDefaults, (problem) => faults.push(problem), columns);
  const read = format === 'csv' ? (await import('./csv.ts')).readCsv : readJsonLines;
  const records: Content['records'] = (report) => read(sourceOf(report), report);
  return { faults, defaults, records, columns, kindOf };
}

// Reads JSON Lines: one object per line. Skips empty lines.
async function* readJsonLines(
  source: Source,
  report: (problem: Problem) => void,
): AsyncGenerator<ManifestRecord> {
  for await (const { bytes, line: first } of source.blocks()) {
    const lines = bytes.toString('utf8').split('\n');
    for (const [index, text] of lines.entries()) {
      const line = first + index;
      if (text.trim() === '' || source.badLines.has(line)) continue;
      const value = parseLine(text, line, report);
      if (value === undefined) continue;
      if (isObject(value)) yield { line, fields: fieldsOf(value, line) };
      else report({ line, message: notAnObjectMessage(value) });
    }
  }
}

function fieldsOf(value: JsonObject, line: number): WrittenField[] {
  return Object.entries(value).map(([name, member]) => ({ name, value: member ?? null, line }));
}

function parseLine(text: string, line: number, report: (problem: Problem) => void): Json | undefined {
  try {
    return parseUniqueJson(text);
  } catch (error) {
    const reason = printableLine(messageOf(error), 200);
    report({ line, message: error instanceof RangeError ? reason : `it is not JSON: ${reason}` });
    return undefined;
  }
}

function notAnObjectMessage(value: Json): string {
  return Array.isArray(value)
    ? 'it is a list: JSON Lines requires one object per line, without enclosing brackets'
    : 'it is not an object: JSON Lines requires one per line, such as {"prompt":"a boat"}';
}

async function contentOfYaml(
  sourceOf: SourceOf,
  { commandDefaults = [], columns: templateColumns, kindOf }: OpenOptions,
): Promise<Content & { head: Head; fields: readonly WrittenField[] }> {
  const faults: Problem[] = [];
  const report = (problem: Problem): void => void faults.push(problem);
  try {
    const { readYaml, maxYamlBytes } = await import('./yaml.ts');
    const manifest = readYaml(await textOf(sourceOf(report), maxYamlBytes), report);
    const fields = [...manifest.defaults, ...commandDefaults];
    const head = readHead(manifest.head, report);
    const columns = new Set([...(templateColumns ?? []), ...namesIn(head.output ?? '')]);
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
    throw unreadableFileError(path, error);
  }
}

async function statOf(path: string): Promise<Stats> {
  const stats = await stat(path).catch((error: unknown) => {
    throw unreadableFileError(path, error);
  });
  if (!stats.isFile())
    throw usageError(
      `The manifest ${printablePath(path)} must be a regular file, because mgw reads it more than once.`,
    );
  return stats;
}

async function checkSame(path: string, initialStat: Stats): Promise<void> {
  const current = await statOf(path);
  if (
    current.ino !== initialStat.ino ||
    current.size !== initialStat.size ||
    current.mtimeMs !== initialStat.mtimeMs
  )
    throw changedError(path);
}

/** Returns the error for a manifest that was changed between two reads. */
export function changedError(path: string): MgwError {
  const text = `The manifest ${printablePath(path)} was changed while mgw was reading it.`;
  return new MgwError('usage', text, { retry: 'safe' });
}

function unreadableFileError(path: string, error: unknown): MgwError {
  const reason = systemCode(error) === 'ENOENT' ? 'no such file' : messageOf(error);
  return usageError(`The manifest ${printablePath(path)} cannot be read: ${reason}.`);
}

function printablePath(path: string): string {
  return printableLine(path, 300);
}
