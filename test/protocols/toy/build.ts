import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { rolldown, type InputOptions, type Plugin } from 'rolldown';
import configs from '../../../scripts/build/rolldown.config.mjs';
import type { main } from '../../../src/cli/main.ts';
import type * as library from '../../../src/library/library.ts';

interface Built {
  main: typeof main;
  library: typeof library;
}

const registry = resolve('src/protocols/registry.ts');
const toy = resolve('test/protocols/toy/protocol.ts');

// Adds a protocol as a developer would: imports the protocol's folder, and adds the protocol's name to the registry.
const withToy: Plugin = {
  name: 'with-the-toy-protocol',
  transform(code, id) {
    if (id !== registry) return null;
    const added = code.replace('{ a, b, c }', '{ a, b, c, d }');
    if (added === code) throw new Error('the registry lacks the line that lists the protocols');
    return `import { d } from ${JSON.stringify(toy)};\n${added}`;
  },
};

/** Builds the command line and the library in `folder`, including the toy protocol, and loads both. */
export async function buildWithToy(folder: string): Promise<Built> {
  const [{ external, resolve, plugins }] = configs as unknown as [InputOptions & { plugins: Plugin[] }];
  const input = { main: 'src/cli/main.ts', library: 'src/library/library.ts' };
  const page = plugins.find(({ name }) => name === 'gallery-page');
  const bundle = await rolldown({
    ...{ input, external, resolve, platform: 'node', logLevel: 'silent' },
    plugins: [withToy, page],
  });
  await bundle.write({ dir: folder, format: 'cjs', strict: true, entryFileNames: '[name].cjs' });
  await bundle.close();
  const load = createRequire(import.meta.url);
  return {
    ...(load(join(folder, 'main.cjs')) as Pick<Built, 'main'>),
    library: load(join(folder, 'library.cjs')) as typeof library,
  };
}
