import { createReadStream, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { extname } from 'node:path';
import { messageOf, usageError, type MgwError } from '../../errors.ts';
import { printableLine } from '../../printable.ts';
import * as z from 'zod/mini';
import { shownValue } from '../../protocols/violations.ts';
import { nameHint } from './fields.ts';
import type { ManifestRecord, Problem, WrittenField } from './record.ts';
import { defaultsOf, readRow, type Defaults, type Row } from './row.ts';
import { headSchema, manifestNames } from './schema.ts';
import { Source, Unreadable } from './source.ts';

/** What a manifest in YAML says apart from its rows. */
export interface Head {
  name?: string;
  output?: string;
  concurrency?: string;
  /** An amount in plain digits. */
  budget?: string;
}

/** A row, or what is wrong: with a row, where `isRow`, or with the file; in the order of the file. */
export type Item = { row: Row; record: ManifestRecord } | { problems: readonly Problem[]; isRow: boolean };

/** True for a record that need not be read as a row. */
export type LeftOut = (record: ManifestRecord, index: number) => Promise<boolean> | boolean;

/** A manifest that is there. Its rows are read as they are asked for, in memory that does not grow with their number. */
export interface Manifest {
  path: string;
  head: Head;
  /** The fields of every row that does not give them, the command line's among them. */
  defaults: readonly WrittenField[];
  /**
   * Reads the file from its beginning, each time; a record that `isLeftOut` is not read as a row. Its place counts from 1.
   * @throws MgwError('usage') if the file cannot be read, or was changed since it was opened.
   */
  items(isLeftOut?: LeftOut): AsyncGenerator<Item>;
}

type Format = 'JSON Lines' | 'CSV' | 'YAML';

const formats: Record<string, Format> = {
  '.jsonl': 'JSON Lines',
  '.ndjson': 'JSON Lines',
  '.csv': 'CSV',
  '.yaml': 'YAML',
  '.yml': 'YAML',
};

/**
 * Opens a manifest; `given` are the fields of `-d`.
 * @throws MgwError('usage') if there is no such file, or its name does not tell its format.
 */
export async function openManifest(path: string, given: readonly WrittenField[]): Promise<Manifest> {
  const format = formats[extname(path).toLowerCase()];
  if (format === undefined)
    throw usageError(`${shown(path)}: the name of a manifest ends in ${Object.keys(formats).join(', ')}.`);
  const opened = await statOf(path);
  if (format === 'YAML') {
    const { head, fields, ...content } = await contentOfYaml(path, given);
    return { path, head, defaults: fields, items: (isLeftOut) => itemsOf(content, isLeftOut) };
  }
  const items = async function* (isLeftOut?: LeftOut): AsyncGenerator<Item> {
    await checkSame(path, opened);
    yield* itemsOf(await contentOf(path, format, given), isLeftOut);
    await checkSame(path, opened);
  };
  return { path, head: {}, defaults: given, items };
}

interface Content {
  /** What is wrong with what is said for all rows: none of them is as it was meant then. */
  faults: readonly Problem[];
  defaults: Defaults;
  records: (
    report: (problem: Problem) => void,
  ) => AsyncIterable<ManifestRecord> | Iterable<ManifestRecord | Problem>;
}

async function* itemsOf(
  { faults, defaults, records }: Content,
  isLeftOut: LeftOut = () => false,
): AsyncGenerator<Item> {
  yield* faults.map(ofFile);
  if (faults.length > 0) return;
  const problems: Problem[] = [];
  const report = (problem: Problem): void => void problems.push(problem);
  try {
    let index = 0;
    for await (const record of records(report)) {
      index += 1;
      yield* problems.splice(0).map(ofFile);
      if (!('message' in record) && (await isLeftOut(record, index))) continue;
      if ('message' in record) report(record);
      const row = 'message' in record ? undefined : readRow(record, index, defaults, report);
      if (row === undefined || 'message' in record) yield { problems: problems.splice(0), isRow: true };
      else yield { row, record };
    }
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    report(error.problem);
  }
  yield* problems.splice(0).map(ofFile);
}

function ofFile(problem: Problem): Item {
  return { problems: [problem], isRow: false };
}

// The parsers are loaded where they are wanted: no other command waits for them.
async function contentOf(
  path: string,
  format: 'JSON Lines' | 'CSV',
  given: readonly WrittenField[],
): Promise<Content> {
  const faults: Problem[] = [];
  const defaults = defaultsOf(given, (problem) => faults.push(problem));
  const read =
    format === 'CSV' ? (await import('./csv.ts')).readCsv : (await import('./json-lines.ts')).readJsonLines;
  return { faults, defaults, records: (report) => read(new Source(bytesOf(path), report), report) };
}

async function contentOfYaml(
  path: string,
  given: readonly WrittenField[],
): Promise<Content & { head: Head; fields: readonly WrittenField[] }> {
  const faults: Problem[] = [];
  const report = (problem: Problem): void => void faults.push(problem);
  try {
    const { readYaml, maxYamlBytes } = await import('./yaml.ts');
    const manifest = readYaml(await textOf(new Source(bytesOf(path), report), maxYamlBytes), report);
    const fields = [...manifest.defaults, ...given];
    const defaults = defaultsOf(fields, report);
    return { head: readHead(manifest.head, report), fields, faults, defaults, records: manifest.records };
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
        message: 'the file is larger than 2 MiB; one in JSON Lines or CSV may be of any size',
      });
    blocks.push(bytes);
  }
  const [bad] = source.badLines;
  if (bad !== undefined) throw new Unreadable({ line: bad, message: 'nothing of the file was used' });
  return Buffer.concat(blocks).toString('utf8');
}

async function* bytesOf(path: string): AsyncGenerator {
  try {
    yield* createReadStream(path);
  } catch (error) {
    throw unreadableFile(path, error);
  }
}

async function statOf(path: string): Promise<Stats> {
  const found = await stat(path).catch((error: unknown) => {
    throw unreadableFile(path, error);
  });
  if (!found.isFile())
    throw usageError(`The manifest ${shown(path)} is not a plain file; it is read more than once.`);
  return found;
}

async function checkSame(path: string, opened: Stats): Promise<void> {
  const now = await statOf(path);
  if (now.ino !== opened.ino || now.size !== opened.size || now.mtimeMs !== opened.mtimeMs)
    throw usageError(`The manifest ${shown(path)} was changed while it was read: run it again.`);
}

function unreadableFile(path: string, error: unknown): MgwError {
  return usageError(`The manifest ${shown(path)} cannot be read: ${messageOf(error)}.`);
}

function shown(path: string): string {
  return printableLine(path, 300);
}

// Reports what is wrong and leaves it out.
function readHead(fields: readonly WrittenField[], report: (problem: Problem) => void): Head {
  const head: Record<string, unknown> = {};
  for (const { name, value, line } of fields) {
    if (value === null) continue;
    const result = z.safeParse(headSchema, { [name]: value });
    if (result.success) Object.assign(head, result.data);
    else if (!manifestNames.includes(name)) report({ line, message: unknownName(name) });
    else
      report({
        line,
        field: name,
        message: `${shownValue(value)} is not allowed; allowed: ${result.error.issues[0]?.message ?? ''}`,
      });
  }
  return head;
}

function unknownName(name: string): string {
  return `a manifest has no ${shownValue(name)}; ${nameHint(name, manifestNames)}`;
}
