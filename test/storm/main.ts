import { fileURLToPath } from 'node:url';
import inMemory from '../support/temporary.ts';
import { checkStorm, type Violations } from './check.ts';
import { sweepCrashes, type Sweep } from './crash-points.ts';
import type { Ended } from './drive.ts';
import { readOptions, type StormOptions } from './options.ts';
import { countOf, storm, summaryOf } from './storm.ts';
import { scenarios } from './power-cut-scenarios.ts';
import { sweepPowerCut } from './power-cut.ts';
import { openWorld } from './world.ts';

const worker = fileURLToPath(new URL('./worker.js', import.meta.url));

// npm run storm -- --jobs 500 --seed 7
// npm run storm -- --crash-points
// npm run storm -- --power-cut
const options = readOptions(process.argv.slice(2));
if (options !== undefined) await (options.powerCut ? cutPower() : blow(options));

async function blow(options: StormOptions): Promise<void> {
  const began = Date.now();
  const { summary, violations, root } = await (options.crashPoints ? crashPoints() : wholeStorm(options));
  for (const [name, found] of Object.entries(violations))
    for (const what of found as string[]) console.error(`${name}: ${what}`);
  if (root !== undefined) console.error(`The remains are in ${root}`);
  console.log(`${summary}, ${((Date.now() - began) / 1000).toFixed(0)} s`);
  process.exitCode = countOf(violations) === 0 ? 0 : 1;
}

interface Verdict {
  summary: string;
  violations: Violations;
  root?: string | undefined;
}

async function wholeStorm({ jobs, seed, chaos, width }: StormOptions): Promise<Verdict> {
  const onProgress = (done: number): void => progress(`${done} of ${jobs} jobs`);
  const result = await storm({ jobs, seed, chaos, width, worker, onProgress });
  return { summary: `${summaryOf(result)}, seed ${seed}`, ...result };
}

/** Every operation of every kind of job on the disk, failing in every way. Those at which it dies: `cutPower`. */
async function crashPoints(): Promise<Verdict> {
  const world = await openWorld({ worker, paceMs: 1 });
  const ended: Ended[] = [];
  const kinds: Sweep['kind'][] = ['a', 'a-inline', 'b', 'c', 'tts'];
  const hows: Sweep['how'][] = ['ENOSPC', 'EIO-after', 'full'];
  let intents = 0;
  for (const kind of kinds) {
    for (const how of hows) {
      const points = await sweepCrashes({ kind, how }, world, () => intents++);
      ended.push(...points.map((point) => point.ended));
      progress(`${kind} ${how}: ${points.length} points`);
    }
  }
  const violations = await checkStorm(world, ended);
  await world.close();
  const isClean = countOf(violations) === 0;
  if (isClean) world.remove();
  const result = { violations, ended, runs: world.runs.length, killed: killedOf(world.runs) };
  return { summary: summaryOf(result), violations, ...(!isClean && { root: world.root }) };
}

/** Every moment of every scenario, and whatever a power cut may leave of what was not synced. */
async function cutPower(): Promise<void> {
  const recorder = new URL('./recorder.js', import.meta.url).href;
  const began = Date.now();
  const remove = inMemory();
  let [moments, disks, broken] = [0, 0, 0];
  for (const scenario of scenarios) {
    const swept = await sweepPowerCut(scenario, recorder);
    moments += swept.moments;
    disks += swept.disks;
    broken += swept.violations.length;
    for (const violation of swept.violations) console.error(violation);
    progress(`${scenario.name}: ${swept.moments} moments`);
  }
  remove();
  const seconds = ((Date.now() - began) / 1000).toFixed(0);
  console.log(`${broken} broken promises; ${disks} disks of ${moments} moments, ${seconds} s`);
  process.exitCode = broken === 0 ? 0 : 1;
}

function killedOf(runs: readonly { code: number }[]): number {
  return runs.filter(({ code }) => code === 137).length;
}

function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text}`);
}
