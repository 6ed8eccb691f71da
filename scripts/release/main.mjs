import { execFileSync } from 'node:child_process';
import { delimiter, join, resolve } from 'node:path';
import { unpackNode } from './node-package.mjs';
import { targets } from './targets.mjs';

// Makes a release with the Node of its executables: another one compresses to other bytes, and those before 22.15 do not know zstd.
const host = targets.find(({ name }) => name === `${process.platform}-${process.arch}`);
if (host === undefined) throw new Error('a release is made on linux-x64');
const folder = join(unpackNode(host, resolve('node_modules/.cache/mgw-release')), 'package/bin');
execFileSync(join(folder, 'node'), [join(import.meta.dirname, 'release.mjs')], {
  // npm, which packs the npm package, takes the Node of the PATH.
  env: { ...process.env, PATH: `${folder}${delimiter}${process.env.PATH}` },
  stdio: 'inherit',
});
