// Measures Protocol A's inline results through the command line (design 12): wall time and peak resident memory of a
// complete `mgw video a submit -o`, with a gateway on loopback that streams the video inside a poll response.
//
//   npm run -s build
//   npx rolldown bench/inline-cli.ts --platform node --file "$TMPDIR/inline-cli.mjs" && node "$TMPDIR/inline-cli.mjs" [MIB...]
//
// MIB is the size of the JSON in MiB (default: 256 and 2048). The output goes to the system's temporary folder.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { inlineVideo, peakMib, type InlineVideo } from '../test/support/inline-video.ts';

const mib = 1024 * 1024;
const name = 'models/m/operations/1';

function gateway(video: InlineVideo): Server {
  return createServer((request, response) => {
    request.resume();
    if (request.method === 'POST') response.end(JSON.stringify({ name, done: false }));
    else void video.send(response, name);
  });
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: mib })) hash.update(chunk as Uint8Array);
  return hash.digest('hex');
}

async function run(url: string, folder: string): Promise<{ seconds: number; peak: number }> {
  const places = { MGW_STATE_DIR: join(folder, 'state'), MGW_CONFIG_DIR: folder };
  const env = { ...process.env, ...places, MGW_BASE_URL: url, MGW_API_KEY: 'key' };
  const flags = ['--duration', '8', '--resolution', '720p', '--audio', '--poll-interval', '10ms', '-q'];
  const args = ['video', 'a', 'submit', '--model', 'm', '--prompt', 'p', '-o', join(folder, 'out.mp4')];
  const start = performance.now();
  const child = spawn(process.execPath, [resolve('bin/mgw.js'), ...args, ...flags], {
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const peak = await peakMib(child);
  if (child.exitCode !== 0) throw new Error(`mgw ended with ${child.exitCode ?? 'a signal'}`);
  return { seconds: (performance.now() - start) / 1000, peak };
}

async function measure(size: number): Promise<void> {
  const video = inlineVideo((size * mib * 3) / 4);
  const folder = mkdtempSync(join(tmpdir(), 'mgw-bench-'));
  const server = gateway(video).listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const { seconds, peak } = await run(`http://127.0.0.1:${port}`, folder);
    if ((await hashOf(join(folder, 'out.mp4'))) !== video.sha256) throw new Error('the file differs');
    const speed = (video.bytes * 4) / 3 / 1e6 / seconds;
    const shown = [`${seconds.toFixed(2)} s`, `${speed.toFixed(0)} MB/s`, `${peak.toFixed(0)} MiB peak`];
    console.log(`${String(size).padStart(5)} MiB of JSON  ${shown.join('  ')}  file equal`);
  } finally {
    server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const sizes = process.argv.slice(2).map(Number);
for (const size of sizes.length > 0 ? sizes : [256, 2048]) await measure(size);
