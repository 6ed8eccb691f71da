import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { bundleMain, writeExecutable } from './executable.mjs';
import { unpackNode } from './node-package.mjs';
import { targets } from './targets.mjs';

// Makes all forms of mgw into `release/`. Nothing in it depends on the folder, the time or the user.
const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
const release = resolve('release');
const cache = resolve('node_modules/.cache/mgw-release');
const work = join(cache, 'work');
for (const folder of [release, work]) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
}

execFileSync('npm', ['pack', '--silent', '--pack-destination', release], { stdio: 'pipe' });

const nodes = new Map(targets.map((target) => [target.name, unpackNode(target, cache)]));
const host = nodes.get(`${process.platform}-${process.arch}`);
if (host === undefined) throw new Error('a release is made on linux-x64');
const builder = host.binary;

const main = join(work, 'main.cjs');
await bundleMain(main);
for (const target of targets) {
  const output = join(release, `mgw-${version}-${target.name}${target.suffix ?? ''}`);
  const node = nodes.get(target.name).binary;
  writeExecutable(target, { builder, node, main, folder: work, output });
}

pack(targets.map(({ name }) => join(release, `mgw-${version}-${name}`)));
writeFileSync(join(release, 'LICENSES.txt'), licences());
writeFileSync(join(release, 'SHA256SUMS'), checksums());
rmSync(work, { recursive: true });

// The Node of this machine may be too old to know zstd.
function pack(files) {
  execFileSync(builder, [join(import.meta.dirname, 'pack.mjs'), ...files], { stdio: 'inherit' });
}

function licences() {
  const files = ['LICENSE', 'dist/THIRD-PARTY-LICENSES.txt', host.licence];
  return files.map((file) => readFileSync(file, 'utf8').trim()).join(`\n\n${'='.repeat(80)}\n\n`) + '\n';
}

function checksums() {
  const lines = readdirSync(release)
    .sort()
    .map(
      (name) =>
        `${createHash('sha256')
          .update(readFileSync(join(release, name)))
          .digest('hex')}  ${name}\n`,
    );
  return lines.join('');
}
