import { statSync } from 'node:fs';
import {
  appendToBill,
  type BillEntry,
  type BillLine,
  billPath,
  isBillEntry,
  fingerprint,
  linesOf,
  subjectOf,
  totalOf,
} from './bill.ts';
import { limitExceeded } from './envelopes.ts';
import { type Call, type Exceeded, type Limits, RefusedCall } from './exchange.ts';
import { sumOf } from './prices.ts';
import { readRecordsFrom } from './state.ts';

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
