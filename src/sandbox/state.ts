import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

const folderMode = 0o700;
const fileMode = 0o600;
/** Everything in the state folder that {@link reset} removes. */
const resettableNames = ['tasks', 'faults', 'ids', 'store', 'bill.jsonl', 'journal.jsonl'];

/** Writes a file atomically, even if other processes read or write it at the same time. */
export function writeWhole(path: string, text: string | Uint8Array): void {
  makeFolder(dirname(path));
  const draft = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  writeFileSync(draft, text, { mode: fileMode, flag: 'wx' });
  renameSync(draft, path);
}

/** Returns a file's text; undefined if the file does not exist. */
export function readWhole(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Returns the sorted names in a folder; an empty list if the folder does not exist. */
export function listFolder(path: string): string[] {
  try {
    return readdirSync(path).sort();
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Claims a name permanently. Returns true for exactly one caller across all processes. */
export function claim(path: string): boolean {
  return writeOnce(path, '');
}

/** Writes short text to a file that does not exist yet. Returns true for exactly one caller across all processes. */
export function writeOnce(path: string, text: string): boolean {
  makeFolder(dirname(path));
  try {
    writeFileSync(path, text, { mode: fileMode, flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Appends records as JSON Lines in one write, so that records from several processes never mix. */
export function appendRecords(path: string, records: readonly object[]): void {
  makeFolder(dirname(path));
  // Starts with a line break, so that a killed writer's incomplete line does not corrupt the next line.
  const text = records.map((record) => `\n${JSON.stringify(record)}`).join('');
  appendFileSync(path, text, { mode: fileMode });
}

/** Returns the records in a JSON Lines file, in order. Skips incomplete lines and lines that are not records. */
export function readRecords<T>(path: string, isRecord: (value: unknown) => value is T): T[] {
  return (readWhole(path) ?? '').split('\n').map(parseJson).filter(isRecord);
}

/**
 * Like {@link readRecords}, starting at a byte offset. `end` is the offset after the last complete record, from which
 * later records can be read.
 */
export function readRecordsFrom<T>(
  path: string,
  start: number,
  isRecord: (value: unknown) => value is T,
): { records: T[]; end: number } {
  const bytes = readFileSync(path);
  const lines = bytes.subarray(start).toString('utf8').split('\n');
  const records = lines.map(parseJson);
  // Another process may still be writing the last line.
  const unfinishedBytes = records.at(-1) === undefined ? Buffer.byteLength(lines.at(-1) ?? '') : 0;
  return { records: records.filter(isRecord), end: bytes.length - unfinishedBytes };
}

/** Whether a value is a JSON object, and neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Parses JSON; undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Removes every task, charge, journal entry, object and fault count from a state folder. Keeps the issued keys,
 * which a running sandbox still accepts, and files that the sandbox did not create.
 */
export function reset(stateDir: string): void {
  for (const name of resettableNames) rmSync(join(stateDir, name), { recursive: true, force: true });
}

/**
 * Creates a folder, with mode 0700, and its missing parents. Does not use Node's `recursive` option, which hangs if the
 * system refuses a name under an existing folder (/proc).
 */
export function makeFolder(path: string): void {
  if (isFolder(path)) return;
  if (dirname(path) !== path) makeFolder(dirname(path));
  try {
    mkdirSync(path, { mode: folderMode });
  } catch (error) {
    // Another process may have created the folder.
    if (!isFolder(path)) throw error;
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}
