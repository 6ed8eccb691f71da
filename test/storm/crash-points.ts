import type { Crash } from './crash.ts';
import { commandOf, outputOf, untilEnded, type Ended } from './drive.ts';
import type { Kind, Plan } from './plan.ts';
import type { World } from './world.ts';

/** One point at which a run was struck, and how it and its reruns ended. */
export interface Point {
  at: number;
  /** The exit code of the run that was struck: 137 where it was killed. */
  struck: number;
  ended: Ended;
}

/** Which points are tried: all of one way of striking, or every so many of them from some point on. */
export interface Sweep {
  kind: Kind;
  how: Crash['how'];
  from?: number;
  every?: number;
}

/** Far beyond what a submission does; a sweep that gets there has lost its end. */
const mostPoints = 400;

/** How many points are tried at once. */
const width = 3;

/**
 * Strikes a submission that saves its result at its first file operation, then another one at its second, and so
 * on, until a run is through before it is struck; after each strike the same command is run until it ends.
 */
export async function sweepCrashes(sweep: Sweep, world: World, intent: () => number): Promise<Point[]> {
  const { from = 1, every = 1 } = sweep;
  const points: Point[] = [];
  for (let at = from; at < mostPoints; at += every * width) {
    const next = Array.from({ length: width }, (_, index) => at + index * every);
    const struck = await Promise.all(next.map((each) => strikeAt(each, sweep, world, intent())));
    points.push(...struck.filter((point) => point !== undefined));
    if (struck.includes(undefined)) return points;
  }
  throw new Error(`${mostPoints} file operations and no end`);
}

async function strikeAt(
  at: number,
  { kind, how }: Sweep,
  world: World,
  n: number,
): Promise<Point | undefined> {
  const plan: Plan = { n, kind, way: 'plain', isOwnProcess: false, kills: [[]] };
  const out = outputOf(plan, world);
  const args = [...commandOf(plan), '-o', out];
  const first = await world.run(args, { crash: { at, how } });
  // A run that ends well although something failed has got what it asked for: nobody would repeat it.
  if (first.code === 0 && first.operations < at) return undefined;
  const rerun = (again: string[]): ReturnType<World['run']> => world.run(again);
  // One that was told where its speech is, and that it is not on record, has got it too.
  const hasIt = first.code === 0 || first.stderr.includes(`whole and saved as ${out}`);
  const last = hasIt ? 0 : await untilEnded(plan, rerun, args);
  return { at, struck: first.code, ended: { plan, codes: [last], runs: 2 } };
}
