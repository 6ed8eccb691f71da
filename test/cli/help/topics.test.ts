import { topics } from '../../../src/cli/command-tree.ts';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { renderMarkdown } from '../../../src/cli/help/markdown.ts';
import { plain } from '../../../src/cli/output/human.ts';
import { exitCodes } from '../../../src/errors.ts';
import { runHere } from '../../support/one-process.ts';

const pageOf = (file: string): string => readFileSync(`docs/${file}`, 'utf8');
const wordsOf = (text: string): string[] => text.match(/[\w@./-]*\w/g) ?? [];

// Removes Markdown syntax: code fences with their languages, the lines below table headers, and link targets.
const bare = (page: string): string =>
  page
    .replace(/^```\w*$/gm, '')
    .replace(/^[|-]+$/gm, '')
    .replace(/\]\([^)]*\)/g, ']')
    .replace(/[`*\\]/g, '');

describe.each(topics)('mgw help $name', ({ name, page }) => {
  it('prints the documentation page of the topic, word for word', async () => {
    const { code, stdout } = await runHere(['help', name], {});
    expect(code).toBe(0);
    expect(wordsOf(stdout.replaceAll('\\\n', '')).sort()).toEqual(wordsOf(bare(pageOf(page))).sort());
  });

  it('fits in 40 and in 80 columns', () => {
    for (const width of [40, 80]) {
      const lines = renderMarkdown(pageOf(page), { width, paint: plain }).split('\n');
      expect(lines.filter((line) => line.length > width)).toEqual([]);
    }
  });
});

it.each([
  ['a line that begins with a flag', 'run `mgw x\n--flag` now', 'run mgw x --flag now'],
  [
    'a table with words that do not fit',
    '| name | flag |\n|---|---|\n| `a_setting_of_20_chars` | `--a-flag-of-20-chars` |',
    'a_setting_of_20_chars\n    --a-flag-of-20-chars',
  ],
])('mgw help keeps words and commands together: %s', (_, page, expected) => {
  expect(renderMarkdown(page, { width: 40, paint: plain })).toBe(expected);
});

const yaml = readdirSync('docs')
  .filter((file) => file.endsWith('.md'))
  .flatMap((file) => [...pageOf(file).matchAll(/^```yaml\n.*?^```$/gms)].map(([block]) => [file, block]));
it.each(yaml)(
  'mgw help prints the YAML of %s on a terminal in a form that remains valid when pasted',
  (_, block = '') => {
    const printed = renderMarkdown(block, { width: 80, paint: plain });
    expect(parse(printed)).toEqual(parse(block.replace(/^```.*$/gm, '')));
  },
);

it('mgw help prints a file that a topic links to, and a documentation page by its name', async () => {
  const files = topics.flatMap(({ page }) =>
    Array.from(pageOf(page).matchAll(/\]\(([^():#.][^():#]*)[^()]*\)/g), ([, file = '']) => file),
  );
  expect(files).toContain('kubernetes.yaml');
  expect(files).toContain('decisions/0014-ledger-on-postgresql.md');
  // With --json, the exit codes are printed as data.
  for (const file of files.filter((each) => each !== 'exit-codes.md')) {
    const { json } = await runHere(['help', file, '--json'], {});
    expect(json['help'], file).toBe(pageOf(file));
  }
  const manifest = await runHere(['help', 'kubernetes.yaml'], {});
  expect(manifest.stdout).toBe(pageOf('kubernetes.yaml'));
  const byItsName = await runHere(['help', 'platforms', '--json'], {});
  expect(byItsName.json['help']).toBe(pageOf('platforms.md'));
  const unknown = await runHere(['help', 'boats.md'], {});
  expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining('no page boats.md') as string });
});

it('mgw help offers all expected topics, and no others', () => {
  const topicNames =
    'exit-codes environment refs resuming output scripting batch fleet budgets sandbox agents';
  expect(topics.map(({ name }) => name).sort()).toEqual(topicNames.split(' ').sort());
});

it('mgw help exit-codes lists every exit code with its name', async () => {
  const { json } = await runHere(['help', 'exit-codes', '--json'], {});
  const codes = json['exit_codes'] as { code: number; name: string; charged: string }[];
  expect(Object.fromEntries(codes.map(({ code, name }) => [name, code]))).toEqual(exitCodes);
  expect(codes[7]).toMatchObject({ name: 'unknown', charged: 'maybe' });
});

it('mgw help prints the command tree as JSON, or the part for one command', async () => {
  const { json } = await runHere(['help', '--json'], {});
  expect(json).toMatchObject({ ok: true, command: { name: 'mgw' } });
  expect(json['exit_codes']).toHaveLength(Object.keys(exitCodes).length);
  expect(json['environment']).toContainEqual(expect.objectContaining({ variable: 'MGW_TIMEOUT' }));
  expect(json['global_flags']).toContainEqual(
    expect.objectContaining({ flag: '--profile', type: 'string', env: 'MGW_PROFILE' }),
  );
  const part = await runHere(['video', 'c', 'submit', '--help', '--json'], {});
  expect(part.json).toMatchObject({
    command: { name: 'mgw video c submit', arguments: [{ name: 'prompt', required: false }] },
  });
  const { flags } = part.json['command'] as { flags: unknown[] };
  expect(flags).toContainEqual(
    expect.objectContaining({ flag: '--timeout', type: 'duration', default: '30m', env: 'MGW_TIMEOUT' }),
  );
  expect(flags).toContainEqual(expect.objectContaining({ flag: '--set', repeatable: true }));
  const same = await runHere(['help', 'video', 'c', 'submit', '--json'], {});
  expect(same.json).toEqual(part.json);
});

it('mgw video submit --help-all prints each allowed value of a flag once, even if several protocols allow it', async () => {
  const { stdout } = await runHere(['video', 'submit', '--help-all'], {});
  expect(stdout).toMatch(/--image <file\|@job\|url>/);
});

it('mgw help treats a word as a command, not as the topic of the same name, if more words follow', async () => {
  expect((await runHere(['help', 'batch', 'run'], {})).stdout).toContain('Usage: mgw batch run');
});

it.each([
  [['vidoe'], 'video', 'mgw help video'],
  [['resumming'], 'resuming', 'mgw help resuming'],
  [['jobs', 'shwo'], 'show', 'mgw help jobs show'],
])('mgw help %j suggests %s', async (words, meant, next) => {
  const { stderr } = await runHere(['help', ...words], {});
  expect(stderr).toContain(`Did you mean ${meant}?`);
  expect(stderr).toMatch(new RegExp(`next: ${next}$`, 'm'));
});

it('the build writes a man page with every command and flag', async () => {
  const { stdout } = await runHere(['__man'], {});
  expect(stdout).toMatch(/^\.TH MGW 1 /);
  expect(stdout).toContain('.SS mgw video c submit [prompt]');
  expect(stdout).toContain('\\fB\\-m, \\-\\-model <name>\\fR');
});

it.each([[['jobs', 'ls']], [['video', 'submit']], [['video', 'c', 'submit']], [['jobs']]])(
  'the word help after a group prints the same help as before it: %j',
  async ([group = '', ...words]) => {
    const { stdout } = await runHere(['help', group, ...words], {});
    expect(await runHere([group, 'help', ...words], {})).toMatchObject({ code: 0, stdout });
  },
);
