import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type Area, sumOf } from './models.ts';
import { appendRecords, isObject, readRecords, readRecordsFrom } from './state.ts';
import { statSync } from 'node:fs';
import { limitExceeded, type Call, type ExceededLimit, type Limits, RefusedCall } from './exchange.ts';

/** A charge on the bill. */
export interface BillLine {
  /** The id of the task, or of the call if there is no task (speech, Responses). */
  task: string;
  area: Area;
  model: string;
  /** The amount in credits (without a currency), as an exact decimal. */
  amount: number;
  /** The part of the amount beyond the price (fault `extra-charge`). */
  extra?: number;
  /**
   * The seconds that the request declared. They determine the charge, even if the video is shorter (specification 8).
   */
  seconds?: number;
  /** The number of billable characters in a speech call. */
  characters?: number;
  /** The hash of the canonical body, which is the same for equal requests. */
  fingerprint: string;
  /** The hash of the prompt, text or input alone; absent if there is none. */
  subject?: string;
  /** The hash of the key that was charged. */
  key: string;
  /** The time of the charge, in milliseconds since 1970. */
  at: number;
  /**
   * The time at which the task ends, in milliseconds since 1970; null if it never ends; absent for a
   * call without a task.
   */
  endsAt?: number | null;
  /** Present if the charge was refunded. */
  refunded?: true;
}

/** A record in the bill's file. */
type BillEntry =
  | { kind: 'charge'; line: BillLine }
  /** The charge was refunded at `at`, in milliseconds since 1970. */
  | { kind: 'refund'; task: string; at: number }
  /** The charge exceeded a limit and is void. (A charge is written before it is checked.) */
  | { kind: 'void'; task: string };

/** Whether a record in the bill's file is a valid entry. */
function isBillEntry(value: unknown): value is BillEntry {
  if (!isObject(value)) return false;
  return value.kind === 'charge' ? isObject(value.line) : typeof value.task === 'string';
}

/** Returns the path of a state folder's bill. */
function billPath(stateDir: string): string {
  return join(stateDir, 'bill.jsonl');
}

/**
 * Appends entries in one write. If the process is killed, the file contains all of the entries or only the first few.
 */
export function appendToBill(stateDir: string, ...entries: BillEntry[]): void {
  appendRecords(billPath(stateDir), entries);
}

/** Appends the bill from another state folder that is about to be removed. */
export function importBill(stateDir: string, otherDir: string): void {
  const entries = readRecords(billPath(otherDir), isBillEntry);
  if (entries.length > 0) appendToBill(stateDir, ...entries);
}

/** Returns every charge in a state folder in order, with the refunds up to `now`. */
export function readBill(stateDir: string, now: number = Date.now()): BillLine[] {
  return linesOf(readRecords(billPath(stateDir), isBillEntry), now);
}

/** Returns the charges among a bill's entries, with the refunds up to `now`. */
export function linesOf(entries: readonly BillEntry[], now: number): BillLine[] {
  const refundedTasks = new Set(
    entries.flatMap((entry) => (entry.kind === 'refund' && entry.at <= now ? [entry.task] : [])),
  );
  const voidedTasks = new Set(entries.flatMap((entry) => (entry.kind === 'void' ? [entry.task] : [])));
  return entries.flatMap((entry) => {
    if (entry.kind !== 'charge' || voidedTasks.has(entry.line.task)) return [];
    return [refundedTasks.has(entry.line.task) ? { ...entry.line, refunded: true as const } : entry.line];
  });
}

/** Returns the exact sum, in credits, of the charges that were not refunded. */
export function totalOf(lines: readonly BillLine[]): number {
  return sumOf(lines.filter(({ refunded }) => !refunded).map(({ amount }) => amount));
}

/** Returns a hash that is equal for JSON values that differ only in the order of their members. */
export function fingerprint(value: unknown): string {
  // Ignores an uploaded asset's address and signature, which change from run to run.
  const text = JSON.stringify(sortMembers(value)).replace(
    /"https?:[^"]*?(\/s3\/[^"?]+)\?X-Amz-[^"]*/g,
    '"$1',
  );
  return createHash('sha256').update(text).digest('hex').slice(0, 32);
}

