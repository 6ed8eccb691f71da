import { execFileSync } from 'node:child_process';
import { delimiter, join, resolve } from 'node:path';
import { unpackNode } from './node-package.mjs';
import { targets } from './targets.mjs';

// Builds a release with the same Node version that the executables contain. Other versions compress to different bytes,
// and versions before 22.15 do not support zstd.
const host = targets.find(({ name }) => name === `${process.platform}-${process.arch}`);
if (host === undefined) throw new Error('a release can be built only on linux-x64');
const folder = join(unpackNode(host, resolve('node_modules/.cache/mgw-release')), 'package/bin');
execFileSync(join(folder, 'node'), [join(import.meta.dirname, 'release.mjs')], {
  // npm builds the npm package with the Node on the PATH.
  env: { ...process.env, PATH: `${folder}${delimiter}${process.env.PATH}` },
  stdio: 'inherit',
});
