import { crc32 } from 'node:zlib';
import { isObject, type JsonObject } from '../json.ts';
import type { Limit, Per } from './budget.ts';
import { formatDecimal, parseDecimal } from './decimal.ts';
import type { BudgetEvent, RecordedBudgetEvent } from './reservations.ts';

const version = 1;
const tailStart = ',"crc":"';
const tailLength = `${tailStart}00000000"}`.length;

/** An event as one line of JSON with its time and a checksum, without a newline. */
export function encodeBudgetEvent(event: BudgetEvent, at: string): string {
  const { type, ...members } = event;
  const head = JSON.stringify({ v: version, at, type, ...withTexts(members) }).slice(0, -1);
  return head + tailOf(head);
}

function withTexts(members: Partial<Extract<BudgetEvent, { type: 'reserve' }>> & { per?: Per }): object {
  const { amount, limit, ...others } = members;
  return {
    ...others,
    ...(amount !== undefined && { amount: formatDecimal(amount) }),
    ...(limit !== undefined && { limit: formatDecimal(limit.amount), per: limit.per }),
  };
}

function tailOf(head: string): string {
  return `${tailStart}${crc32(head).toString(16).padStart(8, '0')}"}`;
}

/**
 * Reads a line. `torn` is the beginning of one that was never written to its end, so that nobody has acted on it;
 * `damaged` one that was, and cannot be read now.
 */
export function decodeBudgetLine(line: string): RecordedBudgetEvent | 'torn' | 'damaged' {
  if (!line.endsWith('"}')) return 'torn';
  const head = line.slice(0, -tailLength);
  if (line.slice(-tailLength) !== tailOf(head)) return 'damaged';
  const json: unknown = JSON.parse(line);
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
      return { at, type: 'reserve', id: text('id'), amount: parseDecimal(text('amount')), limit };
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
