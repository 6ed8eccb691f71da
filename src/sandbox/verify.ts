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
   * The shortest time between any two polls of one task, in milliseconds. Left out, what specification 8 asks for is
   * what a client other than mgw has to keep while the task is open. mgw keeps it by itself wherever it matters,
   * and hurries here since it knows of the loopback.
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
    ...polledTooFast(journal, minPollMs),
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

/** Specification 8: "Poll every 5–10 seconds until finished". */
const POLL_MS = 5000;
/** The clock of a script that sleeps for 5 s is not exact. */
const SLACK = 0.9;

function polledTooFast(journal: readonly JournalEntry[], minPollMs: number | undefined): Finding[] {
  const polls = journal.filter((entry) => entry.kind === 'polled');
  const judged = minPollMs === undefined ? polls.filter(({ mgw }) => !mgw) : polls;
  const least = minPollMs ?? POLL_MS * SLACK;
  return [...groupBy(judged, ({ task }) => task)].flatMap(([task, entries]) => {
    const gap = shortestGap(entries, minPollMs === undefined);
    if (gap >= least) return [];
    const message = `Task ${task} was polled again after ${gap} ms; it should be ${minPollMs ?? POLL_MS} ms at least.`;
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

/** Milliseconds between two polls; one of a task that has finished is no waiting, and may be excused. */
function shortestGap(polls: readonly { at: number; open?: boolean }[], whileOpen: boolean): number {
  const gaps = polls.slice(1).flatMap(({ at }, index) => {
    const before = polls[index];
    return before === undefined || (whileOpen && !before.open) ? [] : [at - before.at];
  });
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
