// Measures one run of a program: wall time, CPU time and peak resident memory. bash measures the times, since
// Node does not report the CPU time of a child. The peak memory is read from /proc while the program runs
// (Linux only). Both include the processes that the program starts, and exclude bash.
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
 * Runs a program to its end.
 *
 * @param {string[]} command the program and its arguments
 * @param {{ env?: object, cwd?: string, input?: string, code?: number, quiet?: boolean, during?: (pid: number) => unknown }} options
 *   `input` goes to stdin; `code` is the exit code that is expected (0), any other throws; `quiet` drops stderr;
 *   `during` is called with the process id when the program has started
 * @returns {Promise<{ wall: number, cpu: number, rss: number, stdout: string }>} seconds, seconds of user and system,
 *   and MB (10^6 bytes; 0 if there is no /proc)
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
  const [begun, ended, exitCode] = times.split(' ').map(Number);
  if (exitCode !== code) throw new Error(`${command.join(' ')}: exit ${exitCode}\n${stdout()}`);
  const rss = [...peaks.values()].reduce((sum, peak) => sum + peak, 0);
  return { wall: ended - begun, cpu: secondsOf(children), rss, stdout: stdout() };
}

function collected(stream) {
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString();
}

// Parses `0m0.034s 0m0.011s`: the user and system time of all children that have ended.
function secondsOf(line) {
  const parts = [...line.matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.reduce((sum, [, minutes, seconds]) => sum + Number(minutes) * 60 + Number(seconds), 0);
}

// Returns the peak memory, in MB, of every descendant of a process, including those that have ended.
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

/** Returns the peak resident memory of a running process in MB; undefined if it has ended, or there is no /proc. */
export function peakOf(pid) {
  const kib = /VmHWM:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1];
  return kib && (Number(kib) * 1024) / 1e6;
}

/** Returns the user and system time of a running process in seconds, which Linux counts in hundredths. */
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
 * Runs each contender once in every round, one after the other, so that a busy machine slows all of them. Before each run, the
 * data of the previous one is synced, because a sync of this run would wait for that too. Every other round runs in reverse order.
 *
 * @param {number} rounds
 * @param {Record<string, () => Promise<{ wall: number, cpu: number, rss: number }>>} contenders
 * @param {{ warmUp?: boolean }} options `warmUp`: a first round that does not count
 * @returns {Promise<{ of: (name: string, what?: string) => number, ratio: (name: string, peer: string, what?: string) => number }>}
 *   `of` is the median of all rounds, `ratio` the median of each round's ratio; `what` is wall, cpu or rss
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

/** The lowest CPU time for writing 1 GiB, in microseconds. */
let atBest = Infinity;

/**
 * Writes 1 GiB to a file and removes it, before a program that writes a large file. A virtual machine returns
 * memory that is free for two seconds to its host, and the next program that needs it waits four times as
 * long as the write takes. So the file is rewritten until the write is as fast as its best time.
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

/** Returns the median. */
export function median(values) {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
}
