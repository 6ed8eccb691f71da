import type { Job } from '../job.ts';
import { pollPauseMs } from '../http/backoff.ts';
import type { Observation } from '../protocols/protocol.ts';
import type { JobDeps } from './deps.ts';
import { extrapolated, likelihoodOf, type ProgressSeen } from './end-times.ts';
import { errorOf, historyOf, type History } from './history.ts';
import { PollPlan } from './poll-plan.ts';

/** Jobs that began together do not go on being polled together: so much of an interval comes by chance. */
const jitter = 0.025;

/**
 * How long to pause between the looks at one job: from the interval to twice that, as the specification has it, and so
 * that a look falls where the end is likely. That is told by the percentages of the job itself where they rise evenly,
 * else by what earlier jobs like it took; where neither is known, the pauses grow.
 */
export class PollPacer {
  readonly #clock: JobDeps['clock'];
  readonly #intervalMs: number;
  readonly #readHistory: () => Promise<History>;
  readonly #random: () => number;
  #history: Promise<History | undefined> | undefined;
  /** When the job was submitted, by the monotonic clock; NaN where that is not known. */
  readonly #submitted: number;
  readonly #seen: ProgressSeen[] = [];
  /** The last look that found the job unfinished, ms since the submission. */
  #openAtMs = 0;

  constructor(
    job: Job,
    { clock, ledger }: Pick<JobDeps, 'clock' | 'ledger'>,
    intervalMs: number,
    random: () => number = Math.random,
  ) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
    const passed = clock.now() - Date.parse(job.submitted_at ?? '');
    // The time of day may have been set since.
    this.#submitted = passed >= 0 ? clock.monotonic() - passed : NaN;
    this.#readHistory = () => historyOf(ledger, job);
    this.#random = random;
  }

  /** Time since the job's submission, ms; NaN where it is not known. */
  get passedMs(): number {
    return this.#clock.monotonic() - this.#submitted;
  }

  /** How long the job's end was not looked for when it is seen now, ms; undefined where that is not known. */
  get gapMs(): number | undefined {
    const gap = Math.round(this.passedMs - this.#openAtMs);
    return Number.isNaN(gap) ? undefined : gap;
  }

  /** A look that began at a time since the submission saw this. */
  async saw({ state, progress }: Observation, atMs: number): Promise<void> {
    if (state === 'succeeded') {
      const end = { fromMs: this.#openAtMs, toMs: this.passedMs };
      if (end.toMs > end.fromMs) (await this.#history)?.learn(end, errorOf(this.#seen, end));
    } else if (!Number.isNaN(atMs)) {
      this.#openAtMs = atMs;
      if (progress !== undefined) this.#seen.push({ atMs, percent: progress });
    }
  }

  /** The pause before the next look, of which some have been taken since the job was submitted, ms. */
  async pauseMs(looks: number): Promise<number> {
    // A ledger that cannot tell only leaves it out.
    const history = await (this.#history ??= this.#readHistory().catch(() => undefined));
    const planned = this.#planned(history, this.passedMs);
    if (planned !== undefined)
      return Math.min(2 * this.#intervalMs, planned + jitter * this.#intervalMs * this.#random());
    return looks === 0 ? this.#intervalMs : pollPauseMs(looks - 1, this.#intervalMs, this.#random);
  }

  #planned(history: History | undefined, passedMs: number): number | undefined {
    const told = extrapolated(this.#seen);
    if (told !== undefined) {
      const plan =
        history?.byProgress(this.#intervalMs) ?? this.#untried(told.doubtMs, passedMs - told.endMs);
      const pause = plan?.pauseMs(passedMs - told.endMs);
      if (pause !== undefined) return pause;
    }
    return history?.byTime(this.#intervalMs)?.pauseMs(passedMs);
  }

  // No earlier job tells how far percentages can be relied on: as far as they rise evenly.
  #untried(doubtMs: number, startMs: number): PollPlan | undefined {
    if (doubtMs > this.#intervalMs) return undefined;
    const likelihood = likelihoodOf([{ fromMs: -doubtMs, toMs: doubtMs }], startMs, this.#intervalMs);
    return likelihood && new PollPlan(likelihood, this.#intervalMs);
  }
}
