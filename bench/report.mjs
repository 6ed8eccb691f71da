// Formats a table with one line per figure: the peer, the ratio, the target, and whether the target is met.
import { execFileSync } from 'node:child_process';
import { cpus, release, totalmem } from 'node:os';

/**
 * @typedef {object} Row
 * @property {string} figure what was measured, with its size
 * @property {number} value
 * @property {string} unit s, ms, MB, MB/s, rows/s, % …
 * @property {number} [cpu] user and system time, in the same unit; the figure least affected by
 *   other work on the machine
 * @property {string} [peer] the name of the program that mgw is compared with
 * @property {number} [peerValue] the peer's value, in the same unit
 * @property {number} [ratio] ratio of the value to the peer's value, as the median of the rounds
 * @property {number} [cpuRatio] ratio of user and system time; printed, but judged only as a separate figure
 * @property {{ ratio: number } | { max: number } | { min: number }} [target] absent if the row only shows growth
 * @property {{ by: string, value: number }} [bound] the result of a minimal program that does only
 *   the work, in the same unit
 */

/** Maximum ratio of a figure to its bound, if the bound itself misses the target. */
const nearBound = 1.2;

/**
 * Compares a row with its target. `bound` means that even the minimal program misses the target on this machine, and
 * that mgw is close to that program. Returns undefined if the row has no target.
 * @returns {'met' | 'bound' | 'MISSED' | undefined}
 */
export function verdictOf({ value, ratio, target, bound, peerValue }) {
  if (target === undefined) return undefined;
  if (meets(target, value, ratio)) return 'met';
  if (bound === undefined || meets(target, bound.value, bound.value / peerValue)) return 'MISSED';
  const times = 'min' in target ? bound.value / value : value / bound.value;
  return times <= nearBound ? 'bound' : 'MISSED';
}

function meets(target, value, ratio) {
  if ('ratio' in target) return ratio <= target.ratio;
  return 'max' in target ? value <= target.max : value >= target.min;
}

/** @param {Row[]} rows */
export function table(rows) {
  const lines = rows.map((row) => [
    row.figure,
    `${digits(row.value)} ${row.unit}`,
    row.cpu === undefined ? '' : `${digits(row.cpu)} ${row.unit}`,
    row.peer === undefined ? '' : `${row.peer} ${digits(row.peerValue)} ${row.unit}`,
    row.ratio?.toFixed(2) ?? '',
    row.cpuRatio?.toFixed(2) ?? '',
    targetOf(row),
    row.bound === undefined ? '' : `${row.bound.by} ${digits(row.bound.value)} ${row.unit}`,
    verdictOf(row) ?? '',
  ]);
  const head = ['figure', 'mgw', 'CPU', 'peer', 'ratio', 'CPU ratio', 'target', 'minimal program', 'verdict'];
  const all = [head, ...lines];
  const widths = all[0].map((_, at) => Math.max(...all.map((line) => line[at].length)));
  const drawn = all.map((line) => `| ${line.map((cell, at) => cell.padEnd(widths[at])).join(' | ')} |`);
  return [drawn[0], `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`, ...drawn.slice(1)].join(
    '\n',
  );
}

function targetOf({ target, unit }) {
  if (target === undefined) return '';
  if ('ratio' in target) return `≤ ${target.ratio} ×`;
  return 'max' in target ? `≤ ${target.max} ${unit}` : `≥ ${target.min} ${unit}`;
}

function digits(value) {
  return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
}

/** Describes the machine, and the versions of the system and Node. */
export function machine() {
  const commit = execFileSync('git', ['describe', '--always', '--dirty'], {
    cwd: import.meta.dirname,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const memory = `${Math.round(totalmem() / 2 ** 30)} GiB`;
  const date = new Date().toISOString().slice(0, 10);
  const processor = `${cpus().length} × ${cpus()[0].model.trim()}`;
  return `${date}, mgw ${String(commit).trim()}, ${processor}, ${memory}, ${process.platform} ${release()}, Node ${process.versions.node}`;
}
