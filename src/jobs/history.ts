import type { Job, RecordedEvent } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { sizeOf } from './asked-for.ts';
import { extrapolated, likelihoodOf, type ProgressSeen, type Span } from './end-times.ts';
import { PollPlan } from './poll-plan.ts';

const mostRead = 100;
const enough = 40;
/** So many of the same size count more than all others of the model. */
const fewest = 3;
// A job that was left alone and asked for hours later says nothing about the model.
const longestWatchedMs = 3_600_000;
// What earlier versions polled by, who did not record it.
const longestPauseMs = 10_000;
/** How long before the end that percentages tell it may come, intervals. */
const mostEarly = 4;

/** What earlier jobs like one tell of when it will end. */
export class History {
  /** From the submission to the end of each, newest last. */
  readonly #ends: Span[];
  /** From the end that the percentages of each told to the one that came. */
  readonly #errors: Span[];
  #learned = 0;
  #plans = new Map<string, PollPlan | undefined>();

  constructor(ends: Span[], errors: Span[]) {
    this.#ends = ends;
    this.#errors = errors;
  }

  /** How long it takes until an end is seen: the median in ms; undefined where none is known. */
  get usualMs(): number | undefined {
    const seen = this.#ends.map(({ toMs }) => toMs).sort((one, other) => one - other);
    return seen[Math.floor(seen.length / 2)];
  }

  /** When to poll by the time since the submission; undefined where there is nothing to go by. */
  byTime(intervalMs: number): PollPlan | undefined {
    return this.#plan('time', this.#ends, 0, intervalMs);
  }

  /** When to poll by the time since the end that percentages tell. */
  byProgress(intervalMs: number): PollPlan | undefined {
    return this.#plan('progress', this.#errors, -mostEarly * intervalMs, intervalMs);
  }

  /** One more has ended. */
  learn(end: Span, error?: Span): void {
    if (end.toMs > longestWatchedMs) return;
    this.#ends.push(end);
    if (error !== undefined) this.#errors.push(error);
    if (this.#ends.length > enough) this.#ends.shift();
    if (this.#errors.length > enough) this.#errors.shift();
    this.#learned += 1;
    // A plan takes milliseconds, and one more end hardly changes it.
    if (this.#learned * 4 < this.#ends.length) return;
    this.#learned = 0;
    this.#plans.clear();
  }

  #plan(by: string, spans: readonly Span[], startMs: number, intervalMs: number): PollPlan | undefined {
    const name = `${by} ${intervalMs}`;
    if (!this.#plans.has(name)) {
      const likelihood = likelihoodOf(spans, startMs, intervalMs);
      this.#plans.set(name, likelihood && new PollPlan(likelihood, intervalMs));
    }
    return this.#plans.get(name);
  }
}

const known = new WeakMap<Ledger, Map<string, Promise<History>>>();

/**
 * What the last jobs like one tell: those of its model at its gateway, and of its size where there are some. It is read
 * once for all jobs of a process that are alike, from the newest hundred records at most.
 */
export function historyOf(ledger: Ledger, job: Job): Promise<History> {
  const histories = known.get(ledger) ?? new Map<string, Promise<History>>();
  known.set(ledger, histories);
  const name = [job.base_url, job.protocol, job.model, sizeOf(job)].join('\n');
  const history = histories.get(name) ?? readHistory(ledger, job);
  histories.set(name, history);
  return history;
}

async function readHistory(ledger: Ledger, job: Job): Promise<History> {
  const alike: Job[] = [];
  for (const id of (await ledger.listed()).slice(0, mostRead)) {
    if (alike.length === enough) break;
    const other = await ledger.read(id);
    if (other !== undefined && isAlike(other, job) && endOf(other) !== undefined) alike.unshift(other);
  }
  const size = sizeOf(job);
  const same = alike.filter((other) => sizeOf(other) === size);
  const chosen = same.length >= fewest ? same : alike;
  const errors = await Promise.all(chosen.map(async (each) => errorIn(each, await ledger.events(each.id))));
  return new History(
    chosen.map(endOf).filter((end) => end !== undefined),
    errors.filter((error) => error !== undefined),
  );
}

function isAlike(one: Job, other: Job): boolean {
  return one.protocol === other.protocol && one.model === other.model && one.base_url === other.base_url;
}

// Undefined where it is not known, or says nothing.
function endOf({ state, submitted_at = '', finished_at = '', record }: Job): Span | undefined {
  const toMs = Date.parse(finished_at) - Date.parse(submitted_at);
  if (state !== 'succeeded' || !(toMs > 0 && toMs <= longestWatchedMs)) return undefined;
  return { fromMs: Math.max(0, toMs - (record.finishGapMs ?? longestPauseMs)), toMs };
}

function errorIn(job: Job, events: readonly (RecordedEvent | undefined)[]): Span | undefined {
  const submitted = Date.parse(job.submitted_at ?? '');
  const seen = events.flatMap((event): ProgressSeen[] =>
    event?.type === 'observed' && event.progress !== undefined
      ? [{ atMs: Date.parse(event.at) - submitted, percent: event.progress }]
      : [],
  );
  const end = endOf(job);
  return end && errorOf(seen, end);
}

/** From the end that percentages told to the span in which it came; undefined where they told none lately. */
export function errorOf(seen: readonly ProgressSeen[], end: Span): Span | undefined {
  const told = extrapolated(seen);
  const isLate = (seen.at(-1)?.atMs ?? 0) < end.fromMs - 1000;
  if (told === undefined || isLate) return undefined;
  return { fromMs: end.fromMs - told.endMs, toMs: end.toMs - told.endMs };
}
