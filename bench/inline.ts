// Measures Protocol A's inline results (design 12): a poll response with a Base64 video is saved to a file.
// Each measurement is a separate process, on one core if `taskset` is installed. Prints MB of JSON per second
// of wall time and of CPU time, the peak resident memory, and at 256 MiB the ratio to reading the whole body,
// JSON.parse and Buffer.from.
//
//   npx rolldown bench/inline.ts --platform node --file "$TMPDIR/inline.mjs" && node "$TMPDIR/inline.mjs" [FOLDER]
//
// FOLDER is the output folder (default: the system's temporary folder).
import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MediaSpool, type MediaSink } from '../src/media/media-spool.ts';
import { at, type Json } from '../src/json.ts';

type Way = 'stream' | 'whole';

interface Measurement {
  wallMbPerSecond: number;
  cpuMbPerSecond: number;
  peakMib: number;
}

const mib = 1024 * 1024;
const chunkBytes = 64 * 1024;
const place = 'response.generateVideoResponse.generatedSamples.0.video.encodedVideo';
const head = `{"name":"models/m/operations/1","done":true,"response":{"generateVideoResponse":{"generatedSamples":[{"video":{"encodedVideo":"`;
const tail = `","encoding":"video/mp4"}}]}}}`;

function* body(size: number): Generator<Buffer> {
  let seed = 1;
  const noise = Array.from(
    { length: (chunkBytes / 4) * 3 },
    () => (seed = (seed * 48271) % 2147483647) & 255,
  );
  const chunk = Buffer.from(Buffer.from(noise).toString('base64'), 'latin1');
  yield Buffer.from(head);
  for (let sent = 0; sent < size; sent += chunk.length) yield chunk;
  yield Buffer.from(tail);
}

function fileSink(path: string): MediaSink {
  const file = openSync(path, 'w');
  return {
    write(bytes) {
      for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done);
    },
    close() {
      closeSync(file);
      return Promise.resolve();
    },
  };
}

async function stream(size: number, path: string): Promise<number | undefined> {
  const openSink = () => Promise.resolve(fileSink(path));
  const spool = new MediaSpool({ members: ['encodedVideo'], maxTextBytes: mib, openSink });
  for (const chunk of body(size)) await spool.push(chunk);
  const { spooled } = await spool.end();
  return spooled[0]?.fault === undefined ? spooled[0]?.bytes : undefined;
}

function whole(size: number, path: string): number {
  const json = JSON.parse(Buffer.concat([...body(size)]).toString()) as Json;
  const media = Buffer.from(at(json, place) as string, 'base64');
  writeFileSync(path, media);
  return media.length;
}

// Reads the process's own peak from /proc, because on Linux the value of getrusage is inherited from the parent.
function peakMib(): number {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) / 1024;
  } catch {
    return process.resourceUsage().maxRSS / 1024;
  }
}

async function measure(way: Way, size: number, path: string): Promise<Measurement> {
  const cpu = process.cpuUsage();
  const start = performance.now();
  const bytes = way === 'stream' ? await stream(size, path) : whole(size, path);
  if (bytes !== (size / 4) * 3) throw new Error(`${size} characters produced ${bytes ?? 'no'} bytes`);
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  return {
    wallMbPerSecond: size / 1e6 / seconds,
    cpuMbPerSecond: size / (user + system),
    peakMib: peakMib(),
  };
}

function run(way: Way, size: number, folder: string): Measurement {
  const path = join(folder, 'out.mp4');
  const node = [process.execPath, process.argv[1] ?? '', 'measure', way, String(size), path];
  const pinned = spawnSync('taskset', ['-c', '0', 'true']).status === 0;
  const [command = '', ...args] = pinned ? ['taskset', '-c', '0', ...node] : node;
  const child = spawnSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  rmSync(path, { force: true });
  if (child.status !== 0) throw new Error(`${way} at ${size} bytes ended with ${child.status ?? 'a signal'}`);
  const result = JSON.parse(child.stdout) as Measurement;
  show(way, size, result);
  return result;
}

function show(way: Way, size: number, result: Measurement): void {
  const numbers = [
    [result.wallMbPerSecond, 'MB/s'],
    [result.cpuMbPerSecond, 'MB/CPU-s'],
    [result.peakMib, 'MiB peak'],
  ] as const;
  const columns = numbers.map(([value, unit]) => `${value.toFixed(0).padStart(6)} ${unit}`).join('  ');
  console.log(`${way.padEnd(7)} ${String(size / mib).padStart(5)} MiB  ${columns}`);
}

function main(parent: string): void {
  const folder = mkdtempSync(join(parent, 'mgw-bench-'));
  try {
    const ratios = [1, 2, 3].map(() => {
      const streamed = run('stream', 256 * mib, folder);
      return streamed.cpuMbPerSecond / run('whole', 256 * mib, folder).cpuMbPerSecond;
    });
    run('stream', 2048 * mib, folder);
    const shown = ratios.map((ratio) => ratio.toFixed(1)).join(', ');
    console.log(`at 256 MiB, stream processes ${shown} times as much per CPU second as whole`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const [first, way, size, path] = process.argv.slice(2);
if (first === 'measure') console.log(JSON.stringify(await measure(way as Way, Number(size), path ?? '')));
else main(first ?? tmpdir());
