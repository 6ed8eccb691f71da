import { mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { systemCode } from './errors.ts';

/**
 * Makes a folder and its missing parents, readable by their owner alone; one that is there stays as it is. Node's
 * own `recursive` never ends where the system refuses a name under a folder that exists (/proc), so the parents
 * are climbed here.
 * @throws the system's error (`EACCES`, `ENOTDIR`, `EROFS`, `ENOENT`, …).
 */
export async function makeFolder(folder: string): Promise<void> {
  try {
    await makeOne(folder);
  } catch (error) {
    const parent = path.dirname(folder);
    if (systemCode(error) !== 'ENOENT' || parent === folder) throw error;
    await makeFolder(parent);
    await makeOne(folder);
  }
}

async function makeOne(folder: string): Promise<void> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    const there = systemCode(error) === 'EEXIST' && (await stat(folder)).isDirectory();
    if (!there) throw error;
  }
}
