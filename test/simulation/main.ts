import { fork } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { planOf, type Plan } from './plan.ts';
import { play, type Played } from './play.ts';
import { shrink } from './shrink.ts';
import { stories } from './stories.ts';
import { Threads } from './threads.ts';

const usage = `npm run simulate -- [--seed N] [--runs M | --minutes M] [--trace] [--stories] [--plant NAME]

  --seed 1 --runs 1000    plays the schedules of a thousand seeds
  --seed 1 --minutes 480  plays as many schedules as possible in a night
  --seed 1 --trace        replays one schedule, and prints every system call
  --stories               plays the schedules that once broke a promise; with --runs, seeds as well
  --plant NAME --runs M   plays schedules until one reveals the defect NAME of plants.mjs
`;
const words = process.argv.slice(2);
const { values } = parseArgs({
  args: words,
  options: {
    ...{ seed: { type: 'string' }, runs: { type: 'string' }, minutes: { type: 'string' } },
    ...{ trace: { type: 'boolean' }, stories: { type: 'boolean' }, plant: { type: 'string' } },
    help: { type: 'boolean', short: 'h' },
  },
});
const numberOf = (name: 'seed' | 'runs' | 'minutes'): number | undefined => {
  const text = values[name];
  if (text !== undefined && !/^\d{1,10}$/.test(text)) throw new Error(`--${name} must be a whole number.`);
  return text === undefined ? undefined : Number(text);
};
const built = (name: string): URL => new URL(name, import.meta.url);
const first = numberOf('seed') ?? Math.floor(Math.random() * 1e9);
const minutes = numberOf('minutes') ?? Infinity;
const runs = numberOf('runs') ?? (values.stories ? 0 : minutes < Infinity ? Infinity : 1);
const isForOne = runs === 1 || values.trace || values.stories || values.plant !== undefined;
// With the share `K/N`, this process plays every N-th seed, beginning K seeds after the first. The parent process adds
// up the results.
const share = process.env['MGW_SIMULATION_SHARE'];
const [part = 0, parts = 1] = share?.split('/').map(Number) ?? [];

const began = Date.now();
const end = began + minutes * 60_000;
if (values.help) process.stdout.write(usage);
else await run();

async function run(): Promise<void> {
  const { played, broken } = isForOne || share !== undefined ? await playAll() : await playInProcesses();
  const rate = (played / ((Date.now() - began) / 1000)).toFixed(1);
  if (share !== undefined) process.send?.({ played, broken });
  else console.log(`${broken} of ${played} schedules broke a promise; ${rate} schedules a second`);
  process.exitCode = broken === 0 ? 0 : 1;
}

interface Count {
  played: number;
  broken: number;
}

// Starts one process per core, because a process uses only one core.
async function playInProcesses(): Promise<Count> {
  const cores = availableParallelism();
  const counts = await Promise.all(
    Array.from({ length: cores }, async (_, index) => {
      const env = { ...process.env, MGW_SIMULATION_SHARE: `${index}/${cores}` };
      const child = fork(fileURLToPath(import.meta.url), [...words, '--seed', String(first)], { env });
      const ended = once(child, 'exit').then(() =>
        Promise.reject(new Error('a process simulated no schedule')),
      );
      const [count] = (await Promise.race([once(child, 'message'), ended])) as [Count];
      return count;
    }),
  );
  return counts.reduce((sum, each) => ({
    played: sum.played + each.played,
    broken: sum.broken + each.broken,
  }));
}

async function playAll(): Promise<Count> {
  const threads = new Threads(built('./thread.mjs'), fileURLToPath(built('./mgw.cjs')));
  let [played, broken] = [0, 0];
  for (const plan of plans()) {
    if (Date.now() > end) break;
    const outcome = await play(plan, threads, values.trace);
    played += 1;
    if (played === 1) await replay(plan, threads);
    if (outcome.violations.length > 0) {
      broken += 1;
      await report(plan, outcome, threads, broken === 1);
      if (values.plant !== undefined) break;
    } else if (values.trace) console.log(outcome.log.join('\n'));
  }
  await threads.close();
  return { played, broken };
}

function* plans(): Iterable<Plan> {
  if (values.stories) yield* Object.values(stories).map((story) => ({ ...story, isExact: true }));
  for (let seed = first + part; seed < first + runs; seed += parts) yield planOf(seed);
}

// Fails unless the schedule replays exactly, because otherwise a seed would be useless.
async function replay(plan: Plan, threads: Threads): Promise<void> {
  const [one, other] = [await play(plan, threads, true), await play(plan, threads, true)];
  if (one.log.length === 0 || one.log.join('\n') !== other.log.join('\n'))
    throw new Error(`Seed ${plan.seed} does not replay exactly.`);
}

// Prints the first broken promise as a story, and only the kind of the others.
async function report(
  plan: Plan,
  { violations, log }: Played,
  threads: Threads,
  isFirst: boolean,
): Promise<void> {
  console.log(`seed ${plan.seed}: ${violations.join('; ')}`);
  if (values.trace) console.log(log.join('\n'));
  if (!isFirst) return;
  const { plan: short, played: shortest } = await shrink(plan, violations, threads);
  console.log(`The shortest schedule found that breaks a promise: ${shortest.violations.join('; ')}`);
  console.log(shortest.log.map((line) => `  ${line}`).join('\n'));
  console.log(JSON.stringify(short));
}
