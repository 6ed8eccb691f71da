import { readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { isolatedDeclarationSync } from 'rolldown/experimental';

/**
 * Writes an entry point's types, and all types that they refer to, to `types/`. Writes them once as ES modules and once
 * as CommonJS, because TypeScript infers the module kind from the declaration file's name. Each file is compiled alone,
 * so a type that would have to be inferred from another file fails the build.
 */
export function declarations(root, entry) {
  return {
    name: 'declarations',
    generateBundle() {
      for (const [file, text] of declarationsFrom(join(root, entry))) {
        const name = join('types', relative(root, file).replace(/\.ts$/, ''));
        for (const kind of ['m', 'c']) {
          const source = text.replace(imported, (_, path) => `from "${path.replace(/\.ts$/, `.${kind}js`)}"`);
          this.emitFile({ type: 'asset', fileName: `${name}.d.${kind}ts`, source });
        }
      }
    },
  };
}

const imported = /\bfrom "([^"]+)"/g;

function declarationsFrom(entry) {
  const found = new Map();
  const rest = [entry];
  for (let file = rest.pop(); file !== undefined; file = rest.pop()) {
    if (found.has(file)) continue;
    const text = declarationOf(file);
    found.set(file, text);
    for (const [, name] of text.matchAll(imported)) {
      if (!name.startsWith('.'))
        throw new Error(`${file}: its types refer to ${name}, which users may not have`);
      rest.push(join(dirname(file), name));
    }
  }
  return found;
}

function declarationOf(file) {
  const { code, errors } = isolatedDeclarationSync(file, readFileSync(file, 'utf8'), { stripInternal: true });
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`);
  return code;
}
