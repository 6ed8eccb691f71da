import { join } from 'node:path';
import type { Kind, Plan } from './plan.ts';
import type { World } from './world.ts';
import type { Ran } from './workers.ts';

/** The outcome of an intent: for each of its processes, the exit code of the last run. */
export interface Ended {
  plan: Plan;
  codes: number[];
  /** The number of runs, including killed runs. */
  runs: number;
}

/** The maximum number of runs per process. A process that needs more runs counts as never ending. */
const maxRuns = 25;

/** Returns an intent's label in prompts and text. */
export function tokenOf(n: number): string {
  return `storm job ${n} end`;
}

/** Returns the number of the intent that a prompt belongs to. */
export function intentIn(text: string): number {
  return Number(/storm job (\d+) end/.exec(text)?.[1] ?? -1);
}

/** Returns an intent's output path. */
export function outputOf({ n, kind }: Plan, world: World): string {
  return join(world.out, `${n}.${kind === 'tts' ? 'mp3' : 'mp4'}`);
}

/** Runs an intent, and repeats it after each kill, until each of its processes has succeeded or failed. */
export async function drive(plan: Plan, world: World): Promise<Ended> {
  let runs = 0;
  const codes = await Promise.all(
    plan.kills.map(async (kills) => {
      const run = async (args: string[]): Promise<Ran> => {
        runs += 1;
        return world.run(args, { ...kills.shift(), isOwnProcess: plan.isOwnProcess });
      };
      return plan.way === 'apart' ? await apart(plan, world, run) : await repeated(plan, world, run);
    }),
  );
  return { plan, codes, runs };
}

type Run = (args: string[]) => Promise<Ran>;

async function repeated(plan: Plan, world: World, run: Run): Promise<number> {
  const output = plan.way === 'retakes' ? [] : ['-o', outputOf(plan, world)];
  const way = { plain: [], apart: [], retakes: ['--new'] };
  const named = plan.way === 'keyed' || plan.way === 'together' ? ['--key', `key-${plan.n}`] : way[plan.way];
  return untilEnded(plan, run, [...commandOf(plan), ...output, ...named]);
}

async function apart(plan: Plan, world: World, run: Run): Promise<number> {
  let id = '';
  const submitted = await untilEnded(plan, run, commandOf(plan), ({ stdout }) => {
    id = stdout.trim();
    return /^job_\w+$/.test(id);
  });
  if (submitted !== 0) return submitted;
  const fetch = ['video', plan.kind.slice(0, 1), 'fetch', id, '-o', outputOf(plan, world), ...waiting];
  return untilEnded(plan, run, fetch);
}

/**
 * Repeats a command line for as long as a script would. Returns the exit code of the last run, or -1 if the command
 * never ends. `hasIt` returns whether a killed run had printed its complete output.
 */
export async function untilEnded(
  plan: Plan,
  run: Run,
  args: string[],
  hasIt: (ran: Ran) => boolean = () => false,
): Promise<number> {
  for (let count = 0; count < maxRuns; count += 1) {
    const ran = await run(args);
    if (hasIt(ran)) return 0;
    if (!isOpen(plan.kind, ran.code)) return ran.code;
  }
  return -1;
}

// Whether a script repeats a command after this exit code: the job was not accepted or has not finished, the
// run was killed, or the video is temporarily unavailable.
function isOpen(kind: Kind, code: number): boolean {
  return code === 6 || code === 8 || code === 137 || (code === 9 && kind !== 'tts');
}

const waiting = ['--poll-interval', '50ms', '--timeout', '30s'];

/** Returns the command line that submits an intent, without the flags of its variant. */
export function commandOf({ n, kind }: Plan): string[] {
  const prompt = ['--prompt', tokenOf(n)];
  const a = ['--duration', '4', '--resolution', '720p', '--no-audio', ...waiting];
  switch (kind) {
    case 'a':
      return ['video', 'a', 'submit', '--model', 'video-a', ...prompt, ...a];
    case 'a-inline':
      return ['video', 'a', 'submit', '--model', 'video-a-inline', ...prompt, ...a];
    case 'b':
      return ['video', 'b', 'submit', '--model', 'Video-B', '--model-version', '2.0', ...prompt, ...waiting];
    case 'c':
      return [
        ...['video', 'c', 'submit', '--model', 'vendor-h3-mini', ...prompt],
        ...['--duration', '5', '--aspect-ratio', '1:1', ...waiting],
      ];
    case 'tts':
      return ['tts', tokenOf(n), '--speaker', 'en_female_1', '--timeout', '30s'];
  }
}
