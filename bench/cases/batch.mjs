// Measures a batch against a gateway that responds immediately, and the same command once all rows are done.
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { multiply } from '../multiply.mjs';

const pace = ['--poll-interval', '20ms', '--concurrency', '64'];
const args = ['batch', 'run', 'clips.csv', '-q', '-o', 'out/', ...pace];

export default async function* batch(bench) {
  const url = await bench.serve('gateway');
  for (const rows of bench.quick ? [1000] : [1000, 10_000]) yield* first(bench, url, rows);
  for (const processes of bench.quick ? [2] : [2, 8]) yield* atOnce(bench, url, processes);
  for (const rows of bench.quick ? [1000] : [10_000, 100_000]) yield* again(bench, url, rows);
}

async function* first(bench, url, rows) {
  const env = bench.env(url);
  const folder = env.HOME;
  writeManifest(folder, rows);
  const minimal = join(folder, 'minimal');
  mkdirSync(minimal);
  const peer = [process.execPath, join(import.meta.dirname, '..', 'minimal-batch.mjs'), url, rows, 64];
  const runs = await bench.interleaved(1, {
    mgw: () => bench.measured([...bench.mgw(), ...args], { env, cwd: folder }),
    minimal: () => bench.measured(peer.map(String), { env, cwd: minimal }),
  });
  const run = { wall: runs.of('mgw'), cpu: runs.of('mgw', 'cpu'), rss: runs.of('mgw', 'rss') };
  const figure = `batch of ${rows} rows`;
  const isTarget = rows === 10_000;
  yield {
    figure,
    value: rows / run.wall,
    unit: 'rows/s',
    peer: 'a minimal program',
    peerValue: rows / runs.of('minimal'),
    ratio: runs.ratio('minimal', 'mgw'),
    ...(isTarget && { target: { min: 400 } }),
  };
  yield {
    figure: `${figure}, memory`,
    value: run.rss,
    unit: 'MB',
    ...(isTarget && { target: { max: 200 } }),
  };
  yield {
    figure: `${figure}, CPU for each row`,
    value: (run.cpu / rows) * 1000,
    unit: 'ms',
    peer: 'a minimal program',
    peerValue: (runs.of('minimal', 'cpu') / rows) * 1000,
    ratio: runs.ratio('mgw', 'minimal', 'cpu'),
  };
  rmSync(folder, { recursive: true });
}

// Each process runs its own batch in one ledger, so all processes share the ledger's index and folders.
async function* atOnce(bench, url, processes) {
  const rows = bench.quick ? 400 : 4000;
  const run = (count) => async () => {
    const env = bench.env(url);
    const batches = Array.from({ length: count }, (_, n) => {
      const cwd = join(env.HOME, `batch-${n}`);
      mkdirSync(cwd);
      writeManifest(cwd, rows / count, `${n}-`);
      return () => bench.measured([...bench.mgw(), ...args, '--name', `clips-${n}`], { env, cwd });
    });
    const startedAt = performance.now();
    const measured = await Promise.all(batches.map((start) => start()));
    const wall = (performance.now() - startedAt) / 1000;
    rmSync(env.HOME, { recursive: true });
    return { ...measured[0], wall };
  };
  const runs = await bench.interleaved(1, { many: run(processes), one: run(1) });
  yield {
    figure: `${rows} rows by ${processes} processes on one ledger`,
    value: rows / runs.of('many'),
    unit: 'rows/s',
    peer: 'one process',
    peerValue: rows / runs.of('one'),
    ratio: runs.ratio('many', 'one'),
    target: { ratio: 2 },
  };
}

async function* again(bench, url, rows) {
  const env = bench.env(url);
  const folder = env.HOME;
  writeManifest(folder, 1);
  await bench.measured([...bench.mgw(), ...args], { env, cwd: folder });
  multiply(join(folder, '.local', 'state', 'mgw'), url, rows);
  for (let n = 1; n < rows; n += 1)
    cpSync(join(folder, 'out', 'row-0.mp4'), join(folder, 'out', `row-${n}.mp4`));
  writeManifest(folder, rows);
  const target = { 10_000: { max: 1 }, 100_000: { max: 5 } }[rows];
  const found = await bench.measured([...bench.mgw(), ...args], { env, cwd: folder });
  yield {
    figure: `${rows} rows that are done, from the jobs alone`,
    value: found.wall,
    cpu: found.cpu,
    unit: 's',
  };
  const run = await bench.measured([...bench.mgw(), ...args], { env, cwd: folder });
  yield {
    figure: `${rows} rows that are done, run again`,
    value: run.wall,
    unit: 's',
    ...(target && { target }),
  };
  yield {
    figure: `${rows} rows that are done, memory`,
    value: run.rss,
    unit: 'MB',
    ...(rows === 100_000 && { target: { max: 200 } }),
  };
  rmSync(folder, { recursive: true });
}

function writeManifest(folder, rows, start = '') {
  const lines = Array.from(
    { length: rows },
    (_, n) => `row-${n},c,vendor-h3-mini,5,boat number ${start}${n}`,
  );
  writeFileSync(join(folder, 'clips.csv'), ['id,protocol,model,duration,prompt', ...lines, ''].join('\n'));
}
