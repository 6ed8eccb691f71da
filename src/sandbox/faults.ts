import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { FaultSubject, Route, RouteKind } from './exchange.ts';
import { canStrike, type FaultHit, type FaultName, FAULTS } from './fault-catalogue.ts';
import { claim, listFolder } from './state.ts';

/** A configured fault: its name, how often it strikes, and at which place in the answer. */
export interface Fault {
  name: FaultName;
  /** The maximum number of strikes; Infinity for every time. */
  times: number;
  /** The position in the response at which it strikes, 0 to 100 percent. */
  percent: number;
  /** The fault as the user wrote it. Its count is stored under this text. */
  text: string;
}

/** An unknown or malformed fault. The message lists what exists. */
export class FaultSyntaxError extends Error {
  override readonly name = 'FaultSyntaxError';
}

const MOST_TIMES = 10_000;

/**
 * Parses faults: `name`, `namexN` or `name@P%`, with several in one text separated by commas.
 * @throws FaultSyntaxError naming similar faults
 */
export function parseFaults(texts: readonly string[]): Fault[] {
  const words = texts.flatMap((text) => text.split(',').map((word) => word.trim()));
  return words.filter((word) => word !== '').map(parseFault);
}

/**
 * Counts and returns one occurrence of a fault. Undefined if the fault is not configured, has struck as often as it
 * should, or is declined by `fits`. Counts are files, so that processes with the same state directory share them.
 */
export function useFault(
  stateDir: string,
  faults: readonly Fault[],
  name: FaultName,
  fits: (percent: number) => boolean = () => true,
): FaultHit | undefined {
  const due = faults.find((fault) => fault.name === name && fits(fault.percent) && strikes(stateDir, fault));
  return due && { name, percent: due.percent };
}

/** Resets every count, for a new run with an existing state directory. */
export function forgetFaults(stateDir: string): void {
  rmSync(join(stateDir, 'faults'), { recursive: true, force: true });
}

function parseFault(text: string): Fault {
  const match = /^([a-z0-9-]+?)(?:x(\d+))?(?:@(\d+(?:\.\d+)?)%)?(?:x(\d+))?$/.exec(text);
  const [, name, early, percent, late] = match ?? [];
  const entry = FAULTS.find((candidate) => candidate.name === name);
  if (entry === undefined) throw new FaultSyntaxError(unknownFault(text, name ?? text));
  if (early !== undefined && late !== undefined) throw new FaultSyntaxError(`Two counts in ${text}`);
  if (percent !== undefined && entry.percent === undefined) {
    throw new FaultSyntaxError(`${entry.name} takes no percentage: ${text}`);
  }
  return {
    name: entry.name,
    times: timesOf(text, early ?? late),
    percent: percentOf(text, percent) ?? entry.percent ?? 100,
    text,
  };
}

function timesOf(text: string, digits: string | undefined): number {
  if (digits === undefined) return Infinity;
  const times = Number(digits);
  if (times < 1 || times > MOST_TIMES) throw new FaultSyntaxError(`A count is 1 to ${MOST_TIMES}: ${text}`);
  return times;
}

function percentOf(text: string, digits: string | undefined): number | undefined {
  if (digits === undefined) return undefined;
  const percent = Number(digits);
  if (percent > 100) throw new FaultSyntaxError(`A percentage is 0 to 100: ${text}`);
  return percent;
}

function strikes(stateDir: string, fault: Fault): boolean {
  if (fault.times === Infinity) return true;
  const folder = join(stateDir, 'faults', fault.text);
  for (let count = listFolder(folder).length + 1; count <= fault.times; count += 1) {
    if (claim(join(folder, String(count)))) return true;
  }
  return false;
}

function unknownFault(text: string, name: string): string {
  const names = FAULTS.map((fault) => fault.name);
  const alike = names.filter((known) => name !== '' && known.includes(name.toLowerCase()));
  const nearest = names.reduce((best, next) => (distance(name, next) < distance(name, best) ? next : best));
  const meant = alike.length > 0 ? alike.slice(0, 5) : distance(name, nearest) < 5 ? [nearest] : [];
  const hint = meant.length > 0 ? ` Did you mean ${meant.join(', ')}?` : '';
  return `There is no fault ${JSON.stringify(text)}.${hint} mgw sandbox faults lists them.`;
}

/** Levenshtein distance. */
function distance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= right.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[right.length] ?? 0;
}

/** Decides at random whether and how a call fails; `probability` is a percentage. */
type Chaos = (call: FaultSubject, probability: number) => FaultHit | undefined;

/** The faults from which `chaos` chooses for each kind of call, by the start of their names. */
const PREFIXES: Readonly<Record<RouteKind, RegExp>> = {
  submit: /^(b-)?submit-/,
  poll: /^poll-/,
  download: /^(download|url)-/,
  list: /^models-/,
  tts: /^tts-/,
  responses: /^responses-/,
};

/** Never chosen, because a stall lasts until the client times out. */
const NEVER: readonly string[] = ['download-stall'];

/**
 * Returns repeatable random faults: with the same seed, the n-th call of a kind about one subject always gets the same
 * fault, whatever other calls are made.
 */
export function startChaos(seed: number): Chaos {
  const counts = new Map<string, number>();
  return ({ kind, area, subject }, probability) => {
    const name = `${kind} ${subject}`;
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    const [strike, choice, place] = draw(`${seed} ${count} ${name}`);
    const ways = namesFor(kind, area);
    const way = ways[Math.floor(choice * ways.length)];
    return strike * 100 < probability && way ? { name: way, percent: Math.floor(place * 100) } : undefined;
  };
}

function namesFor(kind: RouteKind, area: Route['area']): FaultName[] {
  return FAULTS.filter((fault) => canStrike(fault, kind, area))
    .map(({ name }) => name)
    .filter((name) => PREFIXES[kind].test(name) && !NEVER.includes(name));
}

function draw(text: string): [number, number, number] {
  const digest = createHash('sha256').update(text).digest();
  const at = (index: number): number => digest.readUInt32BE(index * 4) / 2 ** 32;
  return [at(0), at(1), at(2)];
}
