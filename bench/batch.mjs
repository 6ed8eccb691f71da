// A batch against a gateway that answers at once: rows a second, memory, and how long the same line takes when all is done.
//   npm run build && node bench/batch.mjs [rows] [concurrency]
import { Buffer } from 'node:buffer';
import { fork, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { clearInterval, setInterval } from 'node:timers';
import { fileURLToPath } from 'node:url';

const own = fileURLToPath(import.meta.url);
if (process.argv[2] === 'gateway') serve();
else await measure(Number(process.argv[2] ?? 10_000), process.argv[3] ?? '64');

async function measure(rows, concurrency) {
  const gateway = fork(own, ['gateway']);
  const url = await new Promise((resolve) => gateway.once('message', resolve));
  const folder = mkdtempSync(join(process.env.BENCH_DIR ?? tmpdir(), 'mgw-bench-'));
  const lines = Array.from({ length: rows }, (_, n) => `row-${n},c,vendor-h3-mini,5,boat number ${n}`);
  writeFileSync(join(folder, 'clips.csv'), ['id,protocol,model,duration,prompt', ...lines, ''].join('\n'));
  const env = {
    ...process.env,
    MGW_BASE_URL: url,
    MGW_API_KEY: 'bench-key',
    MGW_STATE_DIR: join(folder, 'state'),
    MGW_CONFIG_DIR: join(folder, 'config'),
  };
  const args = [
    'batch',
    'run',
    'clips.csv',
    '-q',
    '-o',
    'out/',
    '--poll-interval',
    '20ms',
    '--concurrency',
    concurrency,
  ];
  const first = await run(args, env, folder);
  console.log(
    `${rows} rows: ${(rows / first.seconds).toFixed(0)} a second (target 200), peak RSS ${first.rss.toFixed(0)} MB (target 250), exit ${first.code}`,
  );
  const again = await run(args, env, folder);
  console.log(
    `run again: ${again.seconds.toFixed(1)} s, peak RSS ${again.rss.toFixed(0)} MB, exit ${again.code}`,
  );
  gateway.kill();
  rmSync(folder, { recursive: true, force: true });
}

function run(args, env, cwd) {
  const bin = fileURLToPath(new URL('../bin/mgw.js', import.meta.url));
  const begun = performance.now();
  const child = spawn(process.execPath, [bin, ...args], { env, cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  let rss = 0;
  const look = setInterval(() => (rss = Math.max(rss, peak(child.pid))), 200);
  return new Promise((resolve) => {
    child.once('close', (code) => {
      clearInterval(look);
      resolve({ code, rss, seconds: (performance.now() - begun) / 1000 });
    });
  });
}

// Megabytes; Linux tells of a process that is still there.
function peak(pid) {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;
  } catch {
    return 0;
  }
}

function serve() {
  let tasks = 0;
  const boxes = '00000018667479706d703432000000006d70343269736f6d' + '000000086d6f6f76' + '000000406d646174';
  const video = Buffer.concat([Buffer.from(boxes, 'hex'), Buffer.alloc(56, 'x')]);
  const server = createServer((request, response) => {
    request.resume();
    if (request.url.endsWith('/content')) {
      response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': video.length }).end(video);
      return;
    }
    const id = request.method === 'POST' ? `task-${(tasks += 1)}` : request.url.split('/').pop();
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ task_id: id, status: request.method === 'POST' ? 'queued' : 'completed' }));
  });
  server.listen(0, '127.0.0.1', () => process.send(`http://127.0.0.1:${server.address().port}`));
}
