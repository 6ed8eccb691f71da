import { fileURLToPath } from 'node:url';
import { planOf, type Plan } from './plan.ts';
import { play, type Played } from './play.ts';
import { shrink } from './shrink.ts';
import { stories } from './stories.ts';
import { Threads } from './threads.ts';

// npm run simulate -- --seed 1 --runs 1000   plays the schedules of a thousand seeds
// npm run simulate -- --seed 1 --minutes 480 plays what can be played in a night
// npm run simulate -- --seed 1 --trace       replays one, with every system call
// npm run simulate -- --stories              plays the schedules that once broke a promise; with --runs, the seeds too
// npm run simulate -- --plant NAME --runs M  plays schedules until one shows the defect of plants.mjs
const words = process.argv.slice(2);
const numberOf = (name: string): number | undefined =>
  words.includes(name) ? Number(words[words.indexOf(name) + 1]) : undefined;
const built = (name: string): URL => new URL(name, import.meta.url);
const threads = new Threads(built('./thread.mjs'), fileURLToPath(built('./mgw.cjs')));
const first = numberOf('--seed') ?? Math.floor(Math.random() * 1e9);
const minutes = numberOf('--minutes') ?? Infinity;
const runs = numberOf('--runs') ?? (words.includes('--stories') ? 0 : minutes < Infinity ? Infinity : 1);

const began = Date.now();
const end = began + minutes * 60_000;
let [played, broken] = [0, 0];
for (const plan of plans()) {
  if (Date.now() > end) break;
  const came = await play(plan, threads, words.includes('--trace'));
  played += 1;
  if (played === 1) await replay(plan);
  if (came.violations.length > 0) {
    broken += 1;
    await report(plan, came);
    if (words.includes('--plant')) break;
  } else if (words.includes('--trace')) console.log(came.log.join('\n'));
}
const rate = (played / ((Date.now() - began) / 1000)).toFixed(1);
console.log(`${broken} of ${played} schedules broke a promise; ${rate} schedules a second`);
await threads.close();
process.exitCode = broken === 0 ? 0 : 1;

function* plans(): Iterable<Plan> {
  if (words.includes('--stories')) yield* Object.values(stories);
  for (let seed = first; seed < first + runs; seed += 1) yield planOf(seed);
}

// A seed is worth nothing if it does not replay.
async function replay(plan: Plan): Promise<void> {
  const [one, other] = [await play(plan, threads, true), await play(plan, threads, true)];
  if (one.log.length === 0 || one.log.join('\n') !== other.log.join('\n'))
    throw new Error(`Seed ${plan.seed} does not replay exactly.`);
}

// Prints the first broken promise as a story, and only the kind of the others.
async function report(plan: Plan, { violations, log }: Played): Promise<void> {
  console.log(`seed ${plan.seed}: ${violations.join('; ')}`);
  if (words.includes('--trace')) console.log(log.join('\n'));
  if (broken > 1) return;
  const { plan: short, played: told } = await shrink(plan, violations, threads);
  console.log(`The shortest schedule found that does it: ${told.violations.join('; ')}`);
  console.log(told.log.map((line) => `  ${line}`).join('\n'));
  console.log(JSON.stringify(short));
}
