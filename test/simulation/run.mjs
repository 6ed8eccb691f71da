// Builds the command line and the simulation, and runs it: there is nothing here that runs TypeScript.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { build } from 'rolldown';
import builds from '../../scripts/build/rolldown.config.mjs';

const folder = new URL('../../node_modules/.cache/mgw-simulation/', import.meta.url);
const { devDependencies } = createRequire(import.meta.url)('../../package.json');
const libraries = Object.keys(devDependencies).map((name) => new RegExp(`^${name}(/|$)`));
const common = {
  platform: 'node',
  external: [/^node:/, /^virtual:/, /^ipaddr/, ...libraries],
  resolve: builds[0].resolve,
  logLevel: 'silent',
};
// One text: each process evaluates it anew, so that its modules are its own.
const output = { dir: folder.pathname, format: 'cjs', codeSplitting: false };
await build({
  ...common,
  input: { mgw: 'src/cli/main.ts' },
  output: { ...output, entryFileNames: 'mgw.cjs' },
});
const parts = { main: 'test/simulation/main.ts', thread: 'test/simulation/thread.ts' };
await build({
  ...common,
  input: parts,
  output: { dir: folder.pathname, format: 'esm', entryFileNames: '[name].mjs' },
});
await import(pathToFileURL(`${folder.pathname}main.mjs`).href);
