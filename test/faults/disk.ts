import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A small file system for one test. */
export interface Disk {
  /** Fills the disk up to the last byte. */
  fill(): void;
  /** Frees space again. */
  clear(): void;
  /** Sets the total size of the disk in kilobytes. */
  resize(kilobytes: number): void;
  readOnly(): void;
  writable(): void;
  unmount(): void;
}

/** Mounts a file system of `kilobytes` at a folder, which is created. */
export function mountDisk(folder: string, kilobytes: number): Disk {
  mkdirSync(folder, { recursive: true });
  mount('-t', 'tmpfs', '-o', `size=${kilobytes}k,mode=0700`, 'tmpfs', folder);
  const ballast = join(folder, 'ballast');
  return {
    fill: () => fill(ballast, kilobytes * 1024),
    clear: () => rmSync(ballast, { force: true }),
    resize: (size) => mount('-o', `remount,size=${size}k`, folder),
    readOnly: () => mount('-o', 'remount,ro', folder),
    writable: () => mount('-o', 'remount,rw', folder),
    unmount: () => execFileSync('umount', ['-l', folder]),
  };
}

function mount(...args: string[]): void {
  execFileSync('mount', args, { stdio: 'ignore' });
}

function fill(path: string, bytes: number): void {
  for (let size = bytes; size >= 1; size = Math.floor(size / 2)) {
    try {
      writeFileSync(path, Buffer.alloc(size), { flag: 'a' });
    } catch {
      // A part may have been written; try the remaining bytes in smaller pieces.
    }
  }
}

/** Whether this user can mount file systems. Without that, the tests of full disks are skipped. */
export const canMount = ((): boolean => {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-mount-'));
  try {
    mountDisk(folder, 64).unmount();
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
})();
