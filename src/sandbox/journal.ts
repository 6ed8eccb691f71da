import { join } from 'node:path';
import type { Call } from './exchange.ts';
import { appendRecords, readRecords } from './state.ts';

/** What clients did that the bill does not show. `at` is in milliseconds since 1970. */
export type JournalEntry =
  /** A task was asked for; `open` where it had not finished, `mgw` where the client is mgw by its own word. */
  | { kind: 'polled'; at: number; task: string; open?: boolean; mgw?: boolean }
  /** The answer that names a new task was sent whole and unharmed: its client can know of it. */
  | { kind: 'told'; at: number; task: string }
  /** The last byte of a task's file was sent; `sample` counts from 0. */
  | { kind: 'fetched'; at: number; task: string; sample: number }
  /** A request to B's file host carried a key. */
  | { kind: 'key-at-file-host'; at: number; path: string };

/** Appends an entry; safe beside other processes. */
export function note(stateDir: string, entry: JournalEntry): void {
  appendRecords(join(stateDir, 'journal.jsonl'), [entry]);
}

/** Notes that `call` asked for a task; without `finishedAt` it is still open. */
export function notePoll(
  { gateway, headers }: Call,
  task: string,
  { finishedAt }: { finishedAt?: number },
): void {
  const mgw = headers['user-agent']?.startsWith('mgw/') ?? false;
  note(gateway.stateDir, { kind: 'polled', at: gateway.now(), task, open: finishedAt === undefined, mgw });
}

/** All entries in the order they were written. */
export function readJournal(stateDir: string): JournalEntry[] {
  return readRecords(join(stateDir, 'journal.jsonl')) as JournalEntry[];
}
