import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { pollPauseMs } from '../../src/http/backoff.ts';
import type { Job } from '../../src/job.ts';
import { likelihoodOf } from '../../src/jobs/end-times.ts';
import { PollPacer } from '../../src/jobs/poll-pacer.ts';
import { PollPlan } from '../../src/jobs/poll-plan.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { fakeClock } from './harness.ts';

const intervalMs = 5000;

/** A task at the gateway; times in ms since its submission. */
interface Task {
  endMs: number;
  /** What it tells of its progress at a time. */
  percentAt?: (ms: number) => number;
}

interface Waited {
  lateMs: number;
  polls: number;
  pauses: number[];
}

/** Numbers by chance, always the same ones. */
function chance(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

/** A ledger that is empty: what is known is what this process has seen. */
function emptyLedger(): Ledger {
  return { listed: () => Promise.resolve([]) } as Partial<Ledger> as Ledger;
}

async function waitedFor(task: Task, ledger: Ledger, random: () => number): Promise<Waited> {
  const clock = fakeClock();
  const job = { model: 'm', protocol: 'c', submitted_at: new Date(clock.now()).toISOString() } as Job;
  const pacer = new PollPacer(job, { clock, ledger }, intervalMs, random);
  const pauses: number[] = [];
  for (let looks = 0; ; looks += 1) {
    const pause = await pacer.pauseMs(looks);
    pauses.push(pause);
    clock.advance(pause);
    const isOver = pacer.passedMs >= task.endMs;
    const state = isOver ? 'succeeded' : 'running';
    const progress = task.percentAt?.(pacer.passedMs);
    await pacer.saw({ kind: 'observation', state, nativeStatus: '', results: [], progress }, pacer.passedMs);
    if (isOver) return { lateMs: pacer.passedMs - task.endMs, polls: pauses.length, pauses };
  }
}

/** The pauses that grow from the interval to twice that, whatever is known. */
function blindly(task: Task, random: () => number): Waited {
  const pauses = [intervalMs];
  let at = intervalMs;
  for (; at < task.endMs; at += pauses.at(-1) ?? 0)
    pauses.push(pollPauseMs(pauses.length - 1, intervalMs, random));
  return { lateMs: at - task.endMs, polls: pauses.length, pauses };
}

const count = 300;

/** How the lateness of a kind of tasks compares, one after the other in one process. */
async function compared(
  make: (random: () => number) => Task,
): Promise<{ late: number; polls: number; blind: number }> {
  const random = chance(7);
  const tasks = Array.from({ length: count }, () => make(random));
  const ledger = emptyLedger();
  const waits: Waited[] = [];
  for (const task of tasks) waits.push(await waitedFor(task, ledger, random));
  const without = tasks.map((task) => blindly(task, random));
  const pauses = waits.flatMap((each) => each.pauses);
  expect(Math.min(...pauses)).toBeGreaterThanOrEqual(intervalMs);
  expect(Math.max(...pauses)).toBeLessThanOrEqual(2 * intervalMs);
  const mean = (of: Waited[], what: 'lateMs' | 'polls'): number =>
    of.reduce((sum, each) => sum + each[what], 0) / of.length;
  return {
    late: mean(waits, 'lateMs'),
    blind: mean(without, 'lateMs'),
    polls: mean(waits, 'polls') / mean(without, 'polls'),
  };
}

function logNormal(random: () => number, medianMs: number, sigma: number): number {
  const normal = Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
  return medianMs * Math.exp(sigma * normal);
}

/** Tells whole percentages, from when it has left the queue on. */
function even(endMs: number, queueMs = 0): Task {
  const share = (ms: number): number => Math.max(0, (ms - queueMs) / (endMs - queueMs));
  return { endMs, percentAt: (ms) => Math.min(99, Math.floor(100 * share(ms))) };
}

// As video models are: those without percentages are told by their times alone.
const silent: Record<string, (random: () => number) => Task> = {
  'one model, hardly varying': (random) => ({ endMs: logNormal(random, 40_000, 0.03) }),
  'one model': (random) => ({ endMs: logNormal(random, 90_000, 0.15) }),
  'one model, varying much': (random) => ({ endMs: logNormal(random, 180_000, 0.3) }),
  'two sizes': (random) => ({ endMs: logNormal(random, random() < 0.6 ? 45_000 : 110_000, 0.05) }),
};
const telling: Record<string, (random: () => number) => Task> = {
  'even progress': (random) => even(logNormal(random, 90_000, 0.3)),
  'even progress after a queue': (random) => {
    const queueMs = -20_000 * Math.log(random());
    return even(queueMs + logNormal(random, 90_000, 0.2), queueMs);
  },
  'noisy progress': (random) => {
    const { endMs, percentAt = () => 0 } = even(logNormal(random, 120_000, 0.3));
    return { endMs, percentAt: (ms) => Math.min(99, Math.max(0, Math.floor(percentAt(ms) + 3 * random()))) };
  },
  'two sizes, even progress': (random) => even(logNormal(random, random() < 0.6 ? 45_000 : 110_000, 0.1)),
};
const misleading: Record<string, (random: () => number) => Task> = {
  'steps of thirty and fifty': (random) => {
    const endMs = logNormal(random, 90_000, 0.3);
    return { endMs, percentAt: (ms) => (ms < endMs / 5 ? 0 : ms < endMs / 2 ? 30 : 50) };
  },
  'done at 95': (random) => {
    const endMs = logNormal(random, 90_000, 0.3);
    return { endMs, percentAt: (ms) => Math.floor((95 * ms) / endMs) };
  },
  'slower and slower': (random) => {
    const endMs = logNormal(random, 90_000, 0.3);
    return { endMs, percentAt: (ms) => Math.floor(99 * Math.sqrt(Math.min(1, ms / endMs))) };
  },
};

describe('how late an end is seen, next to pauses that only grow', () => {
  it('half as late over tasks of all kinds, with no more polls', async () => {
    const all = await Promise.all(Object.values({ ...silent, ...telling }).map(compared));
    const sum = (what: 'late' | 'blind' | 'polls'): number =>
      all.reduce((total, each) => total + each[what], 0);
    expect(sum('late')).toBeLessThan(0.5 * sum('blind'));
    expect(sum('polls') / all.length).toBeLessThan(1.05);
  });

  // Ends that are spread over more than an interval cannot be met better than by half an interval on average.
  it.each(Object.entries(silent))(
    '%s: near half an interval, the least without more to go by',
    async (_, make) => {
      const { late, blind } = await compared(make);
      expect(late).toBeLessThan(0.56 * intervalMs);
      expect(late).toBeLessThan(0.66 * blind);
    },
  );

  it.each(Object.entries(telling))('%s: a third', async (_, make) => {
    const { late, blind } = await compared(make);
    expect(late).toBeLessThan(0.4 * blind);
  });

  it.each(Object.entries(misleading))('%s: still less', async (_, make) => {
    const { late, blind } = await compared(make);
    expect(late).toBeLessThan(0.75 * blind);
  });
});

describe('a plan', () => {
  const span = fc.tuple(fc.integer({ min: 0, max: 300_000 }), fc.integer({ min: 0, max: 20_000 }));

  it('never pauses for less than the interval or more than twice that', () => {
    fc.assert(
      fc.property(
        fc.array(span, { minLength: 1, maxLength: 20 }),
        fc.double({ min: -100_000, max: 1_000_000, noNaN: true }),
        fc.integer({ min: 50, max: 60_000 }),
        (spans, atMs, interval) => {
          const ends = spans.map(([fromMs, gap]) => ({ fromMs, toMs: fromMs + gap }));
          const likelihood = likelihoodOf(ends, 0, interval);
          const pause = likelihood && new PollPlan(likelihood, interval).pauseMs(atMs);
          if (pause === undefined) return;
          expect(pause).toBeGreaterThanOrEqual(interval);
          expect(pause).toBeLessThanOrEqual(2 * interval);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('is not made where it would take more than some milliseconds', () => {
    expect(likelihoodOf([{ fromMs: 0, toMs: 3_600_000 }], 0, 10)).toBeUndefined();
    expect(likelihoodOf([], 0, 5000)).toBeUndefined();
  });

  it('asks seldom long before an end can be expected, and meets it', () => {
    const ends = Array.from({ length: 30 }, () => ({ fromMs: 99_500, toMs: 100_000 }));
    const likelihood = likelihoodOf(ends, 0, intervalMs);
    if (likelihood === undefined) throw new Error('no plan');
    const plan = new PollPlan(likelihood, intervalMs);
    const times = [0];
    while ((times.at(-1) ?? 0) < 100_000)
      times.push((times.at(-1) ?? 0) + (plan.pauseMs(times.at(-1) ?? 0) ?? NaN));
    expect(times.at(-1)).toBeLessThan(101_500);
    expect(times.length).toBeLessThan(14);
  });
});

it('knows nothing of a job whose submission is not recorded, and pauses as ever', async () => {
  const clock = fakeClock();
  const pacer = new PollPacer(
    { model: 'm', protocol: 'c' } as Job,
    { clock, ledger: emptyLedger() },
    5000,
    () => 0.5,
  );
  expect(await pacer.pauseMs(0)).toBe(5000);
  await pacer.saw(
    { kind: 'observation', state: 'running', nativeStatus: '', results: [], progress: 40 },
    NaN,
  );
  expect(await pacer.pauseMs(1)).toBe(5000);
  expect(await pacer.pauseMs(20)).toBe(8750);
  expect(pacer.gapMs).toBeUndefined();
});

it('waits for no ledger that cannot be read', async () => {
  const clock = fakeClock();
  const ledger = { listed: () => Promise.reject(new Error('broken')) } as Partial<Ledger> as Ledger;
  const job = { model: 'm', protocol: 'c', submitted_at: new Date(clock.now()).toISOString() } as Job;
  expect(await new PollPacer(job, { clock, ledger }, 5000).pauseMs(0)).toBe(5000);
});
