import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cacheHome } from './compile-cache.ts';

const memory = '/dev/shm';
const roomyBytes = 4 * 1024 ** 3;

/** Makes the suite create all files below one folder. The folder is removed after the suite. */
export default function setup(): () => void {
  const folder = mkdtempSync(join(isFit() ? memory : tmpdir(), 'mgw-suite-'));
  // Database servers run as a different user, who must be able to reach the servers' folders inside this one.
  chmodSync(folder, 0o711);
  process.env['TMPDIR'] = folder;
  mkdirSync(cacheHome(), { mode: 0o700 });
  return () => rmSync(folder, { recursive: true, force: true });
}

// Whether the suite, which syncs thousands of times, can write to memory instead of the disk: there must be enough
// memory, and the file system must allow scripts to run.
function isFit(): boolean {
  try {
    const { bavail, bsize } = statfsSync(memory);
    const mounts = readFileSync('/proc/mounts', 'utf8').split('\n');
    const options = mounts.find((line) => line.split(' ')[1] === memory)?.split(' ')[3] ?? 'noexec';
    return bavail * bsize >= roomyBytes && !options.split(',').includes('noexec');
  } catch {
    return false;
  }
}
