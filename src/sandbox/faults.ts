import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { claim, listFolder } from './state.ts';

/** A fault that the sandbox can simulate. The help and the documentation list all faults. */
interface FaultEntry {
  name: string;
  /** The calls that the fault affects, with the protocol in brackets if there is only one: `submit (b)`. */
  on: string;
  does: string;
  /** The default percentage, if the fault has one: a position in the response, or a probability. */
  percent?: number;
}

/**
 * Every fault. `name` strikes each time, `namexN` strikes the first N times, and `name@P%` strikes at P percent of the
 * response (`chaos`: with that probability). The forms can be combined: `download-cutx2@40%`.
 */
export const allFaults = [
  fault('auth-401', 'every call with a key', 'Refuses the key: HTTP 401.'),
  fault('balance-403', 'submit, tts, responses', 'HTTP 403, insufficient balance; nothing is created.'),
  fault('submit-429', 'submit', 'HTTP 429; nothing is created.'),
  fault('submit-429-retry-after', 'submit', 'HTTP 429 with Retry-After: 1; nothing is created.'),
  fault('submit-503', 'submit', 'HTTP 503, overloaded; nothing is created.'),
  fault('submit-500', 'submit', 'HTTP 500; nothing is created, but the client cannot know this.'),
  fault('submit-reset', 'submit', 'Breaks the connection; creates nothing, but the client cannot know this.'),
  fault('submit-reply-lost', 'submit', 'Creates and charges the task, then breaks the connection.'),
  fault('submit-500-after-accept', 'submit', 'Creates and charges the task, then returns HTTP 500.'),
  fault(
    'submit-502-after-accept',
    'submit',
    'Creates and charges the task, then returns HTTP 502 with HTML.',
  ),
  fault('submit-slow', 'submit', 'Creates the task, and responds after the duration of one generation.'),
  fault(
    'client-gives-up',
    'submit, tts, responses',
    'Creates and charges the task, and responds after 30 times --pace (default: 90 seconds), longer than the timeout of most agent tool calls.',
  ),
  fault('submit-garbled', 'submit', 'Creates the task, and returns HTTP 200 with a body that is not JSON.'),
  fault('submit-empty', 'submit', 'Creates the task, and returns HTTP 200 with no body.'),
  fault(
    'submit-cut',
    'submit',
    'Creates the task, and breaks the connection in the middle of the response.',
    50,
  ),
  fault('b-submit-limited', 'submit (b)', 'HTTP 200 with RequestLimitExceeded; nothing is created.'),
  fault(
    'b-submit-internal-error',
    'submit (b)',
    'Creates the task, and returns HTTP 200 with InternalError.',
  ),
  fault('task-fails', 'submit', 'The task is accepted, fails at its end, and is refunded.'),
  fault('never-finishes', 'submit', 'The task is accepted, and never finishes.'),
  fault('short-video', 'submit', 'Halves the duration of the video; the declared seconds are billed.'),
  fault('small-video', 'submit', 'Halves the width and height of the video.'),
  fault('silent-video', 'submit', 'The video has no sound.'),
  fault('extra-charge', 'submit', 'Charges 1.5 times the price; the bill shows the extra charge.'),
  fault('a-filtered', 'submit (a)', 'The operation ends with every sample filtered.'),
  fault('a-partly-filtered', 'submit (a)', 'The operation ends with its last sample filtered.'),
  fault('b-finish-errcode', 'submit (b)', 'The task ends with FINISH and a non-zero ErrCode.'),
  fault('b-finish-errcodeext', 'submit (b)', 'The task ends with FINISH, ErrCode 0 and an ErrCodeExt.'),
  fault('poll-429', 'poll', 'HTTP 429.'),
  fault('poll-500', 'poll', 'HTTP 500.'),
  fault('poll-502', 'poll', 'HTTP 502 with HTML.'),
  fault('poll-503', 'poll', 'HTTP 503.'),
  fault('poll-reset', 'poll', 'Breaks the connection before the response.'),
  fault('poll-garbled', 'poll', 'HTTP 200 with a body that is not JSON.'),
  fault('poll-cut', 'poll', 'Breaks the connection in the middle of the response.', 50),
  fault('poll-notfound', 'poll', 'Reports that the task does not exist.'),
  fault(
    'download-cut',
    'download',
    'Breaks the connection at this point in the file; a resumed download continues from there.',
    50,
  ),
  fault('download-stall', 'download', 'Sends the file up to this point, then stalls.', 50),
  fault('download-502', 'download', 'HTTP 502 with HTML.'),
  fault('download-html', 'download', 'HTTP 200 with an HTML page in place of the video.'),
  fault('download-json', 'download', 'HTTP 200 with a JSON error in place of the video.'),
  fault('download-gone', 'download', 'HTTP 410: the result is gone.'),
  fault('download-no-range', 'download', 'Ignores Range, and sends the whole file without a validator.'),
  fault('url-expired', 'download', 'HTTP 403: the address has expired.'),
  fault('models-502', 'models', 'HTTP 502 with HTML.'),
  fault('tts-429', 'tts', 'HTTP 429; nothing is charged.'),
  fault('tts-500', 'tts', 'HTTP 500; nothing is charged, but the client cannot know this.'),
  fault('tts-cut', 'tts', 'The stream ends at this point, without its end frame.', 50),
  fault('tts-reset', 'tts', 'Breaks the connection in the middle of the stream.', 50),
  fault('tts-error-frame', 'tts', 'HTTP 200 with an error frame in place of the rest of the stream.', 50),
  fault('responses-429', 'responses', 'HTTP 429; nothing is charged.'),
  fault('responses-cut', 'responses', 'The stream ends at this point, without its last event.', 50),
  fault('store-500', 'store', 'HTTP 500.'),
  fault('store-slow-down', 'store', 'HTTP 503 with SlowDown.'),
  fault('store-expired', 'store', 'HTTP 403 with ExpiredToken, as for credentials that are no longer valid.'),
  fault('store-reset', 'store', 'Breaks the connection of an upload; nothing is stored.'),
  fault('store-bad-digest', 'store', 'Refuses an upload with BadDigest, as if its bytes were corrupted.'),
  fault(
    'chaos',
    'every call',
    'With this probability, a call fails with a random fault; --seed makes the faults repeatable.',
    10,
  ),
];

