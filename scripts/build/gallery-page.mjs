import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { rolldown } from 'rolldown';

const name = 'virtual:gallery-page';
const folder = join(import.meta.dirname, '../../src/gallery/page');
// The order matters, because a later rule overrides an earlier one.
const styles = ['page', 'tile', 'dialog', 'narrow'];

/** A plugin whose module `virtual:gallery-page` exports the gallery page's script and style as two strings. */
export function galleryPage() {
  return {
    name: 'gallery-page',
    resolveId: (id) => (id === name ? `\0${name}` : undefined),
    async load(id) {
      if (id !== `\0${name}`) return undefined;
      const style = styles.map((part) => readFileSync(join(folder, 'style', `${part}.css`), 'utf8')).join('');
      return `export const script = ${JSON.stringify(await script())};\nexport const style = ${JSON.stringify(plain(style))};`;
    },
  };
}

async function script() {
  const bundle = await rolldown({ input: join(folder, 'main.ts'), platform: 'browser' });
  const { output } = await bundle.generate({ format: 'iife', minify: true, sourcemap: false });
  await bundle.close();
  const [chunk, ...others] = output;
  if (others.length > 0) throw new Error("the gallery's page must be a single script");
  if (/<\/script|<!--/i.test(chunk.code))
    throw new Error("the gallery's script contains text that would end its script element");
  return chunk.code;
}

function plain(style) {
  return style
    .replace(/\/\*[^]*?\*\//g, '')
    .replace(/\s*\n\s*/g, '\n')
    .trim();
}
