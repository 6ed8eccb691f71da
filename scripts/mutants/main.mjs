import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { explanations, sample } from './sample.mjs';
import { Runner, Tests } from './tests.mjs';
import { makeTree } from './tree.mjs';

const usage = `npm run mutants -- [--files TEXT]... [--sample N] [--seed S] [--mutant ID] [--list]

Makes one small change at a time in the code that handles money, and runs the tests that reach the change.

  --files TEXT    only mutants of files whose path contains TEXT
  --sample N      N mutants, drawn by the seed
  --seed S        the seed of the sample (default 1)
  --mutant ID     one mutant, by its number or its name in the report
  --tests PATH    only test files below PATH (default: all); may be given several times
  --seconds N     only the quickest tests that reach a mutant, up to N seconds in total (default: all)
  --jobs N        mutants at a time (default 1)
  --list          prints the mutants and runs nothing

The first run records which tests reach which mutants, which takes minutes. An interrupted run continues there.
Exits 1 if a mutant survives that test/mutants.md does not explain.
`;

const { values } = parseArgs({
  options: {
    files: { type: 'string', multiple: true },
    sample: { type: 'string' },
    seed: { type: 'string', default: '1' },
    mutant: { type: 'string' },
    tests: { type: 'string', multiple: true, default: ['test/'] },
    seconds: { type: 'string', default: 'Infinity' },
    jobs: { type: 'string', default: '1' },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
const tree = process.env.MGW_MUTANTS_TREE ?? join(tmpdir(), 'mgw-mutants');
const note = (text) => process.stderr.write(`${text}\n`);

if (values.help) process.stdout.write(usage);
else await main();

async function main() {
  reserve(`${tree}.pid`);
  const chosen = choose(makeTree(tree, note));
  if (chosen.length === 0) throw new Error('No mutant is chosen.');
  if (values.list) return chosen.forEach(({ number, id, text }) => console.log(`${number}  ${id}  ${text}`));
  const runners = await Promise.all(Array.from({ length: Number(values.jobs) }, () => Runner.open(tree)));
  const each = (items, action) => {
    const queue = [...items];
    const work = async (runner) => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) await action(runner, next);
    };
    return Promise.all(runners.map(work));
  };
  const tests = new Tests(tree);
  const files = runners[0].files.filter((file) => values.tests.some((folder) => file.startsWith(folder)));
  await each(
    files.filter((file) => !tests.isRecorded(file)),
    async (runner, file) => {
      const isFit = await tests.record(runner, file);
      note(isFit ? `recorded  ${file}` : `Fails without a mutant, and is left out: ${file}`);
    },
  );
  tests.read(files);
  const results = [];
  await each(chosen, async (runner, mutant) => {
    const outcome = await tests.judge(runner, mutant, 1000 * Number(values.seconds));
    results.push({ mutant, outcome });
    note(`${results.length}/${chosen.length}  ${outcome.padEnd(9)}  ${mutant.id}  ${mutant.text}`);
  });
  for (const runner of runners) runner.close();
  report(results);
}

// Reserves the folder for this run. A second run in the folder could replace the copy, and the failures of the first
// run's tests would be counted as kills.
function reserve(path) {
  const other = existsSync(path) ? Number(readFileSync(path, 'utf8')) : 0;
  if (other > 0 && isRunning(other))
    throw new Error(`Process ${other} uses ${tree}. Set MGW_MUTANTS_TREE to another folder.`);
  writeFileSync(path, String(process.pid));
  process.once('exit', () => rmSync(path, { force: true }));
}

function isRunning(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function choose(mutants) {
  const { files, mutant } = values;
  const of = mutants.filter(({ path }) => files === undefined || files.some((part) => path.includes(part)));
  if (mutant !== undefined) return of.filter(({ id, number }) => id === mutant || String(number) === mutant);
  return values.sample === undefined ? of : sample(of, Number(values.sample), values.seed);
}

function report(results) {
  const of = (...outcomes) => results.filter(({ outcome }) => outcomes.includes(outcome));
  const killed = of('killed').length;
  const explained = explanations(readFileSync('test/mutants.md', 'utf8'));
  const survivors = of('survived', 'unreached').sort((a, b) => a.mutant.number - b.mutant.number);
  let open = 0;
  for (const { outcome, mutant } of survivors) {
    const why = explained(mutant);
    if (why === undefined) open += 1;
    console.log(`${outcome}  ${mutant.id}  ${mutant.text}${why === undefined ? '' : `\n  ${why}`}`);
  }
  const score = ((100 * killed) / results.length).toFixed(1);
  console.log(
    `${results.length} mutants: ${killed} killed (${score} %), ${survivors.length} survived, ${survivors.length - open} of them explained.`,
  );
  process.exitCode = open === 0 ? 0 : 1;
}
