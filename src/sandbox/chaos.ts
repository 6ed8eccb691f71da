import { createHash } from 'node:crypto';
import type { Chanced, Route, RouteKind } from './exchange.ts';
import type { FaultEntry } from './fault-catalogue.ts';
import { FAULTS } from './fault-catalogue.ts';
import type { FaultHit, FaultName } from './faults.ts';

/** Decides for each call whether chance makes it fail, and how; `probability` is a percentage. */
export type Chaos = (call: Chanced, probability: number) => FaultHit | undefined;

/** The faults that chance chooses among for each kind of call: by how their names begin. */
const PREFIXES: Readonly<Record<RouteKind, RegExp>> = {
  submit: /^(b-)?submit-/,
  poll: /^poll-/,
  download: /^(download|url)-/,
  list: /^models-/,
  tts: /^tts-/,
  responses: /^responses-/,
};

/** A stall lasts as long as the patience of the client: a run by chance would be spent waiting. */
const NEVER: readonly string[] = ['download-stall'];

/**
 * Chance that can be repeated: the n-th call of a kind about one subject always fares the same under the same seed,
 * whatever other calls come in between, or at once.
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
  const fits = ({ name, on }: FaultEntry): boolean =>
    PREFIXES[kind].test(name) && !NEVER.includes(name) && (!on.includes('(') || on.includes(`(${area})`));
  return FAULTS.filter(fits).map(({ name }) => name);
}

function draw(text: string): [number, number, number] {
  const digest = createHash('sha256').update(text).digest();
  const at = (index: number): number => digest.readUInt32BE(index * 4) / 2 ** 32;
  return [at(0), at(1), at(2)];
}
