import { execFileSync } from 'node:child_process';

/** Builds `dist` once before the suite, so that the CLI under test is the code under test. */
export default function setup(): void {
  execFileSync(
    process.execPath,
    ['node_modules/rolldown/bin/cli.mjs', '-c', 'scripts/build/rolldown.config.mjs', '--log-level', 'warn'],
    {
      stdio: 'inherit',
    },
  );
}
