// How long a command takes to start, as a ratio to bare Node in the same round (design 12: `--version` at most 1.25,
// `models` on loopback at most 2).
//   npm run build && node bench/startup.mjs [rounds]
//
// Each round runs every command once, one after the other, so that a busy machine is busy for all of them; a ratio
// is the median of the rounds' ratios. Behind it is the same of CPU time, which other processes disturb less. It exits
// 1 where a target is missed by both.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const rounds = Number(process.argv[2] ?? 21);
const bin = fileURLToPath(new URL('../bin/mgw.js', import.meta.url));
const home = mkdtempSync(join(tmpdir(), 'mgw-bench-'));

const server = createServer((_request, response) => {
  response.setHeader('content-type', 'application/json');
  response.end('{"object":"list","data":[{"id":"vendor-h3","object":"model"}]}');
}).listen(0, '127.0.0.1');
await once(server, 'listening');

const env = {
  PATH: process.env['PATH'],
  HOME: home,
  MGW_BASE_URL: `http://127.0.0.1:${server.address().port}`,
  MGW_API_KEY: 'sk-bench-0123456789abcdef',
};

const commands = {
  'node -e 0': { args: ['-e', '0'] },
  'mgw --version': { args: [bin, '--version'], most: 1.25 },
  'mgw models': { args: [bin, 'models'], most: 2 },
  'mgw --help': { args: [bin, '--help'] },
  'mgw jobs ls': { args: [bin, 'jobs', 'ls'] },
  'mgw video c submit --dry-run': {
    args: [bin, 'video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini', '--dry-run'],
  },
};

const cpuFile = join(home, 'cpu');
const reporter = join(home, 'report-cpu.cjs');
writeFileSync(
  reporter,
  `process.on('exit', () => {
    const { user, system } = process.cpuUsage();
    require('node:fs').writeFileSync(${JSON.stringify(cpuFile)}, String((user + system) / 1000));
  });`,
);

async function wallMs(args) {
  const begun = process.hrtime.bigint();
  const child = spawn(process.execPath, args, { env, stdio: 'ignore' });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`${args.join(' ')}: exit ${code}`);
  return Number(process.hrtime.bigint() - begun) / 1e6;
}

async function cpuMs(args) {
  await wallMs(['--require', reporter, ...args]);
  return Number(readFileSync(cpuFile, 'utf8'));
}

function median(values) {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
}

const names = Object.keys(commands);
const wall = Object.fromEntries(names.map((name) => [name, []]));
const cpu = Object.fromEntries(names.map((name) => [name, []]));
for (let round = -1; round < rounds; round += 1) {
  for (const name of names) {
    const taken = [await wallMs(commands[name].args), await cpuMs(commands[name].args)];
    // The first round fills the caches.
    if (round < 0) continue;
    wall[name].push(taken[0]);
    cpu[name].push(taken[1]);
  }
}
server.close();
rmSync(home, { recursive: true });

const [bare] = names;
const ratio = (times, name) => median(times[name].map((ms, round) => ms / times[bare][round]));
console.log(`${''.padEnd(30)}${'wall'.padStart(9)}  ratio${'CPU'.padStart(12)}  ratio`);
for (const name of names) {
  const { most } = commands[name];
  const missed = ratio(wall, name) > most && ratio(cpu, name) > most;
  const columns = [wall, cpu].map(
    (times) =>
      `${median(times[name]).toFixed(1).padStart(6)} ms  ${ratio(times, name).toFixed(2).padStart(5)}`,
  );
  const target = most === undefined ? '' : `   at most ${most}${missed ? ': MISSED' : ''}`;
  console.log(`${name.padEnd(30)}${columns.join('   ')}${target}`);
  if (missed) process.exitCode = 1;
}
