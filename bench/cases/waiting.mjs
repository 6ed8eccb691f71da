// Measures the memory and the CPU share of one process that waits for many jobs.
import { get } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { cpuOf } from '../measure.mjs';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

export default async function* waiting(bench) {
  for (const jobs of bench.quick ? [100, 1000] : [10, 100, 1000, 10_000]) {
    const [url, peersUrl] = [await serve(bench), await serve(bench)];
    const env = bench.env(url);
    const exported = await exportedJobs(jobs, bench, env);
    const input = exported.map(({ line }) => line).join('\n');
    await bench.measured([...bench.mgw(), 'jobs', 'import', '-'], { env, input, quiet: true });
    // The first polls of all jobs are simultaneous. Later polls are spread out.
    const [settle, pace, look] = bench.quick ? [10, 5, 10] : [40, 10, 30];
    let share = 0;
    let polls = 0;
    let peer;
    const during = async (pid) => {
      await sleep(settle * 1000);
      polls = await pollsIn(pace, url);
      // mgw and the minimal program run at the same time, so a busy machine slows both.
      peer = bench.measured([...bench.minimal('poll.mjs'), peersUrl, ...[jobs, polls, look].map(String)]);
      // mgw warms up for half the measuring time.
      await sleep((look / 2) * 1000);
      const cpu = cpuOf(pid);
      polls = await pollsIn(look, url);
      share = ((cpuOf(pid) - cpu) / look) * 100;
    };
    const { rss } = await bench.measured(
      [...bench.mgw(), 'jobs', 'wait', '-', '-q', '--timeout', `${settle + pace + look * 1.5 + 2}s`],
      { env, input: exported.map(({ id }) => id).join('\n'), quiet: true, code: 11, during },
    );
    const isTarget = jobs === 1000;
    const maxMemory = { 1000: 150, 10_000: 500 }[jobs];
    const { stdout, rss: peerRss } = await peer;
    const { ms } = JSON.parse(stdout);
    const by = 'as many polls by fetch';
    yield {
      figure: `waiting for ${jobs} jobs, memory`,
      value: rss,
      unit: 'MB',
      ...(maxMemory && { target: { max: maxMemory }, bound: { by, value: peerRss } }),
    };
    yield {
      figure: `waiting for ${jobs} jobs, of a core`,
      value: share,
      unit: '%',
      ...(isTarget && { target: { max: 5 }, bound: { by, value: (ms * polls) / 10 } }),
    };
    const each = (share * 10) / polls;
    yield {
      figure: `waiting for ${jobs} jobs, CPU of a poll`,
      ...{ value: each, unit: 'ms', peer: by, peerValue: ms, ratio: each / ms },
    };
    yield { figure: `waiting for ${jobs} jobs, polls`, value: polls, unit: 'a second' };
  }
}

function serve(bench) {
  return bench.serve('gateway', '{"state":"in_progress"}');
}

// Returns the polls per second, measured over `seconds`.
async function pollsIn(seconds, url) {
  const before = await pollsOf(url);
  await sleep(seconds * 1000);
  return ((await pollsOf(url)) - before) / seconds;
}

function pollsOf(url) {
  return new Promise((resolve, reject) => {
    get(`${url}/polls`, (answer) => text(answer).then((polls) => resolve(Number(polls)), reject)).once(
      'error',
      reject,
    );
  });
}

// Submits one job, and returns as many copies of its export as requested. Each copy is a submission of its own.
async function exportedJobs(count, bench, env) {
  const mgw = (...args) => bench.measured([...bench.mgw(), ...args], { env, quiet: true });
  await mgw('video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini');
  const text = (await mgw('jobs', 'export')).stdout.trim();
  const { id: firstId, handle, events } = JSON.parse(text);
  const { fingerprint } = events.find(({ type }) => type === 'prepared');
  return Array.from({ length: count }, (_, n) => {
    const digits = [...n.toString(32).padStart(5, '0')];
    const id = `job_1m7x3xbzq${digits.map((digit) => alphabet[parseInt(digit, 32)]).join('')}`;
    const line = text
      .replaceAll(firstId, id)
      .replaceAll(handle, `task_${n}`)
      .replaceAll(fingerprint, n.toString(16).padStart(64, '0'));
    return { id, line };
  });
}
