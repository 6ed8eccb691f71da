import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const folder = fileURLToPath(new URL('.', import.meta.url));
const page = readFileSync(new URL('../../docs/faults.md', import.meta.url), 'utf8');

/**
 * `file: title` of every row of the page. Each section is named after a test file; rows of `Other
 * folders` start with the file.
 */
const named = page.split(/^## /m).flatMap((section) => {
  const [heading = '', ...lines] = section.split('\n');
  const file = heading.toLowerCase().replaceAll(' ', '-');
  return lines
    .filter((line) => line.startsWith('| ') && !/^\| (fault|file) \|/.test(line))
    .map((line) => {
      const cells = line.replaceAll('\\_', '_').split(' | ');
      const [first = '', second = ''] = cells.map((cell) => cell.replace(/^\| | \|$/g, '').trim());
      return file === 'other-folders' ? `${first}: ${second}` : `${file}: ${first}`;
    });
});

/** `file: title` of every suite in this folder except titles.test.ts. */
const written = readdirSync(folder)
  .filter((name) => name.endsWith('.test.ts') && name !== 'titles.test.ts')
  .flatMap((name) => {
    const source = readFileSync(`${folder}${name}`, 'utf8');
    const suites = source.matchAll(/^describe(?:\.\w+(?:\([^()\n]*\))?)*\(\s*(['"])((?:\\.|(?!\1).)*)\1/gm);
    return [...suites].map(([, , title]) => `${name.replace('.test.ts', '')}: ${title}`);
  });

/**
 * Whether a row such as `protocols/models.test: beginning of the title` refers to an existing test in another folder.
 */
function isElsewhere(row: string): boolean {
  const [, file, title = ''] = /^([\w-]+\/[\w.-]+): (.+)$/.exec(row) ?? [];
  if (file === undefined) return false;
  expect(readFileSync(`${folder}../${file}.ts`, 'utf8')).toMatch(new RegExp(`\\(\\s*'${title}`));
  return true;
}

describe('docs/faults.md', () => {
  it('refers to an existing test in every row', () => {
    expect(named.length).toBeGreaterThan(90);
    expect(named.filter((row) => !written.includes(row) && !isElsewhere(row))).toEqual([]);
  });

  it('contains exactly one row for every test of a fault', () => {
    expect(written.filter((title) => !named.includes(title))).toEqual([]);
    expect(new Set(written).size).toBe(written.length);
    expect(new Set(named).size).toBe(named.length);
  });
});