/** Returns the hash of a prompt, text or input as a `subject` member; an empty object if the text is blank. */
export function subjectOf(text: string): { subject?: string } {
  return text.trim() === '' ? {} : { subject: fingerprint(text.trim()) };
}

function sortMembers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortMembers);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(members.map(([name, member]) => [name, sortMembers(member)]));
}

/** A paid request: its `body`, and the prompt, text or input in that body. */
interface PaidRequest extends Omit<BillLine, 'fingerprint' | 'subject' | 'key'> {
  body: unknown;
  text: string;
}

/**
 * Charges a call's key for a paid request. `refundAt` is the time of the refund, in milliseconds since 1970, if
 * the task will fail.
 * @throws RefusedCall, and charges nothing, if the charge exceeds one of the account's limits
 */
export function chargeFor(call: Call, { body, text, ...line }: PaidRequest, refundAt?: number): void {
  const { gateway, key, requestId } = call;
  const hashes = { fingerprint: fingerprint({ model: line.model, body }), ...subjectOf(text) };
  const exceededLimit = chargeWithin(gateway.stateDir, gateway.limits, { ...line, ...hashes, key }, refundAt);
  if (exceededLimit !== undefined) throw new RefusedCall(limitExceeded(line.area, exceededLimit, requestId));
}

const minuteMs = 60_000;

/**
 * Makes a charge. If the charge exceeds a limit, voids the charge and returns the limit. `refundAt` is as in
 * {@link chargeFor}. Works across processes without a lock: each process appends its line first, and voids the line if
 * the lines before it leave too little of the limit.
 */
function chargeWithin(
  stateDir: string,
  limits: Limits,
  line: BillLine,
  refundAt?: number,
): ExceededLimit | undefined {
  const { task } = line;
  const refund: BillEntry[] = refundAt === undefined ? [] : [{ kind: 'refund', task, at: refundAt }];
  appendToBill(stateDir, { kind: 'charge', line }, ...refund);
  if (Object.values(limits).every((limit) => limit === undefined)) return undefined;
  const exceededLimit = findExceededLimit(line, linesBefore(stateDir, line), limits);
  if (exceededLimit !== undefined) appendToBill(stateDir, { kind: 'void', task });
  return exceededLimit;
}

function findExceededLimit(
  line: BillLine,
  earlierLines: readonly BillLine[],
  limits: Limits,
): ExceededLimit | undefined {
  const { balance = Infinity, concurrency = Infinity, perMinute = Infinity } = limits;
  const recentLines = earlierLines.filter(({ at }) => at > line.at - minuteMs);
  const oldestLine = recentLines.at(-perMinute);
  if (recentLines.length >= perMinute && oldestLine !== undefined) {
    return { limit: 'rate', retryAfter: Math.max(1, Math.ceil((oldestLine.at + minuteMs - line.at) / 1000)) };
  }
  const isInProgress = ({ endsAt }: BillLine): boolean => endsAt === null || (endsAt ?? 0) > line.at;
  if (isInProgress(line) && earlierLines.filter(isInProgress).length >= concurrency)
    return { limit: 'concurrency' };
  return sumOf([totalOf(earlierLines), line.amount]) > balance ? { limit: 'balance' } : undefined;
}

/** Returns the charges before a line of the bill, with the refunds up to that line's time. */
function linesBefore(stateDir: string, { task, at }: BillLine): BillLine[] {
  const entries = entriesOf(stateDir);
  const ownIndex = entries.findLastIndex((entry) => entry.kind === 'charge' && entry.line.task === task);
  // Refunds and voided charges are included even if their entries follow the line.
  return linesOf(
    entries.filter((entry, index) => index < ownIndex || entry.kind !== 'charge'),
    at,
  );
}

const billCache = new Map<string, { inode: number; end: number; entries: BillEntry[] }>();

/** Returns the bill's entries. Reads only the new entries if the file has grown. */
function entriesOf(stateDir: string): BillEntry[] {
  const path = billPath(stateDir);
  const { ino: inode, size } = statSync(path);
  const cached = billCache.get(path);
  const start = cached?.inode === inode && cached.end <= size ? cached : { end: 0, entries: [] };
  const { records, end } = readRecordsFrom(path, start.end, isBillEntry);
  const entries = [...start.entries, ...records];
  billCache.set(path, { inode, end, entries });
  return entries;
}
