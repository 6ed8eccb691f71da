// Measures saving a video from the gateway's file host. mgw submits, polls, downloads, hashes and syncs. The
// peers do not submit or poll.
import { rmSync } from 'node:fs';
import { join } from 'node:path';

const mib = 1024 * 1024;
const together = 'curl, tee, openssl, sync';
const minimal = 'node:http, hash, sync';

export default async function* download(bench) {
  for (const size of bench.quick ? [256] : [256, 1024]) yield* one(bench, size);
}

async function* one(bench, size) {
  const url = await bench.serve('gateway', JSON.stringify({ videoBytes: size * mib }));
  const env = bench.env(url);
  const path = join(bench.folder, 'video.mp4');
  const submit = [
    'video',
    'c',
    'submit',
    'a boat',
    '-m',
    'vendor-h3-mini',
    '--new',
    '-q',
    '--poll-interval',
    '20ms',
  ];
  const from = `${url}/v1/video/generations/task-1/content`;
  const [curl, aria2] = [bench.program('curl'), bench.program('aria2c', 'aria2')];
  const clean = (command, options) => bench.measuredWriting(path, command, options);
  const runs = await bench.interleaved(bench.rounds(5), {
    mgw: () => clean([...bench.mgw(), ...submit, '-o', path, '--force'], { env }),
    curl: () => clean([curl, '-sf', '-o', path, from]),
    [together]: () =>
      clean(['sh', '-c', `curl -sf ${from} | tee '${path}' | openssl dgst -sha256 && sync '${path}'`]),
    [minimal]: () => clean([...bench.minimal('download.mjs'), from, path]),
    ...(aria2 && {
      aria2: () => clean([aria2, '-q', '--allow-overwrite', '-d', bench.folder, '-o', 'video.mp4', from]),
    }),
  });
  const figure = `download of ${size} MiB`;
  for (const peer of ['curl', together, minimal, ...(aria2 ? ['aria2'] : [])]) {
    const isTarget = peer === 'curl' && size === 1024;
    const row = (what, maxRatio) => ({
      figure: `${figure}, ${what === 'wall' ? 'time' : 'CPU'}`,
      value: runs.of('mgw', what),
      unit: 's',
      peer,
      peerValue: runs.of(peer, what),
      ratio: runs.ratio('mgw', peer, what),
      ...(isTarget && { target: { ratio: maxRatio }, bound: boundOf(runs, what) }),
    });
    yield row('wall', 1.1);
    yield row('cpu', 1.5);
  }
  yield {
    figure: `${figure}, memory`,
    value: runs.of('mgw', 'rss'),
    unit: 'MB',
    ...(size === 1024 && { target: { max: 120 } }),
  };
  rmSync(path, { force: true });
}

// Returns the faster of the peers that also hash and sync, and its value.
function boundOf(runs, what) {
  const [by] = [together, minimal].sort((one, other) => runs.of(one, what) - runs.of(other, what));
  return { by, value: runs.of(by, what) };
}
