// Measures one run of a program: wall time, CPU time and peak resident memory. bash measures the times, because Node
// does not report a child's CPU time. The peak memory is read from /proc while the program runs (Linux only). All three
// include the program's child processes, and exclude bash.
import { Buffer } from 'node:buffer';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, fsyncSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { clearInterval, setInterval } from 'node:timers';

const script = `
begun=$EPOCHREALTIME
"$@" <&0 3>&- &
echo $! >&3
wait $!
code=$?
echo "$begun $EPOCHREALTIME $code" >&3
times >&3`;

/**
 * Runs a program until it exits, and measures it.
 *
 * @param {string[]} command the program and its arguments
 * @param {{ env?: object, cwd?: string, input?: string, code?: number, quiet?: boolean, during?: (pid: number) =>
 *   unknown }} options `input` is written to stdin; `code` is the expected exit code (0 by default), any other throws;
 *   `quiet` drops stderr; `during` is called with the process id once the program has started
 * @returns {Promise<{ wall: number, cpu: number, rss: number, stdout: string }>} `wall` in seconds; `cpu`, the user and
 *   system time, in seconds; `rss` in MB (10^6 bytes; 0 without /proc)
 */
export async function measured(command, { env, cwd, input, code = 0, quiet = false, during } = {}) {
  const child = spawn('bash', ['-c', script, 'bash', ...command], {
    env: env ?? process.env,
    cwd,
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', quiet ? 'ignore' : 'inherit', 'pipe'],
  });
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(input);
  const [stdout, report] = [child.stdout, child.stdio[3]].map(collected);
  const peaks = new Map();
  const look = setInterval(() => lookAt(peaks, child.pid), 20);
  if (during !== undefined)
    child.stdio[3].once('data', (chunk) => void during(Number.parseInt(String(chunk), 10)));
  await once(child, 'close');
  clearInterval(look);
  const [, times = '', , children = ''] = report().split('\n');
  const [startedAt, endedAt, exitCode] = times.split(' ').map(Number);
  if (exitCode !== code) throw new Error(`${command.join(' ')}: exit ${exitCode}\n${stdout()}`);
  const rss = [...peaks.values()].reduce((sum, peak) => sum + peak, 0);
  return { wall: endedAt - startedAt, cpu: secondsOf(children), rss, stdout: stdout() };
}

function collected(stream) {
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString();
}

// Parses a line such as `0m0.034s 0m0.011s`, the user and system time of all children that have ended.
// Returns their sum in seconds.
function secondsOf(line) {
  const parts = [...line.matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.reduce((sum, [, minutes, seconds]) => sum + Number(minutes) * 60 + Number(seconds), 0);
}

// Records in `peaks` the peak memory, in MB, of every running descendant of a process, keyed by process id.
function lookAt(peaks, parent) {
  for (const pid of childrenOf(parent)) {
    const peak = peakOf(pid);
    if (peak !== undefined) peaks.set(pid, peak);
    lookAt(peaks, pid);
  }
}

function childrenOf(pid) {
  return read(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean);
}

/**
 * Returns a running process's peak resident memory, in MB, or undefined if the process has ended or /proc is missing.
 */
export function peakOf(pid) {
  const kib = /VmHWM:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1];
  return kib && (Number(kib) * 1024) / 1e6;
}

/** Returns a running process's user and system time, in seconds. Linux counts in hundredths of a second. */
export function cpuOf(pid) {
  const fields = read(`/proc/${pid}/stat`).split(') ').pop().split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/**
 * Runs each contender once per round, one after the other, so a busy machine slows all of them. Before each
 * run, the previous run's data is synced, because otherwise this run's sync would wait for that data. Every other
 * round runs in reverse order.
 *
 * @param {number} rounds
 * @param {Record<string, () => Promise<{ wall: number, cpu: number, rss: number }>>} contenders
 * @param {{ warmUp?: boolean }} options `warmUp` adds a first round that is not measured
 * @returns {Promise<{ of: (name: string, what?: string) => number, ratio: (name: string, peer: string, what?:
 *   string) => number }>} `of` returns the median of all rounds, and `ratio` the median of the rounds' ratios;
 *   `what` is wall, cpu or rss
 */
export async function interleaved(rounds, contenders, { warmUp = false } = {}) {
  const runs = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]));
  for (let round = warmUp ? -1 : 0; round < rounds; round += 1) {
    const order = Object.entries(contenders);
    if (round % 2 !== 0) order.reverse();
    for (const [name, contender] of order) {
      spawnSync('sync');
      const run = await contender();
      if (round >= 0) runs[name].push(run);
    }
  }
  return {
    of: (name, what = 'wall') => median(runs[name].map((run) => run[what])),
    ratio: (name, peer, what = 'wall') =>
      median(runs[name].map((run, round) => run[what] / runs[peer][round][what])),
  };
}

/** The lowest CPU time measured for writing 1 GiB, in microseconds. */
let atBest = Infinity;

/**
 * Writes 1 GiB to a file and removes it, to prepare the machine for a program that writes a large file. A virtual
 * machine returns memory to its host after two seconds without use. The next program that needs the memory then waits
 * for four times as long as the write takes. The file is therefore rewritten until a write is about as fast as the
 * fastest one so far.
 */
export function freeMemory(folder) {
  for (let times = 1, isSlow = true; isSlow && times <= 6; times += 1) {
    const before = process.cpuUsage().system;
    writeMuch(join(folder, 'memory'));
    const took = process.cpuUsage().system - before;
    atBest = Math.min(atBest, took);
    isSlow = times === 1 || took > atBest * 1.2;
  }
}

function writeMuch(path) {
  const file = openSync(path, 'w');
  const block = Buffer.alloc(1024 * 1024);
  for (let mib = 0; mib < 1024; mib += 1) writeSync(file, block);
  fsyncSync(file);
  closeSync(file);
  rmSync(path);
}

/** Returns the median of an array of numbers. */
export function median(values) {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
}
