// Measures how late mgw notices the end of a task, compared with an empty ledger. Tasks and poll intervals are a tenth
// as long as usual, but mgw's own run time is not shortened.
import { get } from 'node:http';
import { json } from 'node:stream/consumers';

const atOnce = 8;

export default async function* lateness(bench) {
  yield* seen(bench, 'times of earlier jobs', 'pauses that grow', []);
  yield* seen(bench, 'progress and earlier jobs', 'progress alone', ['progress']);
}

async function* seen(bench, how, peer, more) {
  const url = await bench.serve('tasks', 9000, 0.05, ...more);
  const env = bench.env(url);
  const flags = [
    '--model',
    'vendor-h3-mini',
    '--new',
    '--wait',
    '-q',
    '--no-check',
    '--poll-interval',
    '500ms',
  ];
  const submit = (home) =>
    bench.measured([...bench.mgw(), 'video', 'c', 'submit', 'a boat', ...flags], { env: home, quiet: true });
  const late = async (homeOf) => {
    await Promise.all(Array.from({ length: atOnce }, () => submit(homeOf())));
    const all = await latenessOf(url);
    return all.reduce((sum, ms) => sum + ms, 0) / all.length;
  };
  // Gives mgw a history of jobs from which it predicts durations.
  for (let round = 0; round < 3; round += 1) await late(() => env);
  const rounds = bench.rounds(4, 1);
  let [informed, blind] = [0, 0];
  for (let round = 0; round < rounds; round += 1) {
    informed += (await late(() => env)) / rounds;
    blind += (await late(() => bench.env(url))) / rounds;
  }
  yield {
    figure: `end of a task to its being seen, at 500 ms: ${how}`,
    value: informed,
    unit: 'ms',
    peer,
    peerValue: blind,
    ratio: informed / blind,
  };
}

function latenessOf(url) {
  return new Promise((resolve, reject) => {
    get(`${url}/lateness`, (answer) => json(answer).then(resolve, reject)).once('error', reject);
  });
}
