import { readBill } from './bill.ts';
import { chargedTwice } from './charged-twice.ts';
import type { Finding } from './finding.ts';
import { groupBy } from './group-by.ts';
import type { JournalEntry } from './journal.ts';
import { readJournal } from './journal.ts';
import { failureIgnored, neverFetched } from './left-behind.ts';
import { listTasks } from './tasks.ts';

export interface VerifyOptions {
  /**
   * The shortest time between any two polls of one task, in milliseconds. Left out, what specification 8 asks for is
   * what a client other than mgw has to keep while the task is open. mgw keeps it by itself wherever it matters,
   * and hurries here since it knows of the loopback.
   */
  minPollMs?: number;
  /** Whether the client says that all went well: only then is what it left behind a finding. Default true. */
  succeeded?: boolean;
  /** Judge only what happened at this time or later, in milliseconds since 1970; default everything. */
  since?: number;
  /** Milliseconds since 1970; default now. */
  now?: number;
}

/** Judges everything that clients did under a state directory. An empty list is a clean bill. */
export function verify(stateDir: string, options: VerifyOptions = {}): Finding[] {
  const { minPollMs, succeeded = true, since = 0, now = Date.now() } = options;
  const journal = readJournal(stateDir).filter(({ at }) => at >= since);
  const bill = readBill(stateDir, now).filter(({ at }) => at >= since);
  const tasks = listTasks(stateDir).filter(({ createdAt }) => createdAt >= since);
  return [
    ...chargedTwice(bill, journal),
    ...polledTooFast(journal, minPollMs),
    ...keysAtFileHost(journal),
    ...(succeeded ? neverFetched(tasks, journal, now) : []),
    ...(succeeded ? failureIgnored(tasks, journal, bill, now) : []),
  ];
}

/** Specification 8: "Poll every 5–10 seconds until finished". */
const POLL_MS = 5000;
/** The clock of a script that sleeps for 5 s is not exact. */
const SLACK = 0.9;

function polledTooFast(journal: readonly JournalEntry[], minPollMs: number | undefined): Finding[] {
  const polls = journal.filter((entry) => entry.kind === 'polled');
  const judged = minPollMs === undefined ? polls.filter(({ mgw }) => !mgw) : polls;
  const least = minPollMs ?? POLL_MS * SLACK;
  // A look at the status and a try at the content may follow each other.
  const addresses = groupBy(judged, ({ task, content }) => `${task} ${String(content)}`);
  return [...addresses.values()].flatMap((entries) => {
    const gap = shortestGap(entries, minPollMs === undefined);
    const task = entries[0]?.task ?? '';
    if (gap >= least) return [];
    const message = `Task ${task} was polled again after ${gap} ms; it should be ${minPollMs ?? POLL_MS} ms at least.`;
    return [{ kind: 'polled-too-fast' as const, tasks: [task], message }];
  });
}

/** Milliseconds between two polls; one of a task that has finished is no waiting, and may be excused. */
function shortestGap(polls: readonly { at: number; open?: boolean }[], whileOpen: boolean): number {
  const gaps = polls.slice(1).flatMap(({ at }, index) => {
    const before = polls[index];
    return before === undefined || (whileOpen && !before.open) ? [] : [at - before.at];
  });
  return gaps.reduce((shortest, gap) => Math.min(shortest, gap), Infinity);
}

function keysAtFileHost(journal: readonly JournalEntry[]): Finding[] {
  return journal.flatMap((entry) => {
    if (entry.kind !== 'key-at-file-host') return [];
    return [{ kind: entry.kind, tasks: [], message: `A key was sent to the file host: ${entry.path}` }];
  });
}
