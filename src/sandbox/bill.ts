import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { Area } from './models.ts';
import { appendRecords, readRecords } from './state.ts';

export { reset } from './state.ts';

/** One charge. Amounts are credits: they stand for no currency. */
export interface BillLine {
  /** Id of the task, or of the call where there is no task (speech, Responses). */
  task: string;
  area: Area;
  model: string;
  amount: number;
  /** Seconds that the request declared; the charge follows these, whatever is made of them (specification 8). */
  seconds?: number;
  /** Billable characters of a speech call. */
  characters?: number;
  /** Hash of the canonical body: equal for requests with the same intent. */
  fingerprint: string;
  /** Hash of the key that pays. */
  key: string;
  /** Milliseconds since 1970. */
  at: number;
  /** Present once the charge was given back. */
  refunded?: true;
}

type Entry = { kind: 'charge'; line: BillLine } | { kind: 'refund'; task: string; at: number };

/**
 * Appends a charge and, where the outcome is already known to be a failure, its refund, which counts from
 * `refundAt` (milliseconds since 1970) on. Both in one write: a kill leaves both or, at worst, the charge.
 */
export function charge(stateDir: string, line: BillLine, refundAt?: number): void {
  const entries: Entry[] = [{ kind: 'charge', line }];
  if (refundAt !== undefined) entries.push({ kind: 'refund', task: line.task, at: refundAt });
  appendRecords(billPath(stateDir), entries);
}

/** Appends the whole bill of another state directory, as that one is about to be removed. */
export function takeOverBill(stateDir: string, other: string): void {
  const entries = readRecords(billPath(other)) as Entry[];
  if (entries.length > 0) appendRecords(billPath(stateDir), entries);
}

/** Gives a charge back, from `at` (milliseconds since 1970) on. */
export function refund(stateDir: string, task: string, at: number): void {
  appendRecords(billPath(stateDir), [{ kind: 'refund', task, at } satisfies Entry]);
}

/** Every charge under a state directory in the order it was made, as the bill stands at `now`. */
export function readBill(stateDir: string, now: number = Date.now()): BillLine[] {
  const entries = readRecords(billPath(stateDir)) as Entry[];
  const given = entries.flatMap((entry) => (entry.kind === 'refund' && entry.at <= now ? [entry.task] : []));
  const refunded = new Set(given);
  return entries.flatMap((entry) => {
    if (entry.kind !== 'charge') return [];
    return [refunded.has(entry.line.task) ? { ...entry.line, refunded: true as const } : entry.line];
  });
}

/** A hash that is equal for JSON values that differ only in the order of their members. */
export function fingerprint(value: unknown): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(value)))
    .digest('hex')
    .slice(0, 32);
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
  return Object.fromEntries(members.map(([name, member]) => [name, sorted(member)]));
}

function billPath(stateDir: string): string {
  return join(stateDir, 'bill.jsonl');
}
