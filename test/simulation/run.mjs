// Builds the command line and the simulation, and runs it: there is nothing here that runs TypeScript.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { build } from 'rolldown';
import builds from '../../scripts/build/rolldown.config.mjs';

const folder = new URL('../../node_modules/.cache/mgw-simulation/', import.meta.url);
const src = new URL('../../src/', import.meta.url).pathname;
const { devDependencies } = createRequire(import.meta.url)('../../package.json');
const libraries = Object.keys(devDependencies).map((name) => new RegExp(`^${name}(/|$)`));
const common = {
  platform: 'node',
  external: [/^node:/, /^virtual:/, /^ipaddr/, ...libraries],
  resolve: builds[0].resolve,
  logLevel: 'silent',
};
// A thread evaluates the program once, and resets the state of its modules for the next process.
const state =
  /^let (\w+)(?:: [^=\n]+)?(?: = (.+))?;$|^const (\w+)(?:: [^=\n]+)? = new (?:Map|Set)(?:<.*>)?\(\);$/gm;
const resettable = {
  name: 'resettable',
  transform(code, id) {
    if (!id.startsWith(src)) return undefined;
    const resets = [...code.matchAll(state)].map(([, name, value, collection]) =>
      collection === undefined ? `${name} = ${value};` : `${collection}.clear();`,
    );
    return resets.length === 0 ? undefined : `${code}\nafterEachProcess(() => { ${resets.join(' ')} });\n`;
  },
};
const output = { dir: folder.pathname, format: 'cjs', codeSplitting: false };
await build({
  ...common,
  input: { mgw: 'src/cli/main.ts' },
  plugins: [resettable],
  output: { ...output, entryFileNames: 'mgw.cjs' },
});
const parts = { main: 'test/simulation/main.ts', thread: 'test/simulation/thread.ts' };
await build({
  ...common,
  input: parts,
  output: { dir: folder.pathname, format: 'esm', entryFileNames: '[name].mjs' },
});
await import(pathToFileURL(`${folder.pathname}main.mjs`).href);
