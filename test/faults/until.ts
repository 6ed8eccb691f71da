import { setTimeout as delay } from 'node:timers/promises';
import type { Running } from '../support/cli.ts';

/** Resolves once a condition holds; a test that waits in vain ends by its own timeout. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await delay(2);
}

/** Resolves once a run has said a text on stderr so many times. */
export function says({ child }: Running, text: string | RegExp, times = 1): Promise<void> {
  let said = '';
  return new Promise((resolve) => {
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      if (said.split(text).length > times) resolve();
    });
  });
}
