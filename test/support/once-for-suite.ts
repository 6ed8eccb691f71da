import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/** Fills a folder once per suite and returns it. The first process that calls this fills it, and all others wait. */
export async function onceForSuite(name: string, fill: (folder: string) => unknown): Promise<string> {
  const folder = join(tmpdir(), name);
  const isFull = `${folder}.full`;
  while (!existsSync(isFull)) {
    if (mkdirSync(folder, { recursive: true }) === undefined) {
      await pause(50);
      continue;
    }
    try {
      await fill(folder);
      writeFileSync(isFull, '');
    } catch (error) {
      // Without the folder, the next process tries again instead of waiting.
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }
  return folder;
}
