import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const folder = fileURLToPath(new URL('.', import.meta.url));
const page = readFileSync(new URL('../../docs/faults.md', import.meta.url), 'utf8');

/** `file: title` of every row of the page. */
const named = page
  .split('\n')
  .filter((line) => line.startsWith('| ') && !/^\| (fault|input|text) \|/.test(line))
  .map((line) => {
    const cells = line.replaceAll('\\|', '\u0001').split('|').slice(1, -1);
    const [file = '', title = ''] = cells.slice(-2).map((cell) => cell.trim().replaceAll('\u0001', '|'));
    return `${file}: ${title}`;
  });

/** `file: title` of every suite of this folder but this one. */
const written = readdirSync(folder)
  .filter((name) => name.endsWith('.test.ts') && name !== 'titles.test.ts')
  .flatMap((name) => {
    const source = readFileSync(`${folder}${name}`, 'utf8');
    const suites = source.matchAll(/^describe(?:\.\w+(?:\([^()\n]*\))?)*\(\s*(['"])((?:\\.|(?!\1).)*)\1/gm);
    return [...suites].map(([, , title]) => `${name.replace('.test.ts', '')}: ${title}`);
  });

/** True for a row whose test stands in another folder: `protocols/models.test: the beginning of its title`. */
function isElsewhere(row: string): boolean {
  const [, file, title = ''] = /^([\w-]+\/[\w.-]+): (.+)$/.exec(row) ?? [];
  if (file === undefined) return false;
  expect(readFileSync(`${folder}../${file}.ts`, 'utf8')).toMatch(new RegExp(`\\(\\s*'${title}`));
  return true;
}

describe('docs/faults.md', () => {
  it('names a test for every row, and every test is there', () => {
    expect(named.length).toBeGreaterThan(90);
    expect(named.filter((row) => !written.includes(row) && !isElsewhere(row))).toEqual([]);
  });

  it('leaves no test of a fault out, and names none twice', () => {
    expect(written.filter((title) => !named.includes(title))).toEqual([]);
    expect(new Set(written).size).toBe(written.length);
    expect(new Set(named).size).toBe(named.length);
  });
});
