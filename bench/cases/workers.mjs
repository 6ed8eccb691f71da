// Measures workers that run an enqueued batch on one PostgreSQL server, which syncs its commits.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { cpuOf } from '../measure.mjs';

const port = 54_329;
const root = '/usr/lib/postgresql';
const programs = existsSync(root) && join(root, readdirSync(root).sort((a, b) => b - a)[0] ?? '', 'bin');

export default async function* workers(bench) {
  if (!programs) return;
  const server = await openServer();
  try {
    const url = await bench.serve('gateway');
    for (const count of [2, 8]) yield* atOnce(bench, server, url, bench.quick ? 500 : 2000, count);
  } finally {
    server.close();
  }
}

async function* atOnce(bench, server, url, rows, count) {
  const runs = await bench.interleaved(bench.rounds(3, 1), {
    mgw: () => byMgw(bench, server, url, rows, count),
    minimal: () => runMinimalWorkers(bench, server, url, rows, count),
  });
  const figure = `${rows} rows by ${count} workers`;
  const minimal = 1 / runs.of('minimal');
  yield {
    figure,
    value: 1 / runs.of('mgw'),
    unit: 'rows/s',
    peer: 'a minimal program',
    peerValue: minimal,
    ratio: runs.ratio('mgw', 'minimal'),
    target: { min: 100 },
    bound: { by: 'a minimal program', value: minimal },
  };
  for (const [what, program] of Object.entries({
    cpu: 'workers',
    serverCpu: 'PostgreSQL',
    commits: 'commits',
  }))
    yield {
      figure: `${figure}, ${what === 'commits' ? '' : 'CPU of '}${program} a row`,
      value: runs.of('mgw', what),
      unit: what === 'commits' ? '' : 'ms',
      peer: 'a minimal program',
      peerValue: runs.of('minimal', what),
      ratio: runs.ratio('mgw', 'minimal', what),
    };
}

async function byMgw(bench, server, url, rows, count) {
  const database = await server.database();
  const env = { ...bench.env(url), MGW_STATE: database.url };
  const cwd = env.HOME;
  const lines = Array.from({ length: rows }, (_, n) => `row-${n},c,vendor-h3-mini,5,boat number ${n}`);
  writeFileSync(join(cwd, 'clips.csv'), ['id,protocol,model,duration,prompt', ...lines, ''].join('\n'));
  const mgw = (...args) =>
    execFileSync(bench.mgw()[0], [bench.mgw()[1], ...args], { env, cwd, stdio: 'pipe' });
  mgw('state', 'init');
  mgw('batch', 'enqueue', 'clips.csv', '--concurrency', '64');
  const args = [
    'worker',
    '-q',
    '-o',
    'out/{id}.{ext}',
    '--poll-interval',
    '20ms',
    '--concurrency',
    String(64 / count),
  ];
  return carriedOut(
    database,
    `select count(*)::int as n from mgw.batch_rows where state = 'ended'`,
    rows,
    count,
    (n) => {
      const home = join(cwd, `machine-${n}`);
      mkdirSync(home);
      return spawn(bench.mgw()[0], [bench.mgw()[1], ...args], {
        env: { ...env, HOME: home },
        cwd,
        stdio: ['ignore', 'ignore', 'inherit'],
      });
    },
  ).finally(() => rmSync(cwd, { recursive: true }));
}

async function runMinimalWorkers(bench, server, url, rows, count) {
  const database = await server.database();
  const cwd = join(bench.folder, 'minimal');
  mkdirSync(join(cwd, 'out'), { recursive: true });
  const program = bench.minimal('workers.mjs');
  execFileSync(program[0], [program[1], 'init', database.url, String(rows)]);
  return carriedOut(database, `select count(*)::int as n from rows where state = 'ended'`, rows, count, () =>
    spawn(program[0], [program[1], 'work', database.url, url, String(64 / count)], {
      cwd,
      stdio: ['ignore', 'ignore', 'inherit'],
    }),
  ).finally(() => rmSync(cwd, { recursive: true }));
}

// Starts measuring once a tenth of the rows have ended, to exclude the programs' startup.
async function carriedOut({ client, server }, ended, rows, count, start) {
  const children = Array.from({ length: count }, (_, n) => start(n));
  const look = async () => ({
    n: (await client.query(ended)).rows[0].n,
    at: performance.now(),
    cpu: children.reduce((sum, { pid }) => sum + cpuOf(pid), 0),
    serverCpu: server.cpu(),
    commits: await server.commits(client),
  });
  const reached = async (n) => {
    for (;;) {
      const seen = await look();
      if (seen.n >= n) return seen;
      await sleep(50);
    }
  };
  const first = await reached(rows / 10);
  const last = await reached(rows);
  for (const child of children) child.kill('SIGTERM');
  await Promise.all(children.map((child) => child.exitCode ?? once(child, 'exit')));
  await client.end();
  const each = (what) => (last[what] - first[what]) / (last.n - first.n);
  return {
    wall: each('at') / 1000,
    cpu: each('cpu') * 1000,
    serverCpu: each('serverCpu') * 1000,
    commits: each('commits'),
  };
}

// PostgreSQL refuses to run as root.
async function openServer() {
  const user = process.getuid() === 0 ? owner('postgres') : {};
  const folder = mkdtempSync(join(tmpdir(), 'mgw-bench-pg-'));
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const options = { ...user, cwd: folder, stdio: 'ignore' };
  const data = join(folder, 'data');
  execFileSync(
    join(programs, 'initdb'),
    ['-D', data, '-A', 'trust', '-U', 'postgres', '-E', 'UTF8', '--locale=C'],
    options,
  );
  const args = ['-D', data, '-p', String(port), '-k', folder, '-c', 'listen_addresses=127.0.0.1'];
  const child = spawn(join(programs, 'postgres'), args, options);
  const urlOf = (name) => `postgres://postgres@127.0.0.1:${port}/${name}`;
  const opened = async (name) => {
    for (;;) {
      const client = new pg.Client(urlOf(name));
      try {
        await client.connect();
        return client;
      } catch {
        await sleep(100);
      }
    }
  };
  const main = await opened('postgres');
  let count = 0;
  const server = {
    cpu: () => treeCpu(child.pid),
    commits: async (client) =>
      Number(
        (
          await client.query(
            'select xact_commit as n from pg_stat_database where datname = current_database()',
          )
        ).rows[0].n,
      ),
    database: async () => {
      const name = `bench_${(count += 1)}`;
      await main.query(`create database ${name}`);
      return { url: urlOf(name), client: await opened(name), server };
    },
    close: () => {
      main.on('error', () => undefined);
      child.kill('SIGINT');
      child.once('exit', () => rmSync(folder, { recursive: true, force: true }));
    },
  };
  return server;
}

// Returns the CPU time of a process tree, including processes that have ended.
function treeCpu(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ');
  const own = fields.slice(11, 15).reduce((sum, each) => sum + Number(each), 0) / 100;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  return children.reduce((sum, child) => sum + (existsSync(`/proc/${child}`) ? cpuOf(child) : 0), own);
}

function owner(name) {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((each) => each.startsWith(`${name}:`));
  const [, , uid, gid] = line.split(':');
  return { uid: Number(uid), gid: Number(gid) };
}
