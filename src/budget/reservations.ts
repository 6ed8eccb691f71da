import { add, compare, type Decimal, formatDecimal, parseDecimal, subtract, zero } from '../decimal.ts';
import type { Owner } from '../job.ts';
import { isObject, textAt, type Json, type JsonObject } from '../json.ts';
import { checkedLine, objectOfLine } from '../ledger/event-log.ts';
import type { Charge, Decision, Limit, Per, Reservation, BudgetState } from './budget.ts';

/** A line in a budget's file. The order of the lines matters; see {@link Reservations}. */
export type BudgetEvent =
  | { type: 'limit'; amount: Decimal; per?: Per }
  | { type: 'removed' }
  /**
   * A reservation is valid if it fits within `limit` at its position in the file. Default: the last limit set before
   * that position.
   */
  | ({ type: 'reserve'; limit?: Limit } & Charge)
  /** A final amount replaces the reserved one. Older versions of mgw ignore the final amount. */
  | { type: 'keep'; id: string; amount?: Decimal }
  | { type: 'release'; id: string };

/** A line with its time. */
export type RecordedBudgetEvent = BudgetEvent & { at: string };

interface Entry extends Reservation {
  state: 'reserved' | 'kept' | 'released';
}

/** A budget's limit and reservations, as copied to another ledger. */
export interface BudgetEntries {
  limit?: Limit;
  entries: (Reservation & { state: 'reserved' | 'kept' })[];
}

/**
 * The state after reading a budget's lines in order. The state depends only on the lines, so all processes agree on
 * whether a reservation fits.
 */
export class Reservations {
  #limit: Limit | undefined;
  #entries = new Map<string, Entry>();
  /** The sums of reserved and spent amounts: by day, by month and in total. */
  #heldSums = new Map<string, Decimal>();
  /** The sums of spent amounts: by day, by month and in total. */
  #spentSums = new Map<string, Decimal>();

