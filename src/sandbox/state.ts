import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

const OWN_FOLDER = 0o700;
const OWN_FILE = 0o600;
/** Everything the sandbox keeps under its state directory; nothing else there is ever touched. */
const PARTS = ['tasks', 'faults', 'ids', 'store', 'bill.jsonl', 'journal.jsonl'];

/** Writes a whole file so that a reader sees all of it or none of it, also next to other processes. */
export function writeWhole(path: string, text: string | Uint8Array): void {
  makeFolder(dirname(path));
  const draft = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  writeFileSync(draft, text, { mode: OWN_FILE, flag: 'wx' });
  renameSync(draft, path);
}

/** The text of a file, or undefined if there is none. */
export function readWhole(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Names in a folder, in order; none if there is no folder. */
export function listFolder(path: string): string[] {
  try {
    return readdirSync(path).sort();
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Claims a name permanently: true for exactly one caller among all processes. */
export function claim(path: string): boolean {
  return writeOnce(path, '');
}

/** Writes a short text if there is no file yet: true for exactly one caller among all processes. */
export function writeOnce(path: string, text: string): boolean {
  makeFolder(dirname(path));
  try {
    writeFileSync(path, text, { mode: OWN_FILE, flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Appends records as JSON Lines in one write, so that those of several processes never mix. */
export function appendRecords(path: string, records: readonly object[]): void {
  makeFolder(dirname(path));
  // The line break comes first: a line torn by a kill then costs itself only, never the next one.
  const text = records.map((record) => `\n${JSON.stringify(record)}`).join('');
  appendFileSync(path, text, { mode: OWN_FILE });
}

/** The records of a JSON Lines file in order. Skips torn lines and lines of any other form. */
export function readRecords<T>(path: string, isRecord: (value: unknown) => value is T): T[] {
  return (readWhole(path) ?? '').split('\n').map(parseJson).filter(isRecord);
}

/**
 * Like {@link readRecords}, from a byte of the file on. `end` is the byte after the last whole record: start there to read
 * the records that are appended later.
 */
export function readRecordsFrom<T>(
  path: string,
  start: number,
  isRecord: (value: unknown) => value is T,
): { records: T[]; end: number } {
  const bytes = readFileSync(path);
  const lines = bytes.subarray(start).toString('utf8').split('\n');
  const records = lines.map(parseJson);
  // Another process may be about to write the rest of the last line.
  const unfinished = records.at(-1) === undefined ? Buffer.byteLength(lines.at(-1) ?? '') : 0;
  return { records: records.filter(isRecord), end: bytes.length - unfinished };
}

/** Whether a value is a JSON object, so neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** JSON as a value, or undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Forgets every task, charge, finding, object and fault count under a state directory. Issued keys stay, since a sandbox
 * that is running still honours them; files the sandbox did not make are left alone.
 */
export function reset(stateDir: string): void {
  for (const part of PARTS) rmSync(join(stateDir, part), { recursive: true, force: true });
}

function makeFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: OWN_FOLDER });
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}
