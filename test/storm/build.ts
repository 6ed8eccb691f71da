import { join } from 'node:path';
import { build } from 'rolldown';
import config from './rolldown.config.ts';

/** Builds the worker into a folder and gives its path. */
export async function buildWorker(dir: string): Promise<string> {
  await build({
    ...config,
    input: { worker: 'test/storm/worker.ts' },
    output: { dir, format: 'esm' },
    logLevel: 'silent',
  });
  return join(dir, 'worker.js');
}
