import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const repository = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string): string => readFileSync(join(repository, path), 'utf8');
const pages = ['docs', 'docs/skill'].flatMap((folder) =>
  readdirSync(join(repository, folder))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${folder}/${name}`),
);

/** Returns a page's paragraphs and list items, without code, tables and headings. */
const paragraphs = (page: string): string[] =>
  page
    .replaceAll(/^```[^]*?^```$/gm, '')
    .split(/\n\s*\n|\n(?=- |\d+\. )/)
    .filter((text) => !/^[|#]/.test(text.trim()));

it('README.md has at most 150 lines', () => {
  expect(read('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(150);
});

it.each(pages)('%s has no paragraph of more than four lines', (page) => {
  expect(paragraphs(read(page)).filter((text) => text.trim().split('\n').length > 4)).toEqual([]);
});

describe('docs/architecture.md', () => {
  const page = read('docs/architecture.md');

  it('refers only to files and folders that exist', () => {
    const files = Array.from(page.matchAll(/`([\w./-]+\.(?:ts|mjs|js))`/g), ([, path = '']) => path);
    expect(files.length).toBeGreaterThan(30);
    const exists = (path: string): boolean =>
      [path, `src/${path}`].some((each) => existsSync(join(repository, each)));
    expect(files.filter((path) => !exists(path))).toEqual([]);
  });

  it('lists every folder in src', () => {
    const folders = readdirSync(join(repository, 'src'), { withFileTypes: true }).filter((each) =>
      each.isDirectory(),
    );
    expect(folders.filter(({ name }) => !page.includes(`${name}/`)).map(({ name }) => name)).toEqual([]);
  });
});
