import { type BillLine, readBill, totalOf } from './bill.ts';
import { type JournalEntry, readJournal } from './journal.ts';
import { isFailure, listTasks, progressOf, type Task } from './tasks.ts';

interface VerifyOptions {
  /**
   * The minimum time between two polls of a task, in milliseconds. The default is the interval of specification 8, and
   * applies only to open tasks and clients other than mgw. (mgw polls faster only on loopback.)
   */
  minPollMs?: number;
  /**
   * Whether the client reported success. Default: true. Unfetched results and ignored failures are findings only if the
   * client reported success.
   */
  succeeded?: boolean;
  /** Ignores everything before this time, in milliseconds since 1970. */
  since?: number;
  /** The current time in milliseconds since 1970. Default: the system clock. */
  now?: number;
}

/** Returns the mistakes of all clients that used a state directory. */
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
/** The required fraction of {@link POLL_MS}, because a script that sleeps for 5 s may poll slightly sooner. */
const SLACK = 0.9;

function polledTooFast(journal: readonly JournalEntry[], minPollMs: number | undefined): Finding[] {
  const polls = journal.filter((entry) => entry.kind === 'polled');
  const judged = minPollMs === undefined ? polls.filter(({ mgw }) => !mgw) : polls;
  const least = minPollMs ?? POLL_MS * SLACK;
  // Separates content requests from polls, because a client may request the content immediately after the status.
  const addresses = groupBy(judged, ({ task, content }) => `${task} ${String(content)}`);
  return [...addresses.values()].flatMap((entries) => {
    const gap = shortestGap(entries, minPollMs === undefined);
    const task = entries[0]?.task ?? '';
    if (gap >= least) return [];
    const message = `Task ${task} was polled again after ${gap} ms; the minimum is ${minPollMs ?? POLL_MS} ms.`;
    return [{ kind: 'polled-too-fast' as const, tasks: [task], message }];
  });
}

/**
 * Returns the shortest time between two consecutive polls, in ms. With `whileOpen`, ignores polls of a finished task.
 */
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

/** A client's mistake. */
export interface Finding {
  kind: 'charged-twice' | 'polled-too-fast' | 'key-at-file-host' | 'never-fetched' | 'failure-ignored';
  /** The ids of the tasks in the finding. */
  tasks: string[];
  message: string;
}

/**
 * Finds double charges: the same request charged again or, after a lost response, a different request for the same
 * prompt. A retry after a refund is not a double charge.
 */
function chargedTwice(bill: readonly BillLine[], journal: readonly JournalEntry[]): Finding[] {
  const kept = bill.filter(({ refunded }) => !refunded);
  const told = new Set(journal.flatMap((entry) => (entry.kind === 'told' ? [entry.task] : [])));
  return [...repeats(kept), ...variants(kept, told)];
}

/** Finds requests with the same area, key and body. */
function repeats(bill: readonly BillLine[]): Finding[] {
  const intents = groupBy(bill, ({ area, key, fingerprint }) => `${area} ${key} ${fingerprint}`);
  return [...intents.values()]
    .filter(({ length }) => length > 1)
    .map((lines) => found(lines, `The same request was charged ${lines.length} times`));
}

/**
 * Finds different requests with the same key and the same prompt, text or input, if the response to the first request
 * was lost. If that response was not lost, the client requested several versions intentionally.
 */
function variants(bill: readonly BillLine[], told: ReadonlySet<string>): Finding[] {
  const wishes = groupBy(
    bill.filter(({ subject }) => subject !== undefined),
    ({ key, area, subject }) => `${key} ${kindOf(area)} ${subject ?? ''}`,
  );
  return [...wishes.values()].flatMap((lines) => {
    const [first] = lines;
    const differ = new Set(lines.map(({ fingerprint }) => fingerprint)).size > 1;
    if (first === undefined || told.has(first.task) || !differ) return [];
    return [
      found(
        lines,
        `After the response to ${first.task} was lost, a different request asked for the same result: charged ${lines.length} times`,
      ),
    ];
  });
}

