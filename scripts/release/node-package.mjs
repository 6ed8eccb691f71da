import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { nodeVersion } from './targets.mjs';

/**
 * Unpacks a target's Node below `folder`, which keeps it for the next release.
 * @returns the folder; the target's `binary` is the path of the Node binary in this folder
 * @throws if the package does not match its checksum
 */
export function unpackNode({ name, source = `node-${name}`, integrity }, folder) {
  const own = join(folder, `node-${nodeVersion}-${name}`);
  const tarball = join(own, `${source}-${nodeVersion}.tgz`);
  if (!existsSync(tarball)) {
    mkdirSync(own, { recursive: true });
    execFileSync('npm', ['pack', '--silent', '--pack-destination', own, `${source}@${nodeVersion}`]);
  }
  const found = `sha512-${createHash('sha512').update(readFileSync(tarball)).digest('base64')}`;
  if (found !== integrity) throw new Error(`${tarball}: expected ${integrity}, found ${found}`);
  execFileSync('tar', ['-xzf', tarball, '-C', own, '--exclude=package/include']);
  return own;
}