  /** Applies a line. For a reservation, returns the decision on whether it fits. */
  apply(event: RecordedBudgetEvent): Decision | undefined {
    switch (event.type) {
      case 'limit':
        this.#limit = { amount: event.amount, per: event.per };
        break;
      case 'removed':
        this.#limit = undefined;
        for (const map of [this.#entries, this.#heldSums, this.#spentSums]) map.clear();
        break;
      case 'reserve':
        return this.#reserve(event);
      case 'keep':
        this.#keep(event.id, event.amount);
        break;
      case 'release':
        this.#release(event.id);
    }
    return undefined;
  }

  /** Returns all reservations that are not settled. */
  open(): Reservation[] {
    return [...this.#entries.values()].filter(({ state }) => state === 'reserved');
  }

  /** Returns the limit, and all reservations that were not released. */
  countedEntries(): BudgetEntries {
    const isCounted = (entry: Entry): entry is BudgetEntries['entries'][number] => entry.state !== 'released';
    return { limit: this.#limit, entries: [...this.#entries.values()].filter(isCounted) };
  }

  /** Returns the budget's state at the given time, ISO 8601 in UTC. */
  state(at: string, limit = this.#limit): BudgetState {
    const spent = sumOf(this.#spentSums, limit?.per, at);
    return { limit, spent, reserved: subtract(sumOf(this.#heldSums, limit?.per, at), spent) };
  }

  #reserve({
    id,
    amount,
    owner,
    at,
    limit = this.#limit,
  }: RecordedBudgetEvent & { type: 'reserve' }): Decision {
    const heldAmount = sumOf(this.#heldSums, limit?.per, at);
    if (limit === undefined || compare(add(heldAmount, amount), limit.amount) > 0)
      return { fits: false, state: this.state(at, limit) };
    const entry: Entry = { id, amount, owner, at, state: 'reserved' };
    this.#entries.set(id, entry);
    adjust(this.#heldSums, entry, add);
    return { fits: true };
  }

  // Applies even after a release, because the amount of an accepted submission is always spent.
  #keep(id: string, amount: Decimal | undefined): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    if (entry.state !== 'released') adjust(this.#heldSums, entry, subtract);
    if (entry.state === 'kept') adjust(this.#spentSums, entry, subtract);
    const keptEntry: Entry = { ...entry, amount: amount ?? entry.amount, state: 'kept' };
    this.#entries.set(id, keptEntry);
    for (const sums of [this.#heldSums, this.#spentSums]) adjust(sums, keptEntry, add);
  }

  #release(id: string): void {
    const entry = this.#entries.get(id);
    if (entry?.state !== 'reserved') return;
    adjust(this.#heldSums, entry, subtract);
    entry.state = 'released';
  }
}

type Sums = Map<string, Decimal>;

// Updates all sums with each line, because a file may have 100,000 lines, and recomputing a sum for each would be slow.
function adjust(sums: Sums, { at, amount }: Entry, by: (sum: Decimal, amount: Decimal) => Decimal): void {
  for (const window of [windowOf('day', at), windowOf('month', at), windowOf(undefined, at)])
    sums.set(window, by(sums.get(window) ?? zero, amount));
}

function sumOf(sums: Sums, per: Per | undefined, at: string): Decimal {
  return sums.get(windowOf(per, at)) ?? zero;
}

// Returns the beginning of an ISO time: `2026-11-22` for a day, `2026-11` for a month, or '' without a period.
function windowOf(per: Per | undefined, at: string): string {
  return at.slice(0, per === 'day' ? 10 : per === 'month' ? 7 : 0);
}

const version = 1;

/** Encodes an event as one line of JSON with its time and a checksum, without a newline. */
export function encodeBudgetEvent(event: BudgetEvent, at: string): string {
  const { type, ...members } = event;
  return checkedLine({ v: version, at, type, ...encodeMembers(members) });
}

function encodeMembers(members: Partial<Extract<BudgetEvent, { type: 'reserve' }>> & { per?: Per }): object {
  const { amount, limit, owner, ...others } = members;
  return {
    ...others,
    ...(owner && { owner: withPidLast(owner) }),
    ...(amount !== undefined && { amount: formatDecimal(amount) }),
    ...(limit !== undefined && { limit: formatDecimal(limit.amount), per: limit.per }),
  };
}

// Puts the number last. No prefix of a line then ends with `"}`, as a complete line does, so a torn line can be
// recognized.
function withPidLast({ pid, ...others }: Owner): object {
  return { ...others, pid };
}

/**
 * Decodes a line. `torn` means that the line was never completed, so no process has acted on it. `damaged` means that
 * the line was completed but cannot be read.
 */
export function decodeBudgetLine(line: string): RecordedBudgetEvent | 'torn' | 'damaged' {
  if (!line.endsWith('"}')) return 'torn';
  return parseEvent(objectOfLine(line, version)) ?? 'damaged';
}

function parseEvent(json: JsonObject = {}): RecordedBudgetEvent | undefined {
  const text = (name: string): string => textAt(json, name) ?? '';
  const at = text('at');
  switch (text('type')) {
    case 'limit':
      return { at, type: 'limit', ...parseLimit(text('amount'), text('per')) };
    case 'removed':
      return { at, type: 'removed' };
    case 'reserve': {
      const limit = 'limit' in json ? parseLimit(text('limit'), text('per')) : undefined;
      const amount = parseDecimal(text('amount'));
      return { at, type: 'reserve', id: text('id'), amount, owner: parseOwner(json['owner']), limit };
    }
    case 'keep':
      return {
        at,
        type: 'keep',
        id: text('id'),
        ...('amount' in json && { amount: parseDecimal(text('amount')) }),
      };
    case 'release':
      return { at, type: 'release', id: text('id') };
    default:
      return undefined;
  }
}

function parseLimit(amount: string, per: string): Limit {
  return { amount: parseDecimal(amount), ...((per === 'day' || per === 'month') && { per }) };
}

/** Parses a reservation's owner. An owner without a process cannot be proved dead, so its reservation remains. */
export function parseOwner(json: Json | undefined): Owner {
  const { pid, start, host, instance, lease } = isObject(json) ? json : {};
  return {
    pid: typeof pid === 'number' ? pid : 1,
    start: typeof start === 'string' ? start : '',
    host: typeof host === 'string' ? host : '',
    ...(typeof instance === 'string' && { instance }),
    ...(typeof lease === 'string' && { lease }),
  };
}
