import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'rolldown';
import { onceForSuite } from '../support/once-for-suite.ts';

/** The bundles of the storm's parts that run in separate processes. */
export interface Built {
  worker: string;
  /** The URL of the preload that records a process. */
  recorder: string;
}

/** Builds the worker and the recorder, once per test suite. */
export async function buildStorm(): Promise<Built> {
  const dir = await onceForSuite('mgw-storm', buildInto);
  return { worker: join(dir, 'worker.js'), recorder: pathToFileURL(join(dir, 'recorder.js')).href };
}

function buildInto(dir: string): Promise<unknown> {
  return build({
    input: { worker: 'test/storm/worker.ts', recorder: 'test/storm/recorder.ts' },
    platform: 'node',
    external: [/^node:/],
    resolve: { conditionNames: ['node', 'import', 'default'] },
    output: { dir, format: 'esm' },
    logLevel: 'silent',
  });
}
