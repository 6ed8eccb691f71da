import { fileURLToPath } from 'node:url';
import inMemory from '../support/temporary.ts';
import { sweepFailures } from './failing-disk.ts';
import { readOptions, type StormOptions } from './options.ts';
import { countOf, storm, summaryOf } from './storm.ts';
import { sweepPowerCut } from './power-cut.ts';
import type { Swept } from './reruns.ts';
import { scenarios, type Scenario } from './scenarios.ts';

const worker = fileURLToPath(new URL('./worker.js', import.meta.url));
const recorder = new URL('./recorder.js', import.meta.url).href;

// Usage:
//   npm run storm -- --jobs 500 --seed 7
//   npm run storm -- --failing-disk
//   npm run storm -- --power-cut
const options = readOptions(process.argv.slice(2));
if (options?.powerCut === true) await sweep((scenario) => sweepPowerCut(scenario, recorder));
else if (options?.failingDisk === true) await sweep((scenario) => sweepFailures(scenario, worker));
else if (options !== undefined) await blow(options);

async function blow({ jobs, seed, chaos, width }: StormOptions): Promise<void> {
  const began = Date.now();
  const onProgress = (done: number): void => progress(`${done} of ${jobs} jobs`);
  const result = await storm({ jobs, seed, chaos, width, worker, onProgress });
  for (const [name, found] of Object.entries(result.violations))
    for (const what of found as string[]) console.error(`${name}: ${what}`);
  if (result.root !== undefined) console.error(`The files are in ${result.root}`);
  console.log(`${summaryOf(result)}, seed ${seed}, ${((Date.now() - began) / 1000).toFixed(0)} s`);
  process.exitCode = countOf(result.violations) === 0 ? 0 : 1;
}

/** Interrupts every scenario at every moment, with every disk state that may result. */
async function sweep(strike: (scenario: Scenario) => Promise<Swept>): Promise<void> {
  const began = Date.now();
  const remove = inMemory();
  let [moments, disks, broken] = [0, 0, 0];
  for (const scenario of scenarios) {
    const swept = await strike(scenario);
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

function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text}`);
}
