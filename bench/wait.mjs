// One process waiting for 1,000 jobs: its memory and its share of a core.
//   npm run build && node bench/wait.mjs [jobs] [seconds]
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const [jobs, seconds] = [Number(process.argv[2] ?? 1000), Number(process.argv[3] ?? 60)];
const bin = fileURLToPath(new URL('../bin/mgw.js', import.meta.url));
const state = mkdtempSync(join(tmpdir(), 'mgw-bench-'));
let polls = 0;

const server = createServer((request, response) => {
  polls += 1;
  response.end(
    JSON.stringify({ task_id: request.url.split('/').pop(), status: 'in_progress', progress: 10 }),
  );
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

const exported = Array.from({ length: jobs }, (_, n) => job(n));
const env = {
  ...process.env,
  MGW_BASE_URL: baseUrl(),
  MGW_API_KEY: 'bench-key',
  MGW_STATE_DIR: state,
  MGW_CONFIG_DIR: join(state, 'config'),
};
await run(['jobs', 'import', '-'], exported.map((each) => JSON.stringify(each)).join('\n'));
const waiting = spawn(process.execPath, [bin, 'jobs', 'wait', '-', '-q', '--timeout', `${seconds}s`], {
  env,
  stdio: ['pipe', 'ignore', 'ignore'],
});
waiting.stdin.end(exported.map(({ id }) => id).join('\n'));
await sleep(15_000);
const from = cpuSeconds(waiting.pid);
polls = 0;
await sleep((seconds - 20) * 1000);
const share = (cpuSeconds(waiting.pid) - from) / (seconds - 20);
const rss = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${waiting.pid}/status`, 'utf8'))[1]) / 1024;
console.log(
  `${jobs} jobs: peak RSS ${rss.toFixed(0)} MB (target 200), ${(share * 100).toFixed(1)} % of a core (target 5), ${(polls / (seconds - 20)).toFixed(0)} polls/s`,
);
waiting.kill('SIGKILL');
server.close();
server.closeAllConnections();
rmSync(state, { recursive: true, force: true });

function job(n) {
  const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';
  const tail = [...n.toString(32).padStart(5, '0')].map((digit) => alphabet[parseInt(digit, 32)]).join('');
  return { id: `job_1m7x3xbzq${tail}`, protocol: 'c', handle: `task_${n}`, base_url: baseUrl(), account: '' };
}

function baseUrl() {
  return `http://127.0.0.1:${server.address().port}`;
}

function run(args, input) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [bin, ...args], { env, stdio: ['pipe', 'ignore', 'inherit'] });
    child.stdin.end(input);
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`exit ${code}`))));
  });
}

// Clock ticks of user and system time; 100 of them are a second on Linux.
function cpuSeconds(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
