import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type Area, sumOf } from './models.ts';
import { appendRecords, isObject, readRecords, readRecordsFrom } from './state.ts';
import { statSync } from 'node:fs';
import { limitExceeded, type Call, type Exceeded, type Limits, RefusedCall } from './exchange.ts';

export { reset } from './state.ts';

/** One charge. */
export interface BillLine {
  /** Id of the task, or of the call if there is no task (speech, Responses). */
  task: string;
  area: Area;
  model: string;
  /** Credits, an exact decimal. They have no currency. */
  amount: number;
  /** The part of the amount that no price explains (fault extra-charge). */
  extra?: number;
  /** Seconds that the request declared; the charge follows these, whatever is made of them (specification 8). */
  seconds?: number;
  /** Billable characters of a speech call. */
  characters?: number;
  /** Hash of the canonical body: equal for requests with the same intent. */
  fingerprint: string;
  /** Hash of the prompt, text or input alone; absent if there is none. */
  subject?: string;
  /** Hash of the key that pays. */
  key: string;
  /** Milliseconds since 1970. */
  at: number;
  /** When its task ends, in milliseconds since 1970; null for never, absent for a call that is over at once. */
  endsAt?: number | null;
  /** Present once the charge was given back. */
  refunded?: true;
}

/** A line of the bill's file. */
export type BillEntry =
  | { kind: 'charge'; line: BillLine }
  /** The charge is given back, from `at` (milliseconds since 1970) on. */
  | { kind: 'refund'; task: string; at: number }
  /** A limit refused the charge right after it was written: it never was. */
  | { kind: 'void'; task: string };

/** Whether a record of the bill's file is an entry. */
export function isBillEntry(value: unknown): value is BillEntry {
  if (!isObject(value)) return false;
  return value.kind === 'charge' ? isObject(value.line) : typeof value.task === 'string';
}

/** The path of the bill of a state directory. */
export function billPath(stateDir: string): string {
  return join(stateDir, 'bill.jsonl');
}

/** Appends entries in one write: a kill leaves all of them or, at worst, the first ones. */
export function appendToBill(stateDir: string, ...entries: BillEntry[]): void {
  appendRecords(billPath(stateDir), entries);
}

/** Appends the whole bill of another state directory, as that one is about to be removed. */
export function takeOverBill(stateDir: string, other: string): void {
  const entries = readRecords(billPath(other), isBillEntry);
  if (entries.length > 0) appendToBill(stateDir, ...entries);
}

/** Every charge under a state directory in the order it was made, with the refunds up to `now`. */
export function readBill(stateDir: string, now: number = Date.now()): BillLine[] {
  return linesOf(readRecords(billPath(stateDir), isBillEntry), now);
}

/** The charges among the entries of a bill, with the refunds up to `now`. */
export function linesOf(entries: readonly BillEntry[], now: number): BillLine[] {
  const refunded = new Set(
    entries.flatMap((entry) => (entry.kind === 'refund' && entry.at <= now ? [entry.task] : [])),
  );
  const voided = new Set(entries.flatMap((entry) => (entry.kind === 'void' ? [entry.task] : [])));
  return entries.flatMap((entry) => {
    if (entry.kind !== 'charge' || voided.has(entry.line.task)) return [];
    return [refunded.has(entry.line.task) ? { ...entry.line, refunded: true as const } : entry.line];
  });
}

/** The exact sum of what was not given back, in credits. */
export function totalOf(lines: readonly BillLine[]): number {
  return sumOf(lines.filter(({ refunded }) => !refunded).map(({ amount }) => amount));
}

/** A hash that is equal for JSON values that differ only in the order of their members. */
export function fingerprint(value: unknown): string {
  // The address and the signature of an uploaded asset change from run to run.
  const text = JSON.stringify(sorted(value)).replace(/"https?:[^"]*?(\/s3\/[^"?]+)\?X-Amz-[^"]*/g, '"$1');
  return createHash('sha256').update(text).digest('hex').slice(0, 32);
}

