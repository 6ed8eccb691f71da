// Compares the download engine with curl (design 12): 1 GiB on loopback. mgw hashes and syncs the file; curl does
// neither. The two run alternately, five times, and each ratio compares the runs of one round. `curl+sha256sum` does
// what mgw does: it saves the bytes, then hashes them.
//
//   npx rolldown bench/download.ts --platform node --dir "$TMPDIR/bench" && node "$TMPDIR/bench/download.js" [FOLDER]
//
// FOLDER is the output folder (default: the system's temporary folder).
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deadlineIn, systemClock } from '../src/clock.ts';
import { bearer } from '../src/exchange.ts';
import { download } from '../src/http/download.ts';
import { acquireOutputLock } from '../src/files/output-lock.ts';
import { publish } from '../src/files/publish.ts';

const size = 1024 ** 3;
const turns = 5;
const block = Buffer.alloc(1024 ** 2, 7);
const head = `HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: ${size}\r\nETag: "bench"\r\n\r\n`;

interface Measurement {
  /** Wall time, in seconds. */
  wall: number;
  /** User and system time, in seconds, including process startup. */
  cpu: number;
}

function serve(): void {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write(head);
      let sent = 0;
      const send = (): void => {
        for (; sent < size; sent += block.length)
          if (!socket.write(block)) {
            sent += block.length;
            socket.once('drain', send);
            return;
          }
        socket.end();
      };
      send();
    });
  });
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    console.log(typeof address === 'object' ? address?.port : '');
  });
}

async function get(url: string, path: string): Promise<void> {
  const deadline = deadlineIn(600_000, systemClock);
  const claimant = {
    owner: { pid: process.pid, start: '', host: '' },
    assertLease: () => undefined,
    lifeOf: () => Promise.resolve('dead' as const),
  };
  const lateError = (): Error => new Error('it is locked');
  const lock = { claimant, clock: systemClock, deadline, lateError, charged: 'no' as const };
  const output = await acquireOutputLock(path, url, lock);
  const outcome = await download({ url, key: 'never' }, output, {
    gateway: { baseUrl: new URL(url), key: '', auth: bearer, trustedOrigins: [] },
    clock: systemClock,
    deadline,
    retries: 0,
  });
  if (outcome.kind !== 'done' || outcome.file.bytes !== size)
    throw new Error(`the download ended with ${outcome.kind}`);
  await publish(outcome.file, path, { force: false });
  output.release();
  console.log(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);
}

// The shell measures the whole process, including its startup.
function timed(command: string): Measurement & { output: string } {
  const shell = spawnSync('bash', ['-c', `TIMEFORMAT='%3R %3U %3S'; time { ${command}; }`], {
    encoding: 'utf8',
  });
  if (shell.status !== 0) throw new Error(`${command}: ${shell.stderr}`);
  const [wall = 0, user = 0, system = 0] = (shell.stderr.trim().split('\n').pop() ?? '')
    .split(' ')
    .map(Number);
  return { wall, cpu: user + system, output: shell.stdout.trim() };
}

function turn(url: string, folder: string): void {
  const path = join(folder, 'out');
  const plain = measured(`curl -sf -o '${path}' ${url}`, path);
  const hashed = measured(`curl -sf -o '${path}' ${url} && sha256sum '${path}'`, path);
  const ours = measured(`'${process.execPath}' '${process.argv[1] ?? ''}' get ${url} '${path}'`, path);
  const ratio = (to: Measurement): string =>
    `wall ${(ours.wall / to.wall).toFixed(2)}, CPU ${(ours.cpu / to.cpu).toFixed(2)}`;
  const shown = [plain, hashed, ours].map(
    ({ wall, cpu }) => `${wall.toFixed(2)} s (CPU ${cpu.toFixed(2)} s)`,
  );
  console.log(`curl ${shown[0] ?? ''}, curl+sha256sum ${shown[1] ?? ''}, mgw ${shown[2] ?? ''}`);
  console.log(
    `  to curl: ${ratio(plain)}; to curl+sha256sum: ${ratio(hashed)}; peak ${Math.round(Number(ours.output) / 1024)} MiB`,
  );
}

function measured(command: string, path: string): Measurement & { output: string } {
  const result = timed(command);
  rmSync(path);
  return result;
}

async function main(parent: string): Promise<void> {
  const folder = mkdtempSync(join(parent, 'mgw-bench-'));
  const server = spawn(process.execPath, [process.argv[1] ?? '', 'serve'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const port = await new Promise<string>((resolve) =>
      server.stdout.once('data', (line: Buffer) => resolve(String(line).trim())),
    );
    for (let at = 0; at < turns; at += 1) turn(`http://127.0.0.1:${port}/`, folder);
  } finally {
    server.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}

const [first, url, path] = process.argv.slice(2);
if (first === 'serve') serve();
else if (first === 'get') await get(url ?? '', path ?? '');
else await main(first ?? tmpdir());
