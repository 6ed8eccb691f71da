// Compares mgw with its peers, and prints one table. README.md describes how to write a case.
//
//   npm run bench [-- --only NAME] [--quick] [--json] [--dir FOLDER]
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { freeMemory, interleaved, measured } from './measure.mjs';
import { nodes, npmPackage, program } from './peers.mjs';
import { verdictOf, machine, table } from './report.mjs';

const all = readdirSync(join(import.meta.dirname, 'cases')).map((file) => file.replace('.mjs', ''));
const flags = new Command('npm run bench --')
  .addOption(new Option('--only <name...>', 'of the cases, no others').choices(all))
  .option('--quick', 'smaller sizes, and fewer rounds', false)
  .option('--json', 'for programs', false)
  .option('--dir <folder>', 'where what is measured is written', tmpdir())
  .parse()
  .opts();

const bin = join(import.meta.dirname, '..', 'bin', 'mgw.js');
const root = mkdtempSync(join(flags.dir, 'mgw-bench-'));
const rows = [];
const noise = [];
process.once('SIGINT', () => process.emit('exit') && process.kill(process.pid, 'SIGKILL'));
process.once('exit', () => rmSync(root, { recursive: true, force: true }));

for (const name of flags.only ?? all) {
  const { default: measure } = await import(`./cases/${name}.mjs`);
  await lookAtNoise(`before ${name}`);
  const startedAt = performance.now();
  const { bench, close } = open(name);
  try {
    for await (const row of measure(bench)) {
      rows.push({ case: name, ...row });
      tell(table([row]).split('\n').pop());
    }
  } finally {
    close();
  }
  tell(`  ${name}: ${((performance.now() - startedAt) / 1000).toFixed(0)} s`);
}
await lookAtNoise('at the end');

const result = { machine: machine(), noise, rows: rows.map((row) => ({ ...row, verdict: verdictOf(row) })) };
console.log(
  flags.json
    ? JSON.stringify(result, undefined, 2)
    : `\n${result.machine}\n\n${table(rows)}\n\n${noiseText()}`,
);
if (rows.some((row) => verdictOf(row) === 'MISSED')) process.exitCode = 1;

// Opens the tools that a case receives as `bench`.
function open(name) {
  const folder = join(root, name);
  mkdirSync(folder);
  const servers = [];
  let states = 0;
  const bench = {
    quick: flags.quick,
    folder,
    rounds: (whole, quick = 3) => (flags.quick ? quick : whole),
    // Returns the beginning of a command line that runs mgw on the given Node.
    mgw: (node = process.execPath) => [node, bin],
    // Creates an empty home for each call, without the user's settings or key.
    env: (url) => {
      const home = join(folder, `home-${(states += 1)}`);
      mkdirSync(home);
      return {
        PATH: process.env.PATH,
        HOME: home,
        MGW_BASE_URL: url,
        MGW_API_KEY: 'sk-bench-0123456789abcdef',
      };
    },
    // Starts servers/NAME.mjs in a separate process, which sends its address once it listens.
    serve: async (server, ...args) => {
      const child = fork(join(import.meta.dirname, 'servers', `${server}.mjs`), args.map(String));
      servers.push(child);
      const [url] = await once(child, 'message');
      return url;
    },
    nodes: () =>
      flags.quick ? nodes([Number(process.versions.node.split('.')[0])]) : nodes([20, 22, 24, 26]),
    npmPackage,
    program,
    // Returns the beginning of a command line that runs a minimal program from minimal/.
    minimal: (file, node = process.execPath) => [node, join(import.meta.dirname, 'minimal', file)],
    measured,
    // Measures a program that writes a large file, after removing that file and freeing memory.
    measuredWriting: (path, command, options) => {
      rmSync(path, { force: true });
      freeMemory(folder);
      return measured(command, options);
    },
    interleaved,
  };
  const close = () => {
    for (const server of servers) server.kill();
    rmSync(folder, { recursive: true, force: true });
  };
  return { bench, close };
}

// Measures bare Node repeatedly, to show how busy the machine is.
async function lookAtNoise(when) {
  // As in the cases, the environment has no NODE_EXTRA_CA_CERTS, which Node would read at startup.
  const env = { PATH: process.env.PATH };
  const runs = await interleaved(9, { bare: () => measured([process.execPath, '-e', '0'], { env }) });
  noise.push({
    when,
    bareMs: runs.of('bare') * 1000,
    bareCpuMs: runs.of('bare', 'cpu') * 1000,
    load: loadavg()[0],
  });
}

function noiseText() {
  const lines = noise.map(
    ({ when, bareMs, bareCpuMs, load }) =>
      `  ${when}: ${bareMs.toFixed(0)} ms, CPU ${bareCpuMs.toFixed(0)} ms, load ${load.toFixed(1)}`,
  );
  return ['Noise: bare Node (`node -e 0`), the median of 9.', ...lines].join('\n');
}

// Prints progress on stderr, because stdout is for the table.
function tell(line) {
  process.stderr.write(`${line}\n`);
}