/** The `subject` of a request by its prompt, text or input: none if it is blank. */
export function subjectOf(text: string): { subject?: string } {
  return text.trim() === '' ? {} : { subject: fingerprint(text.trim()) };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
  return Object.fromEntries(members.map(([name, member]) => [name, sorted(member)]));
}

/** A paid request: its `body`, and the prompt, text or input in it. */
interface Service extends Omit<BillLine, 'fingerprint' | 'subject' | 'key'> {
  body: unknown;
  text: string;
}

/**
 * Charges the key of a call for a service. `refundAt` (milliseconds since 1970) is for what is known to fail. Throws
 * Refused, and charges nothing, if a limit of the account forbids it.
 */
export function chargeFor(call: Call, { body, text, ...line }: Service, refundAt?: number): void {
  const { gateway, key, requestId } = call;
  const hashes = { fingerprint: fingerprint({ model: line.model, body }), ...subjectOf(text) };
  const exceeded = chargeWithin(gateway.stateDir, gateway.limits, { ...line, ...hashes, key }, refundAt);
  if (exceeded !== undefined) throw new RefusedCall(limitExceeded(line.area, exceeded, requestId));
}

const MINUTE_MS = 60_000;

/**
 * Charges, unless a limit forbids it: then the answer says which, and the bill is as if nothing had been charged.
 * `refundAt` (milliseconds since 1970) gives the charge back later. Holds across processes without a lock: each
 * appends its line and withdraws it if the lines before leave no room, so their order decides.
 */
function chargeWithin(
  stateDir: string,
  limits: Limits,
  line: BillLine,
  refundAt?: number,
): Exceeded | undefined {
  const { task } = line;
  const refund: BillEntry[] = refundAt === undefined ? [] : [{ kind: 'refund', task, at: refundAt }];
  appendToBill(stateDir, { kind: 'charge', line }, ...refund);
  if (Object.values(limits).every((limit) => limit === undefined)) return undefined;
  const exceeded = exceededBy(line, linesBefore(stateDir, line), limits);
  if (exceeded !== undefined) appendToBill(stateDir, { kind: 'void', task });
  return exceeded;
}

function exceededBy(line: BillLine, before: readonly BillLine[], limits: Limits): Exceeded | undefined {
  const { balance = Infinity, concurrency = Infinity, perMinute = Infinity } = limits;
  const recent = before.filter(({ at }) => at > line.at - MINUTE_MS);
  const oldest = recent.at(-perMinute);
  if (recent.length >= perMinute && oldest !== undefined) {
    return { limit: 'rate', retryAfter: Math.max(1, Math.ceil((oldest.at + MINUTE_MS - line.at) / 1000)) };
  }
  const isUnderWay = ({ endsAt }: BillLine): boolean => endsAt === null || (endsAt ?? 0) > line.at;
  if (isUnderWay(line) && before.filter(isUnderWay).length >= concurrency) return { limit: 'concurrency' };
  return sumOf([totalOf(before), line.amount]) > balance ? { limit: 'balance' } : undefined;
}

/** The charges before a line of the bill, with the refunds up to its time. */
function linesBefore(stateDir: string, { task, at }: BillLine): BillLine[] {
  const entries = entriesOf(stateDir);
  const own = entries.findLastIndex((entry) => entry.kind === 'charge' && entry.line.task === task);
  // Refunds and withdrawals count even if they are after the line.
  return linesOf(
    entries.filter((entry, index) => index < own || entry.kind !== 'charge'),
    at,
  );
}

const read = new Map<string, { inode: number; end: number; entries: BillEntry[] }>();

/** The bill's entries; of a file that grew, only the new ones are read. */
function entriesOf(stateDir: string): BillEntry[] {
  const path = billPath(stateDir);
  const { ino: inode, size } = statSync(path);
  const known = read.get(path);
  const start = known?.inode === inode && known.end <= size ? known : { end: 0, entries: [] };
  const { records, end } = readRecordsFrom(path, start.end, isBillEntry);
  const entries = [...start.entries, ...records];
  read.set(path, { inode, end, entries });
  return entries;
}
