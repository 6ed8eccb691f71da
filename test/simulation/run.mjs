// Bundles the command line and the simulation, because no TypeScript runner is installed, and runs the simulation.
import { rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { build } from 'rolldown';
import builds from '../../scripts/build/rolldown.config.mjs';
import { plants } from './plants.mjs';

const [, plant] = /--plant ([\w-]+)/.exec(process.argv.join(' ')) ?? [];
if (plant !== undefined && plants[plant] === undefined)
  throw new Error(`No such plant: ${plant}. There are ${Object.keys(plants).join(', ')}.`);
// Concurrent simulations may have different sources, so each has its own bundle.
const folder = new URL(`../../node_modules/.cache/mgw-simulation/${process.pid}/`, import.meta.url);
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
const src = new URL('../../src/', import.meta.url).pathname;
const { devDependencies } = createRequire(import.meta.url)('../../package.json');
const libraries = Object.keys(devDependencies).map((name) => new RegExp(`^${name}(/|$)`));
const planted = {
  name: 'planted',
  transform(code, id) {
    const changes = (plants[plant] ?? []).filter(([file]) => id === src + file);
    return changes.reduce((text, [file, from, to]) => {
      if (!text.includes(from)) throw new Error(`${file} no longer contains: ${from}`);
      return text.replace(from, () => to);
    }, code);
  },
};
const common = {
  platform: 'node',
  external: [/^node:/, /^virtual:/, /^ipaddr/, ...libraries],
  resolve: builds[0].resolve,
  logLevel: 'silent',
};
// A thread evaluates the program once, and resets the modules' state for each next process.
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
  plugins: [planted, resettable],
  output: { ...output, entryFileNames: 'mgw.cjs' },
});
const parts = { main: 'test/simulation/main.ts', thread: 'test/simulation/thread.ts' };
await build({
  ...common,
  input: parts,
  output: { dir: folder.pathname, format: 'esm', entryFileNames: '[name].mjs' },
});
await import(pathToFileURL(`${folder.pathname}main.mjs`).href);
