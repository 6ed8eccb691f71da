import { cpSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { rolldown, type InputOptions, type OutputOptions, type Plugin } from 'rolldown';
import configs from '../../../scripts/build/rolldown.config.mjs';

type Config = InputOptions & { output: OutputOptions; plugins: Plugin[] };

const registry = resolve('src/protocols/registry.ts');
const toy = resolve('test/protocols/toy/protocol.ts');

// Adds a protocol as a developer would: imports the protocol's folder, and adds the protocol's name to the registry.
const withToy: Plugin = {
  name: 'with-the-toy-protocol',
  transform(code, id) {
    if (id !== registry) return null;
    const added = code.replace('{ a, b, c }', '{ a, b, c, d }');
    if (added === code) throw new Error('the registry does not have its line of protocols');
    return `import { d } from ${JSON.stringify(toy)};\n${added}`;
  },
};

/** Builds the command line and the library in `folder`, including the toy protocol. */
export async function buildWithToy(folder: string): Promise<void> {
  for (const file of ['bin', 'package.json']) cpSync(file, join(folder, file), { recursive: true });
  for (const { output, plugins, ...input } of configs as unknown as Config[]) {
    // Omits the man page and the types, which are the same as in the shipped build.
    const kept = plugins.filter(({ name }) => name !== 'man-page' && name !== 'declarations');
    const bundle = await rolldown({ ...input, plugins: [withToy, ...kept], logLevel: 'silent' });
    await bundle.write({ ...output, dir: join(folder, output.dir ?? '') });
    await bundle.close();
  }
}
