import { join } from 'node:path';
import { subjectOf } from './bill.ts';
import type { Call, Reply } from './exchange.ts';
import { appendRecords, isObject, readRecords } from './state.ts';

/** Client actions that the bill does not record. `at` is in milliseconds since 1970. */
export type JournalEntry =
  /**
   * A client received a task's state. `open` is set if the task had not finished, `mgw` if the client's user agent is
   * mgw, and `content` if the client requested the result itself.
   */
  | { kind: 'polled'; at: number; task: string; open?: boolean; mgw?: boolean; content?: boolean }
  /** The response to a paid call was sent completely, so the client can know about the task. */
  | { kind: 'announced'; at: number; task: string }
  /** The bytes of a task's file from `start` up to, but not including, `end` were sent. `sample` counts from 0. */
  | { kind: 'fetched'; at: number; task: string; sample: number; start: number; end: number; total: number }
  /** A client received speech, or a response from the Responses endpoint, that failed or was cut off. */
  | { kind: 'broke-off'; at: number; task: string; subject?: string }
  /** A request to Protocol B's file host contained a key. */
  | { kind: 'key-at-file-host'; at: number; path: string };

/** Appends an entry. Several processes may append concurrently. */
export function note(stateDir: string, entry: JournalEntry): void {
  appendRecords(join(stateDir, 'journal.jsonl'), [entry]);
}

const entryKinds: readonly unknown[] = ['polled', 'announced', 'fetched', 'broke-off', 'key-at-file-host'];

function isEntry(value: unknown): value is JournalEntry {
  return isObject(value) && entryKinds.includes(value.kind) && typeof value.at === 'number';
}

/** Returns all entries in order. */
export function readJournal(stateDir: string): JournalEntry[] {
  return readRecords(join(stateDir, 'journal.jsonl'), isEntry);
}

/**
 * Returns the response to a paid call, with an `ended` callback that records that all of it was sent. A client that has
 * not received the response cannot know about the task.
 */
export function recordSent({ gateway }: Call, task: string, reply: Reply): Reply {
  const act = (): void => note(gateway.stateDir, { kind: 'announced', at: gateway.now(), task });
  return withEndCallback(reply, (_, isWhole) => isWhole && act());
}

/**
 * Returns a response that fails after a successful start, with an `ended` callback that records the failure if any byte
 * was sent.
 */
export function recordFailure({ gateway }: Call, task: string, text: string, reply: Reply): Reply {
  const entry: JournalEntry = { kind: 'broke-off', at: gateway.now(), task, ...subjectOf(text) };
  return withEndCallback(reply, (bytes) => bytes > 0 && note(gateway.stateDir, entry));
}

/**
 * Returns the response to a query, with an `ended` callback that records the query if all of the response was sent. (A
 * client that did not receive the whole response may query again immediately.) A task without `finishedAt` is still
 * open. `content` is set if the client requested the result itself.
 */
export function recordPoll(
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
  return withEndCallback(reply, (_, isWhole) => isWhole && note(gateway.stateDir, entry));
}

function withEndCallback(reply: Reply, act: (bytes: number, isWhole: boolean) => unknown): Reply {
  return {
    ...reply,
    onEnd: (bytes, isWhole) => {
      reply.onEnd?.(bytes, isWhole);
      act(bytes, isWhole);
    },
  };
}
