import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A small file system that one test mounts. */
export interface Disk {
  /** Fills the disk to the last byte. */
  fill(): void;
  /** Frees the space that `fill` has used. */
  clear(): void;
  /** Sets the disk's total size, in kilobytes. */
  resize(kilobytes: number): void;
  readOnly(): void;
  writable(): void;
  unmount(): void;
}

/** Creates a folder, and mounts a file system of the given size there. */
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
      // Part of the piece may have been written, so the remaining space is filled in smaller pieces.
    }
  }
}

/** Whether this user can mount file systems. If not, the tests of full disks are skipped. */
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
