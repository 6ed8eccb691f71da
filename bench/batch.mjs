// A batch against a gateway that answers at once: rows a second, memory, and how long the same line takes when all is done.
//   npm run build && node bench/batch.mjs [rows] [concurrency]
//   npm run build && node bench/batch.mjs done [rows]     (one row is carried out, and the record of the others made from it)
import { Buffer } from 'node:buffer';
import { fork, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { clearInterval, setInterval } from 'node:timers';
import { fileURLToPath } from 'node:url';
import { crc32 } from 'node:zlib';

const own = fileURLToPath(import.meta.url);
if (process.argv[2] === 'gateway') serve();
else if (process.argv[2] === 'done') await measureDone(Number(process.argv[3] ?? 100_000));
else await measure(Number(process.argv[2] ?? 10_000), process.argv[3] ?? '64');

async function measure(rows, concurrency) {
  const { args, env, folder, close } = await prepared(concurrency);
  writeManifest(folder, rows);
  const first = await run(args, env, folder);
  console.log(
    `${rows} rows: ${(rows / first.seconds).toFixed(0)} a second (target 200), peak RSS ${first.rss.toFixed(0)} MB (target 250), CPU ${first.cpu.toFixed(1)} s, exit ${first.code}`,
  );
  tellAgain(await run(args, env, folder));
  close();
}

async function measureDone(rows) {
  const { args, env, folder, url, close } = await prepared('1');
  writeManifest(folder, 1);
  await run(args, env, folder);
  multiply(folder, url, rows);
  writeManifest(folder, rows);
  tellAgain(await run(args, env, folder));
  close();
}

function tellAgain({ seconds, rss, cpu, code }) {
  console.log(
    `run again: ${seconds.toFixed(1)} s, peak RSS ${rss.toFixed(0)} MB, CPU ${cpu.toFixed(1)} s, exit ${code}`,
  );
}

async function prepared(concurrency) {
  const gateway = fork(own, ['gateway']);
  const url = await new Promise((resolve) => gateway.once('message', resolve));
  const folder = mkdtempSync(join(process.env.BENCH_DIR ?? tmpdir(), 'mgw-bench-'));
  const env = {
    ...process.env,
    MGW_BASE_URL: url,
    MGW_API_KEY: 'bench-key',
    MGW_STATE_DIR: join(folder, 'state'),
    MGW_CONFIG_DIR: join(folder, 'config'),
  };
  const pace = ['--poll-interval', '20ms', '--concurrency', concurrency];
  const args = ['batch', 'run', 'clips.csv', '-q', '-o', 'out/', ...pace];
  const close = () => {
    gateway.kill();
    rmSync(folder, { recursive: true, force: true });
  };
  return { args, env, folder, url, close };
}

function writeManifest(folder, rows) {
  const lines = Array.from({ length: rows }, (_, n) => `row-${n},c,vendor-h3-mini,5,boat number ${n}`);
  writeFileSync(join(folder, 'clips.csv'), ['id,protocol,model,duration,prompt', ...lines, ''].join('\n'));
}

// The jobs, claims, index and files of rows 1 to the last, as those of row 0 are.
function multiply(folder, url, rows) {
  const [jobs, claims] = [join(folder, 'state', 'jobs'), join(folder, 'state', 'claims')];
  const id = readdirSync(jobs)[0].slice(0, -'.jsonl'.length);
  const record = readFileSync(join(jobs, `${id}.jsonl`), 'utf8');
  const before = record.match(/"fingerprint":"([0-9a-f]{64})"/)[1];
  if (fingerprintOf(url, 0) !== before) throw new Error('the fingerprint is made otherwise');
  const video = readFileSync(join(folder, 'out', 'row-0.mp4'));
  const index = [];
  for (let n = 1; n < rows; n += 1) {
    const ownId = id.slice(0, -5) + n.toString(10).padStart(5, '0');
    const fingerprint = fingerprintOf(url, n);
    const text = record
      .replaceAll(before, fingerprint)
      .replaceAll('row-0', `row-${n}`)
      .replaceAll('boat number 0', `boat number ${n}`)
      .replaceAll('task-1', `task-${n + 1}`);
    writeFileSync(join(jobs, `${ownId}.jsonl`), text.split('\n').map(checked).join('\n'));
    writeFileSync(join(claims, `key.clips%2Frow-${n}`), claim(`${ownId} ${fingerprint}`));
    writeFileSync(join(claims, `send.${ownId}.1`), claim('{}'));
    writeFileSync(join(folder, 'out', `row-${n}.mp4`), video);
    for (const entry of [`fingerprint\n${fingerprint}`, `key\nclips/row-${n}`, `handle\ntask-${n + 1}`])
      index.push(`${sha256(entry).slice(0, 32)} ${ownId}\n`);
  }
  writeFileSync(join(folder, 'state', 'index.log'), index.join(''), { flag: 'a' });
}

function fingerprintOf(url, n) {
  const body = JSON.stringify({ duration: 5, model: 'vendor-h3-mini', prompt: `boat number ${n}` });
  return sha256([url.replace('127.0.0.1', 'localhost'), 'c', body].join('\n'));
}

function checked(line) {
  const head = line.slice(0, -',"crc":"00000000"}'.length);
  return line === '' ? '' : `${head},"crc":"${crc(head)}"}`;
}

function claim(text) {
  return `${text} ${crc(text)}\n`;
}

function crc(text) {
  return crc32(text).toString(16).padStart(8, '0');
}

function sha256(text) {
  return createHash('sha256').update(text).digest('hex');
}

function run(args, env, cwd) {
  const bin = fileURLToPath(new URL('../bin/mgw.js', import.meta.url));
  const begun = performance.now();
  const child = spawn(process.execPath, [bin, ...args], { env, cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  let [rss, cpu] = [0, 0];
  const look = setInterval(() => {
    rss = Math.max(rss, peak(child.pid));
    cpu = Math.max(cpu, cpuSeconds(child.pid));
  }, 100);
  return new Promise((resolve) => {
    child.once('close', (code) => {
      clearInterval(look);
      resolve({ code, rss, cpu, seconds: (performance.now() - begun) / 1000 });
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

// Of user and system, up to the last look; Linux counts hundredths.
function cpuSeconds(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
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