/**
 * Returns the kind of an area. The three video protocols are one kind, because they produce the same kind of result.
 */
function kindOf(area: BillLine['area']): string {
  return area === 'a' || area === 'b' || area === 'c' ? 'video' : area;
}

function found(lines: readonly BillLine[], message: string): Finding {
  return {
    kind: 'charged-twice',
    tasks: lines.map(({ task }) => task),
    message: `${message}, ${totalOf(lines)} credits in all.`,
  };
}

/** Finds results that were announced to a client but not fetched completely. */
function neverFetched(tasks: readonly Task[], journal: readonly JournalEntry[], now: number): Finding[] {
  const spans = groupBy(
    journal.filter((entry) => entry.kind === 'fetched'),
    ({ task, sample }) => `${task}/${sample}`,
  );
  const known = knownTasks(journal);
  return tasks.flatMap((task) => {
    if (!known.has(task.id)) return [];
    const missing = deliveredOf(task, now).filter((sample) => !isWhole(spans.get(`${task.id}/${sample}`)));
    if (missing.length === 0) return [];
    const were = missing.length === 1 ? 'was' : 'were';
    const message = `Task ${task.id} finished, but ${missing.length} of its results ${were} never fetched completely.`;
    return [{ kind: 'never-fetched' as const, tasks: [task.id], message }];
  });
}

/** Finds failed tasks and broken streams that the client did not retry, although it reported success. */
function failureIgnored(
  tasks: readonly Task[],
  journal: readonly JournalEntry[],
  bill: readonly BillLine[],
  now: number,
): Finding[] {
  const known = knownTasks(journal);
  const lines = new Map(bill.map((line) => [line.task, line]));
  const failed = tasks
    .filter((task) => known.has(task.id) && isFailure(task) && progressOf(task, now).finishedAt !== undefined)
    .map(({ id, createdAt }) => ({
      task: id,
      at: createdAt,
      subject: lines.get(id)?.subject,
      did: 'failed',
    }));
  const broken = journal
    .filter((entry) => entry.kind === 'broke-off')
    .map(({ task, at, subject }) => ({ task, at, subject, did: 'broke off' }));
  return [...failed, ...broken].flatMap(({ task, at, subject, did }) => {
    const again = bill.some((line) => line.subject === subject && line.at >= at && line.task !== task);
    if (again && subject !== undefined) return [];
    const message = `${task} ${did}, but the script still exited with 0.`;
    return [{ kind: 'failure-ignored' as const, tasks: [task], message }];
  });
}

/** Returns the ids of the tasks that clients know about. */
function knownTasks(journal: readonly JournalEntry[]): ReadonlySet<string> {
  return new Set(
    journal.flatMap((entry) => (entry.kind === 'told' || entry.kind === 'polled' ? [entry.task] : [])),
  );
}

/** Returns the indexes of a task's samples that can be fetched at `now`. */
function deliveredOf(task: Task, now: number): number[] {
  const { outcome, samples } = task;
  if (outcome.end !== 'succeeds' || progressOf(task, now).state !== 'succeeded') return [];
  return Array.from({ length: Math.max(0, samples - outcome.filtered) }, (_, sample) => sample);
}

/** Whether the sent ranges, in any order, cover the whole file. */
function isWhole(spans: readonly { start: number; end: number; total: number }[] = []): boolean {
  let reached = 0;
  for (const { start, end } of spans.toSorted((left, right) => left.start - right.start))
    if (start <= reached) reached = Math.max(reached, end);
  return spans.some(({ total }) => reached >= total);
}

/** Groups items by name, in order of first appearance. */
function groupBy<T>(items: readonly T[], nameOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(nameOf(item));
    if (group) group.push(item);
    else groups.set(nameOf(item), [item]);
  }
  return groups;
}