function fault<Name extends string>(name: Name, on: string, does: string, percent?: number) {
  return { name, on, does, percent } satisfies FaultEntry;
}

/** Whether a fault can affect calls of the given kind (`submit`, `poll`, `list`…) in the given area. */
export function canAffect({ on }: FaultEntry, kind: string, area: string): boolean {
  const call = kind === 'list' ? 'models' : kind;
  return (
    on.startsWith('every call') || on.split(', ').some((one) => one === call || one === `${call} (${area})`)
  );
}

/** A request's action, which determines the faults that can affect it. */
export type RouteKind = 'submit' | 'poll' | 'download' | 'list' | 'tts' | 'responses';

/** Identifies a call for random faults. `subject` is the same for all calls about one task or body. */
export interface FaultSubject {
  kind: RouteKind;
  /** The protocol, or another area of the gateway. */
  area: string;
  subject: string;
}

/** The name of a fault in {@link allFaults}. */
export type FaultName = (typeof allFaults)[number]['name'];

/** One occurrence of a fault. */
export interface FaultHit {
  name: FaultName;
  percent: number;
}

/** A configured fault: its name, its maximum number of occurrences, and its position in the response. */
export interface Fault {
  name: FaultName;
  /** The maximum number of occurrences; Infinity for every time. */
  maxHits: number;
  /** The position in the response at which the fault strikes, 0 to 100 percent. */
  percent: number;
  /** The fault as the user wrote it. Its occurrences are counted under this text. */
  text: string;
}

/** Thrown for an unknown or malformed fault. The message explains the problem. */
export class FaultSyntaxError extends Error {
  override readonly name = 'FaultSyntaxError';
}

const maxCount = 10_000;

/**
 * Parses faults: `name`, `namexN` or `name@P%`. A string may contain several, separated by commas.
 * @throws FaultSyntaxError that names similar faults
 */
export function parseFaults(texts: readonly string[]): Fault[] {
  const words = texts.flatMap((text) => text.split(',').map((word) => word.trim()));
  return words.filter((word) => word !== '').map(parseFault);
}

/**
 * Counts and returns one occurrence of a fault; undefined if the fault is not configured, has reached its maximum, or
 * is declined by `canApply`. Counts are files, so that processes with the same state folder share them.
 */
export function useFault(
  stateDir: string,
  faults: readonly Fault[],
  name: FaultName,
  canApply: (percent: number) => boolean = () => true,
): FaultHit | undefined {
  const isMatch = (fault: Fault): boolean => fault.name === name && canApply(fault.percent);
  const fault = faults.find((candidate) => isMatch(candidate) && claimHit(stateDir, candidate));
  return fault && { name, percent: fault.percent };
}

/** Resets every count, for a new run with an existing state folder. */
export function resetFaultCounts(stateDir: string): void {
  rmSync(join(stateDir, 'faults'), { recursive: true, force: true });
}

