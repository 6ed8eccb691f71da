import type { BillLine } from './bill.ts';
import { readBill } from './bill.ts';
import type { JournalEntry } from './journal.ts';
import { readJournal } from './journal.ts';
import type { Task } from './tasks.ts';
import { listTasks, progressOf } from './tasks.ts';

/** Something that a careful client would not have done. */
export interface Finding {
  kind: 'charged-twice' | 'polled-too-fast' | 'key-at-file-host' | 'never-fetched';
  /** The tasks concerned. */
  tasks: string[];
  message: string;
}

export interface VerifyOptions {
  /**
   * The shortest time between two polls of one task, in milliseconds (specification 8 asks for 5 to 10 s). Left
   * out, polling is not judged: on loopback a client may poll as fast as it likes.
   */
  minPollMs?: number;
  /** Judge only what happened at this time or later, in milliseconds since 1970; default everything. */
  since?: number;
  /** Milliseconds since 1970; default now. */
  now?: number;
}

/** Judges everything that clients did under a state directory. An empty list is a clean bill. */
export function verify(stateDir: string, options: VerifyOptions = {}): Finding[] {
  const { minPollMs, since = 0, now = Date.now() } = options;
  const journal = readJournal(stateDir).filter(({ at }) => at >= since);
  return [
    ...chargedTwice(readBill(stateDir, now).filter(({ at }) => at >= since)),
    ...(minPollMs === undefined ? [] : polledTooFast(journal, minPollMs)),
    ...keysAtFileHost(journal),
    ...neverFetched(
      listTasks(stateDir).filter(({ createdAt }) => createdAt >= since),
      journal,
      now,
    ),
  ];
}

/** The same area, key and body: one intent. A charge that was given back is no reason not to try again. */
function chargedTwice(bill: readonly BillLine[]): Finding[] {
  const kept = bill.filter(({ refunded }) => !refunded);
  const intents = groupBy(kept, ({ area, key, fingerprint }) => `${area} ${key} ${fingerprint}`);
  return [...intents.values()]
    .filter(({ length }) => length > 1)
    .map((lines) => ({
      kind: 'charged-twice',
      tasks: lines.map(({ task }) => task),
      message: `The same request was charged ${lines.length} times, ${total(lines)} credits in all.`,
    }));
}

function polledTooFast(journal: readonly JournalEntry[], minPollMs: number): Finding[] {
  const polls = groupBy(
    journal.filter((entry) => entry.kind === 'polled'),
    ({ task }) => task,
  );
  return [...polls].flatMap(([task, entries]) => {
    const gap = shortestGap(entries.map(({ at }) => at));
    if (gap >= minPollMs) return [];
    const message = `Task ${task} was polled again after ${gap} ms; it should be ${minPollMs} ms at least.`;
    return [{ kind: 'polled-too-fast' as const, tasks: [task], message }];
  });
}

function keysAtFileHost(journal: readonly JournalEntry[]): Finding[] {
  return journal.flatMap((entry) => {
    if (entry.kind !== 'key-at-file-host') return [];
    return [{ kind: entry.kind, tasks: [], message: `A key was sent to the file host: ${entry.path}` }];
  });
}

/** A task whose handle got lost on its way to the client cannot be fetched by it, and is no finding. */
function neverFetched(tasks: readonly Task[], journal: readonly JournalEntry[], now: number): Finding[] {
  const fetched = new Set(
    journal.map((entry) => (entry.kind === 'fetched' ? `${entry.task}/${entry.sample}` : '')),
  );
  const known = new Set(
    journal.flatMap((entry) => (entry.kind === 'told' || entry.kind === 'polled' ? [entry.task] : [])),
  );
  return tasks.flatMap((task) => {
    if (!known.has(task.id)) return [];
    const missing = deliveredOf(task, now).filter((sample) => !fetched.has(`${task.id}/${sample}`));
    if (missing.length === 0) return [];
    const message = `Task ${task.id} finished, and ${missing.length} of its results was never fetched.`;
    return [{ kind: 'never-fetched' as const, tasks: [task.id], message }];
  });
}

/** Numbers of the samples that can be fetched at `now`. */
function deliveredOf(task: Task, now: number): number[] {
  const { outcome, samples } = task;
  if (outcome.end !== 'succeeds' || progressOf(task, now).state !== 'succeeded') return [];
  return Array.from({ length: Math.max(0, samples - outcome.filtered) }, (_, sample) => sample);
}

function shortestGap(times: readonly number[]): number {
  const gaps = times.slice(1).map((time, index) => time - (times[index] ?? time));
  return gaps.reduce((shortest, gap) => Math.min(shortest, gap), Infinity);
}

function total(lines: readonly BillLine[]): number {
  return lines.reduce((sum, { amount }) => sum + amount, 0);
}

function groupBy<T>(items: readonly T[], nameOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(nameOf(item));
    if (group) group.push(item);
    else groups.set(nameOf(item), [item]);
  }
  return groups;
}
