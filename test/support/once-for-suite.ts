import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * Fills a folder once per suite and returns its path. The first process that calls this function fills the folder, and
 * all others wait.
 */
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
      // Remove the folder, so the next process tries again instead of waiting.
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }
  return folder;
}
