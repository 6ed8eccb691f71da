import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { clearTimeout } from 'node:timers';
import { parseArgs } from 'node:util';
import { explanations, sample } from './sample.mjs';
import { makeTree } from './tree.mjs';

const usage = `npm run mutants -- [--files TEXT]... [--sample N] [--seed S] [--mutant ID] [--list]

Breaks the code that decides about money in one place at a time, and runs the tests that reach the place.

  --files TEXT    only mutants of files whose path contains TEXT
  --sample N      N mutants, drawn by the seed
  --seed S        the seed of the sample (default 1)
  --mutant ID     one mutant, by its number or as the report names it
  --tests PATH    only test files below PATH (default: all); may be given several times
  --jobs N        mutants at a time (default 1)
  --list          print the mutants, run nothing

Exits 1 if a mutant survives that test/mutants.md does not explain.
`;

const { values } = parseArgs({
  options: {
    files: { type: 'string', multiple: true },
    sample: { type: 'string' },
    seed: { type: 'string', default: '1' },
    mutant: { type: 'string' },
    tests: { type: 'string', multiple: true, default: ['test/'] },
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
  const chosen = choose(makeTree(tree, note));
  if (chosen.length === 0) throw new Error('No mutant is chosen.');
  if (values.list) return chosen.forEach(({ number, id, text }) => console.log(`${number}  ${id}  ${text}`));
  const reached = await coverage();
  const queue = [...chosen];
  const results = [];
  const work = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const result = await run(next, reached);
      results.push(result);
      note(`${results.length}/${chosen.length}  ${result.outcome.padEnd(9)}  ${next.id}  ${next.text}`);
    }
  };
  await Promise.all(Array.from({ length: Number(values.jobs) }, work));
  report(results);
}

function choose(mutants) {
  const { files, mutant } = values;
  const of = mutants.filter(({ path }) => files === undefined || files.some((part) => path.includes(part)));
  if (mutant !== undefined) return of.filter(({ id, number }) => id === mutant || String(number) === mutant);
  return values.sample === undefined ? of : sample(of, Number(values.sample), values.seed);
}

/** Runs the tests once without a mutant; returns which test files reach which mutants, and how long each takes. */
async function coverage() {
  const key = values.tests.join('+').replaceAll('/', '_');
  const path = join(tree, `reached-${key}.json`);
  if (!existsSync(path)) {
    note('Running the tests once, to see which of them reach which mutants');
    const folder = join(tree, 'reached');
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    const output = join(tree, 'tests.json');
    const flags = ['--reporter=json', `--outputFile=${output}`];
    await vitest([...flags, ...values.tests], { MGW_REACHED: folder }, 2 ** 31 - 1);
    const { testResults } = JSON.parse(readFileSync(output, 'utf8'));
    const broken = testResults.filter(({ status }) => status !== 'passed').map(({ name }) => name);
    for (const name of broken) note(`Fails without a mutant, and is left out: ${name}`);
    const ms = new Map(testResults.map(({ name, startTime, endTime }) => [name, endTime - startTime]));
    const files = readdirSync(folder)
      .map((name) => ({ file: name.replaceAll('+', '/'), numbers: readFileSync(join(folder, name), 'utf8') }))
      .filter(({ file }) => !broken.includes(join(tree, file)))
      .map(({ file, numbers }) => ({
        file,
        ms: ms.get(join(tree, file)) ?? 0,
        numbers: [...new Set(numbers.trim().split(' ').map(Number))],
      }));
    writeFileSync(path, JSON.stringify(files));
  }
  const files = JSON.parse(readFileSync(path, 'utf8'));
  const reached = new Map();
  for (const { file, ms, numbers } of files.sort((a, b) => a.ms - b.ms))
    for (const number of numbers) reached.set(number, [...(reached.get(number) ?? []), { file, ms }]);
  return reached;
}

// The quick tests come first, since they kill most mutants.
async function run(mutant, reached) {
  const files = [...(reached.get(mutant.number) ?? [])];
  if (files.length === 0) return { mutant, outcome: 'unreached' };
  for (let budget = 5000; files.length > 0; budget *= 3) {
    const fit = files.findIndex((_, index) => total(files.slice(0, index + 1)) > budget);
    const some = files.splice(0, fit === -1 ? files.length : Math.max(1, fit));
    const limit = 60_000 + 5 * total(some);
    const code = await vitest(
      ['--bail=1', '--reporter=json', '--outputFile=/dev/null', ...some.map(({ file }) => file)],
      { PATH: `${process.env.PATH}:mgw-mutant=${mutant.number}=` },
      limit,
    );
    if (code !== 0) return { mutant, outcome: code === undefined ? 'hung' : 'killed', by: some };
  }
  return { mutant, outcome: 'survived' };
}

function total(files) {
  return files.reduce((sum, { ms }) => sum + ms, 0);
}

// Undefined if it takes longer than the limit.
function vitest(args, env, limitMs) {
  const options = { cwd: tree, env: { ...process.env, ...env }, stdio: 'ignore', detached: true };
  const child = spawn(
    process.execPath,
    [resolve('node_modules/vitest/vitest.mjs'), 'run', '--maxWorkers=2', ...args],
    options,
  );
  return new Promise((done) => {
    const timer = setTimeout(() => {
      process.kill(-child.pid, 'SIGKILL');
      done(undefined);
    }, limitMs);
    child.on('exit', (code) => {
      clearTimeout(timer);
      done(code ?? 1);
    });
  });
}

function report(results) {
  const of = (...outcomes) => results.filter(({ outcome }) => outcomes.includes(outcome));
  const killed = of('killed', 'hung').length;
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
