import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { rolldown } from 'rolldown';
import { stripped } from './strip.mjs';

/** Bundles the start script, because an executable's main script can require only Node's built-in modules. */
export async function bundleMain(file) {
  const bundle = await rolldown({ input: 'bin/mgw.js', platform: 'node', external: [/^node:/] });
  await bundle.write({ file, format: 'cjs', minify: { mangle: false, compress: true } });
  await bundle.close();
}

/**
 * Writes a target's executable: the target's Node, with the build and the documentation as assets.
 * @param builder a Node of the same version that runs on this machine, and builds the executables for all platforms
 * @param folder the folder for intermediate files
 * @throws if the executable exceeds the target's limit
 */
export function writeExecutable({ name, maxBytes }, { builder, node, main, folder, output }) {
  const own = join(folder, name);
  mkdirSync(own, { recursive: true });
  const base = join(own, 'node');
  const isElf = name.startsWith('linux-');
  writeFileSync(base, isElf ? stripped(readFileSync(node)) : readFileSync(node), { mode: 0o755 });
  // V8 may crash on code compiled for another processor or system.
  const compiled = name === `${process.platform}-${process.arch}` ? compiledChunks(builder, own) : {};
  const config = {
    // The path becomes part of the executable, so it is relative to the builder's working directory.
    ...{ main: relative(own, main), output, executable: base, assets: { ...assets(), ...compiled } },
    ...{ disableExperimentalSEAWarning: true, execArgvExtension: 'none' },
  };
  writeFileSync(join(own, 'sea.json'), JSON.stringify(config));
  execFileSync(builder, ['--build-sea', 'sea.json'], { cwd: own });
  const { length } = readFileSync(output);
  if (length > maxBytes) throw new Error(`${output} has ${length} bytes; the limit is ${maxBytes}`);
}

function compiledChunks(builder, own) {
  const folder = join(own, 'compiled');
  mkdirSync(folder);
  const script =
    'const [load, folder, ...files] = process.argv.slice(1); for (const file of files) require(load).compile(file, folder);';
  const files = chunks().map((name) => `dist/${name}`);
  execFileSync(builder, ['--predictable', '-e', script, resolve('bin/load.js'), folder, ...files]);
  const names = readdirSync(folder).sort();
  return Object.fromEntries(names.map((name) => [`compiled/${name}`, join(folder, name)]));
}

function chunks() {
  return readdirSync('dist').filter((name) => name.endsWith('.cjs'));
}

// Returns the assets by their paths in the package. The assets are sorted, because their order
// affects the executable's bytes.
function assets() {
  const pages = readdirSync('docs', { recursive: true }).filter((name) => /\.(md|yaml)$/.test(name));
  const files = [...chunks().map((name) => `dist/${name}`), ...pages.map((name) => `docs/${name}`)];
  return Object.fromEntries(files.sort().map((file) => [file, resolve(file)]));
}
