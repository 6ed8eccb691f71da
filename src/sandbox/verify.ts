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

/** Returns the mistakes of all clients that used a state folder. */
export function verify(stateDir: string, options: VerifyOptions = {}): Finding[] {
  const { minPollMs, succeeded = true, since = 0, now = Date.now() } = options;
  const journal = readJournal(stateDir).filter(({ at }) => at >= since);
  const bill = readBill(stateDir, now).filter(({ at }) => at >= since);
  const tasks = listTasks(stateDir).filter(({ createdAt }) => createdAt >= since);
  return [
    ...findDoubleCharges(bill, journal),
    ...findFastPolls(journal, minPollMs),
    ...findLeakedKeys(journal),
    ...(succeeded ? findUnfetchedResults(tasks, journal, now) : []),
    ...(succeeded ? findIgnoredFailures(tasks, journal, bill, now) : []),
  ];
}

/** Specification 8: "Poll every 5–10 seconds until finished". */
const defaultPollMs = 5000;
/** The required fraction of {@link defaultPollMs}, because a script that sleeps for 5 s may poll slightly sooner. */
const requiredShare = 0.9;

function findFastPolls(journal: readonly JournalEntry[], minPollMs: number | undefined): Finding[] {
  const polls = journal.filter((entry) => entry.kind === 'polled');
  const checkedPolls = minPollMs === undefined ? polls.filter(({ mgw }) => !mgw) : polls;
  const minGapMs = minPollMs ?? defaultPollMs * requiredShare;
  // Separates content requests from polls, because a client may request the content immediately after the status.
  const pollGroups = groupBy(checkedPolls, ({ task, content }) => `${task} ${String(content)}`);
  return [...pollGroups.values()].flatMap((entries) => {
    const gap = shortestGapOf(entries, minPollMs === undefined);
    const task = entries[0]?.task ?? '';
    if (gap >= minGapMs) return [];
    const message = `Task ${task} was polled again after ${gap} ms; the minimum is ${minPollMs ?? defaultPollMs} ms.`;
    return [{ kind: 'polled-too-fast' as const, tasks: [task], message }];
  });
}

/**
 * Returns the shortest time between two consecutive polls, in ms. With `whileOpen`, ignores polls of a finished task.
 */
function shortestGapOf(polls: readonly { at: number; open?: boolean }[], isOpenOnly: boolean): number {
  const gaps = polls.slice(1).flatMap(({ at }, index) => {
    const previous = polls[index];
    return previous === undefined || (isOpenOnly && !previous.open) ? [] : [at - previous.at];
  });
  return gaps.reduce((shortest, gap) => Math.min(shortest, gap), Infinity);
}

