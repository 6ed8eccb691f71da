import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { version } from '../../src/installation.ts';

const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));

/**
 * Writes a release with checksums, whose executable starts this build.
 * @returns the file that the action downloads: the compressed file if this machine can unpack it
 */
export function writeRelease(folder: string): string {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `mgw-${version}-linux-${process.arch}`);
  writeFileSync(file, `#!/bin/sh\nexec '${process.execPath}' '${bin}' "$@"\n`);
  chmodSync(file, 0o755);
  const { status } = spawnSync('zstd', ['--quiet', file]);
  const lines = readdirSync(folder).map((name) => `${sum(join(folder, name))}  ${name}\n`);
  writeFileSync(join(folder, 'SHA256SUMS'), lines.join(''));
  return status === 0 ? `${file}.zst` : file;
}

function sum(file: string): string {
  return createHash('sha256').update(readFileSync(file)).digest('hex');
}
