import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Builds `dist` once before the suite, so the tested CLI contains the current code. */
export default function setup(): void {
  const start = Date.now();
  execFileSync(
    process.execPath,
    ['node_modules/rolldown/bin/cli.mjs', '-c', 'scripts/build/rolldown.config.mjs', '--log-level', 'warn'],
    {
      stdio: 'inherit',
    },
  );
  // Remove the chunks of earlier builds, because tests copy all of `dist`. A new build does not replace old chunks,
  // because their names contain hashes.
  for (const entry of readdirSync('dist', { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && statSync(path).mtimeMs < start - 1000) rmSync(path);
  }
}
