// Measures streaming speech (design 12): frames from a server on loopback are saved to a file. For each frame size,
// prints MB of frames per second of wall time and of the client's CPU time, and the client's peak resident memory. The
// server is a separate process.
//
//   npx rolldown bench/speech.ts --platform node --file "$TMPDIR/speech.mjs" && node "$TMPDIR/speech.mjs" [FOLDER]
//
// FOLDER is the output folder (default: the system's temporary folder).
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deadlineIn, systemClock } from '../src/clock.ts';
import { createClient } from '../src/http/client.ts';
import { openFileLedger } from '../src/ledger/file-ledger.ts';
import { currentOwner } from '../src/ledger/owner.ts';
import { FileSink } from '../src/speech/file-sink.ts';
import { speak } from '../src/speech/speak.ts';

const megabytes = 512;
const frameBytes = [4_000, 16_000, 64_000, 1_000_000];

function serve(): void {
  const server = createServer((request, response) => {
    const size = Number(new URL(request.url ?? '', 'http://x').pathname.split('/')[1]);
    request.resume();
    const audio = Buffer.alloc(Math.floor((size - 40) / 4) * 3, 7).toString('base64');
    const frame = Buffer.from(`${JSON.stringify({ code: 0, message: '', data: audio })}\n`);
    let remaining = Math.ceil((megabytes * 1e6) / frame.length);
    const send = (): void => {
      while (remaining > 0) {
        remaining -= 1;
        if (!response.write(frame)) return void response.once('drain', send);
      }
      response.end('{"code":20000000,"message":"ok","data":null}');
    };
    send();
  });
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

async function measure(port: number, size: number, folder: string): Promise<string> {
  const client = createClient({
    baseUrl: new URL(`http://127.0.0.1:${port}/${size}`),
    key: 'k',
    userAgent: 'bench',
  });
  const never = new AbortController().signal;
  const deps = {
    ledger: await openFileLedger(join(folder, 'state'), () => Date.now()),
    client,
    clock: systemClock,
    lease: () => Promise.resolve({ owner: currentOwner(), assertLease: () => undefined }),
    gateway: 'bench',
    account: '',
    redact: (text: string) => text,
    note: () => undefined,
    signals: { soft: never, hard: never },
    userAgent: 'bench',
    retries: 0,
    priceOf: () => Promise.resolve({ subject: 'speech' }),
    allowances: () => Promise.resolve([]),
  };
  const target = join(folder, `${size}.mp3`);
  const sink = new FileSink({ target, force: false, mime: 'audio/mpeg' });
  const order = {
    body: { req_params: { text: String(size) } },
    output: target,
    fresh: true,
    deadline: deadlineIn(600_000, systemClock),
  };
  const [cpu, from] = [process.cpuUsage(), performance.now()];
  await speak(order, deps, sink);
  const wall = (performance.now() - from) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  client.close();
  rmSync(target);
  return `${(megabytes / wall).toFixed(0)} MB/s, ${(megabytes / ((user + system) / 1e6)).toFixed(0)} MB/s of CPU`;
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'mgw-bench-'));
  const server: ChildProcess = fork(process.argv[1] ?? '', ['--serve']);
  const [port] = (await once(server, 'message')) as [number];
  for (const size of frameBytes) {
    const speed = await measure(port, size, folder);
    const peak = Math.round(process.resourceUsage().maxRSS / 1024);
    console.log(`frames of ${size} bytes: ${speed}, peak ${peak} MiB`);
  }
  server.kill();
  rmSync(folder, { recursive: true });
}

if (process.argv[2] === '--serve') serve();
else await main();
