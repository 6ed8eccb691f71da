import { checkStorm, type Violations } from './check.ts';
import { drive, type Ended } from './drive.ts';
import { planStorm, type Plan } from './plan.ts';
import { openWorld, type World } from './world.ts';

/** Options of {@link storm}. */
export interface StormOptions {
  jobs: number;
  /** The seed, which determines the schedule: the submissions, the kills and the failing calls. */
  seed: number;
  /** The path of the built worker. */
  worker: string;
  /** The probability, in percent, that a call to the gateway fails. */
  chaos?: number;
  /** The number of concurrent jobs. */
  width?: number;
  onProgress?: (done: number) => void;
}

/** The result of a finished storm. */
export interface StormResult {
  violations: Violations;
  ended: Ended[];
  /** The number of runs; `killed` is the number of killed runs. */
  runs: number;
  killed: number;
  /** The storm's folder, which is kept after a violation; undefined if the folder was removed. */
  root?: string;
}

/** Runs a storm to its end, and checks its results. */
export async function storm(options: StormOptions): Promise<StormResult> {
  const { jobs, seed, worker, chaos = 20, width = 6, onProgress } = options;
  const world = await openWorld({ worker, seed, paceMs: 150, faults: [`chaos@${chaos}%`] });
  try {
    const ended = await inTurns(planStorm(jobs, seed), width, world, onProgress);
    const violations = await checkStorm(world, ended);
    const isClean = countOf(violations) === 0;
    if (isClean) world.remove();
    const killed = world.runs.filter(({ code }) => code === 137).length;
    return { violations, ended, runs: world.runs.length, killed, ...(!isClean && { root: world.root }) };
  } finally {
    await world.close();
  }
}

/** Returns the total number of violations. */
export function countOf(violations: Violations): number {
  return Object.values(violations).flat().length;
}

/** Returns a summary such as `0 double charges, 0 lost handles, …`. */
export function summaryOf({ violations, ended, runs, killed }: StormResult): string {
  const counts = Object.entries(violations).map(([name, found]) => `${(found as string[]).length} ${name}`);
  const unknown = ended.filter(({ codes }) => codes.includes(7)).length;
  return `${counts.join(', ')}; ${ended.length} jobs (${unknown} unknown) in ${runs} runs, ${killed} of them killed`;
}

async function inTurns(
  plans: readonly Plan[],
  width: number,
  world: World,
  onProgress: StormOptions['onProgress'],
): Promise<Ended[]> {
  const ended: Ended[] = [];
  const remaining = [...plans];
  const turn = async (): Promise<void> => {
    for (let next = remaining.shift(); next !== undefined; next = remaining.shift()) {
      ended.push(await drive(next, world));
      onProgress?.(ended.length);
    }
  };
  await Promise.all(Array.from({ length: width }, turn));
  return ended;
}