function findLeakedKeys(journal: readonly JournalEntry[]): Finding[] {
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
function findDoubleCharges(bill: readonly BillLine[], journal: readonly JournalEntry[]): Finding[] {
  const paidLines = bill.filter(({ refunded }) => !refunded);
  const reportedTasks = new Set(journal.flatMap((entry) => (entry.kind === 'announced' ? [entry.task] : [])));
  return [...findRepeats(paidLines), ...findVariants(paidLines, reportedTasks)];
}

/** Finds requests with the same area, key and body. */
function findRepeats(bill: readonly BillLine[]): Finding[] {
  const linesByRequest = groupBy(bill, ({ area, key, fingerprint }) => `${area} ${key} ${fingerprint}`);
  return [...linesByRequest.values()]
    .filter(({ length }) => length > 1)
    .map((lines) => doubleCharge(lines, `The same request was charged ${lines.length} times`));
}

/**
 * Finds different requests with the same key and the same prompt, text or input, if the response to the first request
 * was lost. If that response was not lost, the client requested several versions intentionally.
 */
function findVariants(bill: readonly BillLine[], reportedTasks: ReadonlySet<string>): Finding[] {
  const linesBySubject = groupBy(
    bill.filter(({ subject }) => subject !== undefined),
    ({ key, area, subject }) => `${key} ${kindOf(area)} ${subject ?? ''}`,
  );
  return [...linesBySubject.values()].flatMap((lines) => {
    const [first] = lines;
    const isDifferent = new Set(lines.map(({ fingerprint }) => fingerprint)).size > 1;
    if (first === undefined || reportedTasks.has(first.task) || !isDifferent) return [];
    return [
      doubleCharge(
        lines,
        `After the response to ${first.task} was lost, a different request was sent for the same result: charged ${lines.length} times`,
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

function doubleCharge(lines: readonly BillLine[], message: string): Finding {
  return {
    kind: 'charged-twice',
    tasks: lines.map(({ task }) => task),
    message: `${message}, ${totalOf(lines)} credits in all.`,
  };
}

/** Finds results that were announced to a client but not fetched completely. */
function findUnfetchedResults(
  tasks: readonly Task[],
  journal: readonly JournalEntry[],
  now: number,
): Finding[] {
  const spans = groupBy(
    journal.filter((entry) => entry.kind === 'fetched'),
    ({ task, sample }) => `${task}/${sample}`,
  );
  const knownIds = knownTasks(journal);
  return tasks.flatMap((task) => {
    if (!knownIds.has(task.id)) return [];
    const missing = deliveredSamples(task, now).filter(
      (sample) => !isWhole(spans.get(`${task.id}/${sample}`)),
    );
    if (missing.length === 0) return [];
    const verb = missing.length === 1 ? 'was' : 'were';
    const message = `Task ${task.id} finished, but ${missing.length} of its results ${verb} never fetched completely.`;
    return [{ kind: 'never-fetched' as const, tasks: [task.id], message }];
  });
}

/** Finds failed tasks and broken streams that the client did not retry, although it reported success. */
function findIgnoredFailures(
  tasks: readonly Task[],
  journal: readonly JournalEntry[],
  bill: readonly BillLine[],
  now: number,
): Finding[] {
  const knownIds = knownTasks(journal);
  const lines = new Map(bill.map((line) => [line.task, line]));
  const failed = tasks
    .filter(
      (task) => knownIds.has(task.id) && isFailure(task) && progressOf(task, now).finishedAt !== undefined,
    )
    .map(({ id, createdAt }) => ({
      task: id,
      at: createdAt,
      subject: lines.get(id)?.subject,
      problem: 'failed',
    }));
  const broken = journal
    .filter((entry) => entry.kind === 'broke-off')
    .map(({ task, at, subject }) => ({ task, at, subject, problem: 'broke off' }));
  return [...failed, ...broken].flatMap(({ task, at, subject, problem }) => {
    const isRepeated = bill.some((line) => line.subject === subject && line.at >= at && line.task !== task);
    if (isRepeated && subject !== undefined) return [];
    const message = `${task} ${problem}, but the script still exited with 0.`;
    return [{ kind: 'failure-ignored' as const, tasks: [task], message }];
  });
}

/** Returns the ids of the tasks that clients know about. */
function knownTasks(journal: readonly JournalEntry[]): ReadonlySet<string> {
  return new Set(
    journal.flatMap((entry) => (entry.kind === 'announced' || entry.kind === 'polled' ? [entry.task] : [])),
  );
}

/** Returns the indexes of a task's samples that can be fetched at `now`. */
function deliveredSamples(task: Task, now: number): number[] {
  const { outcome, samples } = task;
  if (outcome.end !== 'succeeds' || progressOf(task, now).state !== 'succeeded') return [];
  return Array.from({ length: Math.max(0, samples - outcome.filtered) }, (_, sample) => sample);
}

/** Whether the sent ranges, in any order, cover the whole file. */
function isWhole(spans: readonly { start: number; end: number; total: number }[] = []): boolean {
  let coveredEnd = 0;
  for (const { start, end } of spans.toSorted((one, other) => one.start - other.start))
    if (start <= coveredEnd) coveredEnd = Math.max(coveredEnd, end);
  return spans.some(({ total }) => coveredEnd >= total);
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
