import { setTimeout as delay } from 'node:timers/promises';
import type { Running } from '../support/cli.ts';

/** Waits for a condition to become true. The test's own timeout limits the wait. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await delay(2);
}

/**
 * Resolves once a run has printed the text on stderr the given number of times.
 * @throws Error if the run ends before that
 */
export function says({ child, result }: Running, text: string, times = 1): Promise<void> {
  let output = '';
  return new Promise((resolve, reject) => {
    child.stderr?.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (output.split(text).length > times) resolve();
    });
    void result.then(() => reject(new Error(`it ended without printing "${text}": ${output}`)));
  });
}
