import { stepsPerInterval, type Likelihood } from './poll-plan.ts';

/** A span in which something happened, as far as looks tell: after `fromMs`, and not after `toMs`. */
export interface Span {
  fromMs: number;
  toMs: number;
}

/** How far a task was when it was looked at. */
export interface ProgressSeen {
  /** Since the task's submission. */
  atMs: number;
  percent: number;
}

const mostSteps = 20_000;
const rounds = 10;

/**
 * How likely what happened in some spans happens at each time from `startMs` on, before which nothing counts; undefined
 * where there is nothing to go by. Looks are seconds apart: what all spans agree with best is found by expectation and
 * maximisation (Turnbull 1976), and smoothed as far as their number allows.
 */
export function likelihoodOf(
  spans: readonly Span[],
  startMs: number,
  intervalMs: number,
): Likelihood | undefined {
  const stepMs = intervalMs / stepsPerInterval;
  const last = Math.max(...spans.map(({ toMs }) => toMs)) - startMs;
  const count = Math.ceil((1.5 * last + 4 * intervalMs) / stepMs);
  if (spans.length === 0 || count > mostSteps) return undefined;
  const steps = spans.map(({ fromMs, toMs }) => {
    const to = Math.max(1, Math.ceil((toMs - startMs) / stepMs));
    return { from: Math.min(to - 1, Math.max(0, Math.floor((fromMs - startMs) / stepMs))), to };
  });
  let of = new Float64Array(count).fill(1);
  for (let round = 0; round < rounds; round += 1) of = refined(of, steps);
  blur(of, Math.max(1, 0.5 * deviation(of) * spans.length ** -0.2));
  // What was never seen may be all the same, and the more so the less was seen.
  const doubt = Math.max(0.05, 1 / (1 + spans.length));
  const scale = (doubt * sumOf(of)) / ((1 - doubt) * Math.log(count));
  for (let at = 0; at < count; at += 1) of[at] = (of[at] ?? 0) + scale / (at + 1);
  return { startMs, stepMs, of };
}

function refined(
  of: Float64Array,
  steps: readonly { from: number; to: number }[],
): Float64Array<ArrayBuffer> {
  const next = new Float64Array(of.length);
  for (const { from, to } of steps) {
    let sum = 0;
    for (let at = from; at < to; at += 1) sum += of[at] ?? 0;
    for (let at = from; at < to; at += 1) next[at] = (next[at] ?? 0) + (of[at] ?? 0) / sum;
  }
  return next;
}

function sumOf(of: Float64Array): number {
  return of.reduce((sum, likely) => sum + likely, 0);
}

// In steps.
function deviation(of: Float64Array): number {
  const sum = sumOf(of);
  const mean = of.reduce((total, likely, at) => total + likely * at, 0) / sum;
  return Math.sqrt(of.reduce((total, likely, at) => total + likely * (at - mean) ** 2, 0) / sum);
}

// Three moving means are nearly a bell curve of the same width.
function blur(of: Float64Array, width: number): void {
  const half = Math.round((Math.sqrt(4 * width * width + 1) - 1) / 2);
  for (let pass = 0; pass < 3 && half > 0; pass += 1) {
    const before = of.slice();
    let sum = 0;
    for (let at = 0; at < half; at += 1) sum += before[at] ?? 0;
    for (let at = 0; at < of.length; at += 1) {
      sum += (before[at + half] ?? 0) - (before[at - half - 1] ?? 0);
      of[at] = Math.max(0, sum) / (2 * half + 1);
    }
  }
}

/** When a task ends by the percentages that it told, ms since its submission, and how far that may be out. */
export interface Extrapolated {
  endMs: number;
  doubtMs: number;
}

/** Percentages that are taken to tell the end, at the least. */
const fewest = 3;

/** The least-squares line of time over percentage, where it comes to a hundred; undefined where they do not rise. */
export function extrapolated(seen: readonly ProgressSeen[]): Extrapolated | undefined {
  const points = seen.filter(
    ({ percent }, at) => percent > 0 && percent < 100 && percent !== seen[at - 1]?.percent,
  );
  const count = points.length;
  const last = points.at(-1);
  if (last === undefined || count < fewest || last !== seen.at(-1)) return undefined;
  const mean = (of: (point: ProgressSeen) => number): number =>
    points.reduce((sum, point) => sum + of(point), 0) / count;
  const [middle, middleMs] = [mean(({ percent }) => percent), mean(({ atMs }) => atMs)];
  const spread = mean(({ percent }) => (percent - middle) ** 2);
  const slope = mean(({ percent, atMs }) => (percent - middle) * (atMs - middleMs)) / spread;
  const endMs = middleMs + slope * (100 - middle);
  const errors = mean(({ percent, atMs }) => (atMs - middleMs - slope * (percent - middle)) ** 2);
  const share = 1 + 1 / count + (100 - middle) ** 2 / (count * spread);
  const doubt = Math.sqrt(((errors * count) / (count - 2)) * share);
  // Percentages are whole numbers, and no task is quite even.
  return slope > 0 ? { endMs, doubtMs: Math.max(doubt, 0.5 * slope, 0.03 * (endMs - last.atMs)) } : undefined;
}
