import type { BillLine } from './bill.ts';
import type { Finding } from './finding.ts';
import { groupBy } from './group-by.ts';
import type { JournalEntry } from './journal.ts';
import type { Task } from './tasks.ts';
import { isFailure, progressOf } from './tasks.ts';

/** A result that a client knew of and did not fetch to the last byte. */
export function neverFetched(
  tasks: readonly Task[],
  journal: readonly JournalEntry[],
  now: number,
): Finding[] {
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
    const message = `Task ${task.id} finished, and ${missing.length} of its results ${were} never fetched whole.`;
    return [{ kind: 'never-fetched' as const, tasks: [task.id], message }];
  });
}

/**
 * A task that failed, or a stream that broke off, without another try at the same: a client that then says that all
 * went well has overlooked it.
 */
export function failureIgnored(
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
    const message = `${task} ${did}, and the script ended with 0 all the same.`;
    return [{ kind: 'failure-ignored' as const, tasks: [task], message }];
  });
}

/** A task whose handle got lost on its way to the client cannot be asked for by it. */
function knownTasks(journal: readonly JournalEntry[]): ReadonlySet<string> {
  return new Set(
    journal.flatMap((entry) => (entry.kind === 'told' || entry.kind === 'polled' ? [entry.task] : [])),
  );
}

/** Numbers of the samples that can be fetched at `now`. */
function deliveredOf(task: Task, now: number): number[] {
  const { outcome, samples } = task;
  if (outcome.end !== 'succeeds' || progressOf(task, now).state !== 'succeeded') return [];
  return Array.from({ length: Math.max(0, samples - outcome.filtered) }, (_, sample) => sample);
}

/** Whether the parts of a file that were sent, in whatever order, make all of it. */
function isWhole(spans: readonly { start: number; end: number; total: number }[] = []): boolean {
  let reached = 0;
  for (const { start, end } of spans.toSorted((left, right) => left.start - right.start))
    if (start <= reached) reached = Math.max(reached, end);
  return spans.some(({ total }) => reached >= total);
}
