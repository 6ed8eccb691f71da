// The minimal program that polls tasks: it sends the given number of GETs per second with the global fetch, and parses
// each response as JSON. Prints the CPU time per poll, in ms.
//
//   node poll.mjs URL JOBS POLLS_A_SECOND SECONDS
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';

const [url, jobs, rate, seconds] = process.argv.slice(2);
const states = new Map();
let polls = 0;
let failed = 0;

await during(Number(seconds) / 2);
const [before, cpu] = [polls, process.cpuUsage()];
await during(Number(seconds));
const { user, system } = process.cpuUsage(cpu);
if (failed > 0) throw new Error(`${failed} polls failed`);
console.log(JSON.stringify({ ms: (user + system) / 1000 / (polls - before) }));

async function during(length) {
  const startedAt = performance.now();
  for (let sent = 0; performance.now() - startedAt < length * 1000; await sleep(10))
    for (; sent < ((performance.now() - startedAt) / 1000) * rate; sent += 1) void poll(polls % jobs);
}

async function poll(job) {
  polls += 1;
  try {
    const answer = await globalThis.fetch(`${url}/v1/video/generations/task_${job}`, {
      headers: { authorization: 'Bearer x' },
      signal: globalThis.AbortSignal.timeout(30_000),
    });
    states.set(job, (await answer.json()).status);
  } catch {
    failed += 1;
  }
}
