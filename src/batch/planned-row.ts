import { messageOf, usageError } from '../errors.ts';
import { variableName } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';
import type { Job } from '../job.ts';
import type { RowState, RowStatus } from './row-state.ts';
import { countOf, extensionOf, fieldOf, hashOf, kindOf, modelOf, type Work } from './work.ts';
import { printableLine } from '../printable.ts';
import { fillColumns, outputPath, slugOf, type OutputPlace } from '../jobs/output.ts';

/** A row with its name, its request and its position. */
export interface NamedRow {
  row: Row;
  work: Work;
  id: string;
  /** The key of its jobs: `NAME/ID`. */
  key: string;
  /** The hash of its request, in which rows that it waits for are named by their ids. */
  hash: string;
  /** The absolute path of its file; may contain `{job}` and `{n}`, which are not known yet. */
  path: string;
  /** The folder that must contain its files. */
  root: string;
  /** Its key in the cache of done rows. */
  mark?: string | undefined;
  /** The ids of the rows whose videos it uses. */
  waitsFor?: readonly string[];
  /** The row that blocks it or made it stale. */
  because?: Root;
}

/** The row that blocks another or made it stale. */
export interface Root {
  id: string;
  /** Undefined if the row is invalid. */
  state?: RowState;
  job?: Job | undefined;
}

/** A row, and its line. */
export type PlannedRow = NamedRow & RowStatus;

/** Returns the display name of a row: its id, or its prompt if it has none. */
export function labelOf({ row, id, work }: Pick<NamedRow, 'row' | 'id' | 'work'>): string {
  if (row.id !== undefined) return id;
  const text = fieldOf(work, 'prompt');
  return typeof text === 'string' ? JSON.stringify(printableLine(text, 40)) : id;
}

/** Digits of the hash that names a row without an id. */
const hashDigits = 16;

/** Determines a row's name and the path of its file. @throws MgwError('usage') naming the problem with its output. */
export function named(row: Row, work: Work, name: string, place: OutputPlace): NamedRow {
  const hash = hashOf(work);
  const id = row.id ?? hash.slice(0, hashDigits);
  const prompt = fieldOf(work, 'prompt');
  const seed = fieldOf(work, 'seed');
  const values = {
    id,
    key: `${name}/${id}`,
    name,
    ext: extensionOf(work),
    index: String(row.index),
    model: modelOf(work),
    protocol: kindOf(work),
    seed: seed === undefined ? undefined : JSON.stringify(seed),
    slug: typeof prompt === 'string' ? slugOf(prompt) : undefined,
    job: undefined,
    n: undefined,
  };
  const { columns = {} } = row;
  const template = fillColumns(place.template, (column) => columns[variableName(column)]);
  const path = pathOf({ ...place, template }, values, row.output);
  if (work.protocol === 'tts' && /\{job\}/.test(path))
    throw usageError('{job} is not known before speech is sent: leave it out');
  const root = place.root ?? place.folder;
  const own = countOf(work) === 1 ? path.replaceAll('{n}', '1') : path;
  return { row, work, id, key: `${name}/${id}`, hash, path: own, root };
}

function pathOf(...given: Parameters<typeof outputPath>): string {
  try {
    return outputPath(...given);
  } catch (error) {
    throw usageError(messageOf(error));
  }
}
