import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Builds `dist` once before the suite, so that the CLI under test is the code under test. */
export default function setup(): void {
  const start = Date.now();
  execFileSync(
    process.execPath,
    ['node_modules/rolldown/bin/cli.mjs', '-c', 'scripts/build/rolldown.config.mjs', '--log-level', 'warn'],
    {
      stdio: 'inherit',
    },
  );
  // A chunk's name contains its hash, so the chunks of earlier builds are still there, and tests copy all of `dist`.
  for (const entry of readdirSync('dist', { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && statSync(path).mtimeMs < start - 1000) rmSync(path);
  }
}
