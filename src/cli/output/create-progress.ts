import { lineProgress } from './lines.ts';
import type { Progress, ProgressOptions } from './progress.ts';
import { terminalProgress } from './spinner.ts';

/** A terminal with room gets a spinner and a bar; anything else gets plain lines without control codes. */
export function createProgress(options: ProgressOptions): Progress {
  return isLively(options) && !options.quiet ? terminalProgress(options) : lineProgress(options);
}

// A dumb terminal and a CI log cannot take a line back, whatever isTTY says.
function isLively({ stderr, env }: ProgressOptions): boolean {
  return stderr.isTTY === true && (stderr.columns ?? 0) > 0 && env['TERM'] !== 'dumb' && !env['CI'];
}
