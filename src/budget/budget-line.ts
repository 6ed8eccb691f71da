import type { Owner } from '../job.ts';
import { isObject, type Json, type JsonObject } from '../json.ts';
import { checkedLine, textOfLine } from '../ledger/checked-line.ts';
import type { Limit, Per } from './budget.ts';
import { formatDecimal, parseDecimal } from '../decimal.ts';
import type { BudgetEvent, RecordedBudgetEvent } from './reservations.ts';

const version = 1;

/** An event as one line of JSON with its time and a checksum, without a newline. */
export function encodeBudgetEvent(event: BudgetEvent, at: string): string {
  const { type, ...members } = event;
  return checkedLine({ v: version, at, type, ...withTexts(members) });
}

function withTexts(members: Partial<Extract<BudgetEvent, { type: 'reserve' }>> & { per?: Per }): object {
  const { amount, limit, owner, ...others } = members;
  return {
    ...others,
    ...(owner && { owner: withNumberLast(owner) }),
    ...(amount !== undefined && { amount: formatDecimal(amount) }),
    ...(limit !== undefined && { limit: formatDecimal(limit.amount), per: limit.per }),
  };
}

// Nothing inside a line ends as the line does: what is torn must not look whole.
function withNumberLast({ pid, ...others }: Owner): object {
  return { ...others, pid };
}

/**
 * Reads a line. `torn` is the beginning of one that was never written to its end, so that nobody has acted on it;
 * `damaged` one that was, and cannot be read now.
 */
export function decodeBudgetLine(line: string): RecordedBudgetEvent | 'torn' | 'damaged' {
  if (!line.endsWith('"}')) return 'torn';
  const whole = textOfLine(line);
  if (whole === undefined) return 'damaged';
  const json: unknown = JSON.parse(whole);
  return isObject(json) && json['v'] === version ? (eventIn(json) ?? 'damaged') : 'damaged';
}

function eventIn(json: JsonObject): RecordedBudgetEvent | undefined {
  const text = (name: string): string => {
    const value = json[name];
    return typeof value === 'string' ? value : '';
  };
  const at = text('at');
  switch (text('type')) {
    case 'limit':
      return { at, type: 'limit', ...limitOf(text('amount'), text('per')) };
    case 'removed':
      return { at, type: 'removed' };
    case 'reserve': {
      const limit = 'limit' in json ? limitOf(text('limit'), text('per')) : undefined;
      const amount = parseDecimal(text('amount'));
      return { at, type: 'reserve', id: text('id'), amount, owner: ownerIn(json['owner']), limit };
    }
    case 'keep':
      return { at, type: 'keep', id: text('id') };
    case 'release':
      return { at, type: 'release', id: text('id') };
    default:
      return undefined;
  }
}

function limitOf(amount: string, per: string): Limit {
  return { amount: parseDecimal(amount), ...((per === 'day' || per === 'month') && { per }) };
}

// A process that the line does not name cannot be shown to be dead, so that what it reserved stays reserved.
function ownerIn(json: Json | undefined): Owner {
  const { pid, start, host, instance } = isObject(json) ? json : {};
  return {
    pid: typeof pid === 'number' ? pid : 1,
    start: typeof start === 'string' ? start : '',
    host: typeof host === 'string' ? host : '',
    ...(typeof instance === 'string' && { instance }),
  };
}
