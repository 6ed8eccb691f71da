import { messageOf, usageError } from '../errors.ts';
import { variableName } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';
import type { Job } from '../job.ts';
import type { RowState, Standing } from './row-state.ts';
import { countOf, extensionOf, fieldOf, hashOf, kindOf, modelOf, type Work } from './work.ts';
import { printableLine } from '../printable.ts';
import { fillColumns, outputPath, slugOf, type OutputPlace } from '../jobs/output-template.ts';

/** A row with its name, its work and its place. */
export interface NamedRow {
  row: Row;
  work: Work;
  id: string;
  /** What names its jobs: `NAME/ID`. */
  key: string;
  /** The hash of what it asks for, with rows that it waits for by their ids. */
  hash: string;
  /** The absolute path of its file, with `{job}` and `{n}` if they are not known yet. */
  path: string;
  /** The folder that its files never leave. */
  root: string;
  /** What it is remembered by. */
  mark?: string | undefined;
  /** The ids of the rows whose videos it takes. */
  waitsFor?: readonly string[];
  /** The row for which it is blocked or stale. */
  because?: Root;
}

/** The row for which another is blocked or stale. */
export interface Root {
  id: string;
  /** Undefined if the row is invalid. */
  state?: RowState;
  job?: Job | undefined;
}

/** A row, and its line. */
export type PlannedRow = NamedRow & Standing;

/** How a row is shown to a person: by its id, or by what it asks for if it has none. */
export function labelOf({ row, id, work }: Pick<NamedRow, 'row' | 'id' | 'work'>): string {
  if (row.id !== undefined) return id;
  const text = fieldOf(work, 'prompt');
  return typeof text === 'string' ? JSON.stringify(printableLine(text, 40)) : id;
}

/** Digits of the hash that names a row without an id. */
const hashDigits = 16;

/**
 * Gives a row its name and the place of its file.
 * @throws MgwError('usage') saying what is wrong with its output.
 */
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
