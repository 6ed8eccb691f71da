import { join } from 'node:path';
import { build } from 'rolldown';

/** Builds the worker into a folder and gives its path. */
export async function buildWorker(dir: string): Promise<string> {
  await build({
    input: { worker: 'test/storm/worker.ts' },
    platform: 'node',
    external: [/^node:/],
    resolve: { conditionNames: ['node', 'import', 'default'] },
    output: { dir, format: 'esm' },
    logLevel: 'silent',
  });
  return join(dir, 'worker.js');
}
