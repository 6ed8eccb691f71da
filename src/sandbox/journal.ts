import { join } from 'node:path';
import { subjectOf } from './bill.ts';
import type { Call, Reply } from './exchange.ts';
import { appendRecords, isObject, readRecords } from './state.ts';

/** What clients did that the bill does not show. `at` is in milliseconds since 1970. */
export type JournalEntry =
  /**
   * A client learned the state of a task. `open` if the task had not finished, `mgw` if the client's user agent is mgw,
   * `content` if it asked for the result itself.
   */
  | { kind: 'polled'; at: number; task: string; open?: boolean; mgw?: boolean; content?: boolean }
  /** The answer to a paid call was sent whole and unharmed: its client can know of the task. */
  | { kind: 'told'; at: number; task: string }
  /** Bytes of a task's file were sent, up to `end` (not included) of `total`; `sample` counts from 0. */
  | { kind: 'fetched'; at: number; task: string; sample: number; start: number; end: number; total: number }
  /** A stream of speech or of a response did not end well, and that is what its client was sent. */
  | { kind: 'broke-off'; at: number; task: string; subject?: string }
  /** A request to B's file host carried a key. */
  | { kind: 'key-at-file-host'; at: number; path: string };

/** Appends an entry; safe while other processes write, too. */
export function note(stateDir: string, entry: JournalEntry): void {
  appendRecords(join(stateDir, 'journal.jsonl'), [entry]);
}

const KINDS: readonly unknown[] = ['polled', 'told', 'fetched', 'broke-off', 'key-at-file-host'];

function isEntry(value: unknown): value is JournalEntry {
  return isObject(value) && KINDS.includes(value.kind) && typeof value.at === 'number';
}

/** All entries in the order they were written. */
export function readJournal(stateDir: string): JournalEntry[] {
  return readRecords(join(stateDir, 'journal.jsonl'), isEntry);
}

/** The answer to a paid call, noted once it has been sent: a client that never got it cannot know of the task. */
export function tell({ gateway }: Call, task: string, reply: Reply): Reply {
  const act = (): void => note(gateway.stateDir, { kind: 'told', at: gateway.now(), task });
  return whenOver(reply, (_, whole) => whole && act());
}

/** An answer that is no success although it began as one: noted once its client was sent any of it. */
export function tellFailure({ gateway }: Call, task: string, text: string, reply: Reply): Reply {
  const entry: JournalEntry = { kind: 'broke-off', at: gateway.now(), task, ...subjectOf(text) };
  return whenOver(reply, (bytes) => bytes > 0 && note(gateway.stateDir, entry));
}

/**
 * The answer to a query, noted once it has been sent: a client whose answer broke off may ask again at once. A task
 * without `finishedAt` is still open; `content` says that the result itself was asked for.
 */
export function notePoll(
  { gateway, headers }: Call,
  task: string,
  { finishedAt }: { finishedAt?: number },
  reply: Reply,
  content?: true,
): Reply {
  const mgw = headers['user-agent']?.startsWith('mgw/') ?? false;
  const open = finishedAt === undefined;
  const at = gateway.now();
  const entry: JournalEntry = { kind: 'polled', at, task, open, mgw, content };
  return whenOver(reply, (_, whole) => whole && note(gateway.stateDir, entry));
}

function whenOver(reply: Reply, act: (bytes: number, whole: boolean) => unknown): Reply {
  return {
    ...reply,
    ended: (bytes, whole) => {
      reply.ended?.(bytes, whole);
      act(bytes, whole);
    },
  };
}