function parseFault(text: string): Fault {
  const match = /^([a-z0-9-]+?)(?:x(\d+))?(?:@(\d+(?:\.\d+)?)%)?(?:x(\d+))?$/.exec(text);
  const [, name, countBeforePercent, percent, countAfterPercent] = match ?? [];
  const entry = allFaults.find((candidate) => candidate.name === name);
  if (entry === undefined) throw new FaultSyntaxError(unknownFaultMessage(text, name ?? text));
  if (countBeforePercent !== undefined && countAfterPercent !== undefined)
    throw new FaultSyntaxError(`A fault accepts only one count: ${text}`);
  if (percent !== undefined && entry.percent === undefined) {
    throw new FaultSyntaxError(`${entry.name} accepts no percentage: ${text}`);
  }
  return {
    name: entry.name,
    maxHits: parseCount(text, countBeforePercent ?? countAfterPercent),
    percent: parsePercent(text, percent) ?? entry.percent ?? 100,
    text,
  };
}

function parseCount(text: string, digits: string | undefined): number {
  if (digits === undefined) return Infinity;
  const maxHits = Number(digits);
  if (maxHits < 1 || maxHits > maxCount)
    throw new FaultSyntaxError(`A count must be from 1 to ${maxCount}: ${text}`);
  return maxHits;
}

function parsePercent(text: string, digits: string | undefined): number | undefined {
  if (digits === undefined) return undefined;
  const percent = Number(digits);
  if (percent > 100) throw new FaultSyntaxError(`A percentage must be from 0 to 100: ${text}`);
  return percent;
}

function claimHit(stateDir: string, fault: Fault): boolean {
  if (fault.maxHits === Infinity) return true;
  const folder = join(stateDir, 'faults', fault.text);
  for (let count = listFolder(folder).length + 1; count <= fault.maxHits; count += 1) {
    if (claim(join(folder, String(count)))) return true;
  }
  return false;
}

function unknownFaultMessage(text: string, name: string): string {
  const names = allFaults.map((fault) => fault.name);
  const partialMatches = names.filter((known) => name !== '' && known.includes(name.toLowerCase()));
  const nearestName = names.reduce((best, next) =>
    editDistance(name, next) < editDistance(name, best) ? next : best,
  );
  const suggestions =
    partialMatches.length > 0
      ? partialMatches.slice(0, 5)
      : [nearestName].filter((known) => editDistance(name, known) < 5);
  const hint = suggestions.length > 0 ? ` Did you mean ${suggestions.join(', ')}?` : '';
  return `There is no fault ${JSON.stringify(text)}.${hint} To list all faults: mgw sandbox faults.`;
}

/** Returns the Levenshtein distance between two names. */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= other.length; j += 1) {
      const substitution = (row[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}

/** Determines at random whether and how a call fails. `probability` is a percentage. */
type Chaos = (call: FaultSubject, probability: number) => FaultHit | undefined;

/** Patterns for the names of faults that `chaos` may choose, by kind of call. */
const namePatterns: Readonly<Record<RouteKind, RegExp>> = {
  submit: /^(b-)?submit-/,
  poll: /^poll-/,
  download: /^(download|url)-/,
  list: /^models-/,
  tts: /^tts-/,
  responses: /^responses-/,
};

/** Faults that `chaos` never chooses, because a stall lasts until the client times out. */
const excludedNames: readonly string[] = ['download-stall'];

/**
 * Returns repeatable random faults: with the same seed, the n-th call of the same kind and subject always gets the same
 * fault, regardless of other calls.
 */
export function startChaos(seed: number): Chaos {
  const counts = new Map<string, number>();
  return ({ kind, area, subject }, probability) => {
    const callName = `${kind} ${subject}`;
    const count = (counts.get(callName) ?? 0) + 1;
    counts.set(callName, count);
    const [chance, choice, position] = drawNumbers(`${seed} ${count} ${callName}`);
    const names = namesFor(kind, area);
    const name = names[Math.floor(choice * names.length)];
    return chance * 100 < probability && name ? { name, percent: Math.floor(position * 100) } : undefined;
  };
}

function namesFor(kind: RouteKind, area: string): FaultName[] {
  return allFaults
    .filter((fault) => canAffect(fault, kind, area))
    .map(({ name }) => name)
    .filter((name) => namePatterns[kind].test(name) && !excludedNames.includes(name));
}

function drawNumbers(text: string): [number, number, number] {
  const digest = createHash('sha256').update(text).digest();
  const numberAt = (index: number): number => digest.readUInt32BE(index * 4) / 2 ** 32;
  return [numberAt(0), numberAt(1), numberAt(2)];
}
