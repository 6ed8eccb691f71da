import type { Crash } from './crash.ts';
import { pick, randomFor, type Random } from './random.ts';

/** The kinds of submissions in a storm. */
export type Kind = 'a' | 'a-inline' | 'b' | 'c' | 'tts';

/**
 * The way in which a job is run: `plain` repeats one command line, `keyed` adds a `--key`, `together` does the
 * same as `keyed` in three processes at once, `apart` submits first and then fetches, and `retakes` requests a
 * second take each time (`--new`).
 */
export type Way = 'plain' | 'keyed' | 'together' | 'apart' | 'retakes';

/** The plan for one intent: a submission, how it is run, and when its runs are killed. */
export interface Plan {
  n: number;
  kind: Kind;
  way: Way;
  /** Whether each command runs in a separate process, which a shell starts. */
  isOwnProcess: boolean;
  /** The moment at which each run is killed, by process and run; undefined for a run that is not killed. */
  kills: (Kill | undefined)[][];
}

/** The moment at which a run is killed: a number of ms after it began, or at one of its disk operations. */
export type Kill = { killAfterMs: number } | { crash: Crash };

/** The number of runs that may be killed. Later runs are not killed, so every job ends. */
const inDanger = 6;

/**
 * Returns the complete schedule, which is the same for the same seed. The plan for each job does not depend on the
 * number of jobs.
 */
export function planStorm(jobs: number, seed: number): Plan[] {
  return Array.from({ length: jobs }, (_, n) => planJob(n, randomFor(seed, `job ${n}`)));
}

function planJob(n: number, random: Random): Plan {
  const kind = pick<Kind>(random, [
    ['a', 2],
    ['a-inline', 2],
    ['b', 3],
    ['c', 4],
    ['tts', 2],
  ]);
  const way = pick<Way>(random, [
    ['plain', 4],
    ['keyed', 3],
    ['together', 2],
    ['apart', kind === 'tts' ? 0 : 2],
    ['retakes', kind === 'tts' ? 0 : 1],
  ]);
  const isOwnProcess = random() < 0.1;
  const processes = way === 'together' ? 3 : 1;
  return {
    n,
    kind,
    way,
    isOwnProcess,
    kills: Array.from({ length: processes }, () => killsOf(random, isOwnProcess)),
  };
}

function killsOf(random: Random, isOwnProcess: boolean): (Kill | undefined)[] {
  return Array.from({ length: inDanger }, (_, run) => {
    const [isKilled, kind, when] = [random() < 0.5 / (1 + run / 2), random(), random()];
    return isKilled ? killOf(kind, when, isOwnProcess) : undefined;
  });
}

/** The approximate number of disk operations in a run that submits and saves. */
const maxOperations = 100;

// A timed kill rarely falls between two consecutive operations, so other kills happen at a given operation. Half of the
// timed kills come early, around the submission, which takes only a few milliseconds.
function killOf(kind: number, when: number, isOwnProcess: boolean): Kill {
  if (kind < 0.25 || isOwnProcess) return { killAfterMs: Math.round(when * (kind < 0.125 ? 60 : 700)) };
  const at = 1 + Math.floor(when * maxOperations);
  return { crash: { at, how: kind < 0.75 ? 'killed' : 'torn' } };
}
