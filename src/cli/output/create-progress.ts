import { lineProgress } from './lines.ts';
import type { Progress, ProgressOptions } from './progress.ts';
import { terminalProgress } from './spinner.ts';

/** A terminal with room gets a spinner and a bar; anything else gets plain lines without control codes. */
export function createProgress(options: ProgressOptions): Progress {
  return isLively(options) && !options.quiet ? terminalProgress(options) : lineProgress(options);
}

/** True for a terminal that can take a line back: a dumb one and a CI log cannot, whatever isTTY says. */
export function isLively({ stderr, env }: ProgressOptions): boolean {
  return stderr.isTTY === true && (stderr.columns ?? 0) > 0 && env['TERM'] !== 'dumb' && !env['CI'];
}
