// Measures how a large ledger slows the next command. All but ten of the ledger's jobs have succeeded.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { multiply } from '../multiply.mjs';

const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '--new', '-q'];

export default async function* ledger(bench) {
  const [done, running] = [
    await bench.serve('gateway'),
    await bench.serve('gateway', '{"state":"in_progress"}'),
  ];
  const empty = bench.env(running);
  for (const jobs of bench.quick ? [100, 1000] : [100, 10_000, 100_000]) {
    const env = await filled(bench, done, running, jobs);
    const runs = await bench.interleaved(
      bench.rounds(7),
      {
        bare: () => bench.measured([process.execPath, '-e', '0'], { env }),
        empty: () => bench.measured([...bench.mgw(), ...submit], { env: empty }),
        submit: () => bench.measured([...bench.mgw(), ...submit], { env }),
        ls: () => bench.measured([...bench.mgw(), 'jobs', 'ls'], { env, quiet: true }),
        running: () =>
          bench.measured([...bench.mgw(), 'jobs', 'ls', '--state', 'running'], { env, quiet: true }),
        status: () => bench.measured([...bench.mgw(), 'video', 'c', 'status', '@last'], { env, quiet: true }),
      },
      { warmUp: true },
    );
    const ms = (name) => ({ value: runs.of(name) * 1000, cpu: runs.of(name, 'cpu') * 1000, unit: 'ms' });
    const peer = { peer: 'an empty ledger', peerValue: runs.of('empty') * 1000 };
    const largest = jobs === 100_000;
    yield {
      figure: `submit, ledger of ${jobs} jobs`,
      ...ms('submit'),
      ...peer,
      ratio: runs.ratio('submit', 'empty'),
      cpuRatio: runs.ratio('submit', 'empty', 'cpu'),
      ...(largest && { target: { ratio: 1.2 } }),
    };
    const target = largest && { target: { max: 150 } };
    const toBare = (name) => ({
      ...{ peer: 'node -e 0', peerValue: runs.of('bare') * 1000 },
      ...{ ratio: runs.ratio(name, 'bare'), cpuRatio: runs.ratio(name, 'bare', 'cpu') },
    });
    yield { figure: `jobs ls, ${jobs} jobs`, ...ms('ls'), ...toBare('ls'), ...target };
    yield {
      figure: `jobs ls --state running, ${jobs} jobs`,
      ...ms('running'),
      ...toBare('running'),
      ...target,
    };
    yield { figure: `video c status, ${jobs} jobs`, ...ms('status') };
  }
}

async function filled(bench, done, running, jobs) {
  const env = bench.env(done);
  const args = ['batch', 'run', 'clips.csv', '-q', '-o', 'out/', '--poll-interval', '20ms'];
  writeFileSync(
    join(env.HOME, 'clips.csv'),
    'id,protocol,model,duration,prompt\nrow-0,c,vendor-h3-mini,5,boat number 0\n',
  );
  await bench.measured([...bench.mgw(), ...args], { env, cwd: env.HOME });
  multiply(join(env.HOME, '.local', 'state', 'mgw'), done, jobs);
  const open = { ...env, MGW_BASE_URL: running };
  // Each job has its own prompt, because the case compares ledger sizes, not numbers of equal jobs.
  for (let n = 0; n < 10; n += 1)
    await bench.measured([...bench.mgw(), ...submit.with(3, `boat in progress ${n}`)], { env: open });
  await bench.measured([...bench.mgw(), 'video', 'c', 'status', '@last'], { env: open });
  return open;
}
