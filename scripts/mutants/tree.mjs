import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { instrument } from './instrument.mjs';

/** The source that decides about money. */
export const moneyPath = /^src\/(flows|payment|budget|ledger)\/.*\.ts$/;

const isOfTool = /^(scripts\/mutants\/(main|sample)\.mjs|test\/mutants\.md)$/;

// Builds the tree once, and not before each run.
const noBuild = 'export default function setup(): void {}\n';

// Records which mutants each test file reaches, in its own process and in those that it starts.
const recording = `
const reached = process.env['MGW_REACHED'];
if (reached !== undefined) {
  const { filepath } = (globalThis as unknown as { __vitest_worker__: { filepath: string } }).__vitest_worker__;
  const name = filepath.slice(process.cwd().length + 1).replaceAll('/', '+');
  process.env['PATH'] += \`:mgw-mutant=-1=\${reached}/\${name}\`;
}
`;

/**
 * Copies the project into a folder, with every mutant in its source, and builds it there. A copy of the same content is used again.
 * @returns all mutants, each with its number
 */
export function makeTree(tree, note) {
  const names = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'])
    .toString()
    .split('\0')
    .filter((name) => statSync(name, { throwIfNoEntry: false })?.isFile() === true);
  const hash = createHash('sha256');
  for (const name of names.filter((each) => !isOfTool.test(each)))
    hash.update(`${name}\0`).update(readFileSync(name));
  const content = hash.digest('hex');
  const index = join(tree, 'mutants.json');
  if (existsSync(index)) {
    const made = JSON.parse(readFileSync(index, 'utf8'));
    if (made.content === content) return made.mutants;
  }
  note('Building a copy that holds every mutant');
  rmSync(tree, { recursive: true, force: true });
  const mutants = [];
  for (const name of names.sort()) {
    const to = join(tree, name);
    mkdirSync(dirname(to), { recursive: true });
    cpSync(name, to);
    if (!moneyPath.test(name)) continue;
    const made = instrument(name, readFileSync(name, 'utf8'), mutants.length);
    mutants.push(...made.mutants);
    writeFileSync(to, made.text);
  }
  mutants.forEach((mutant, number) => (mutant.number = number));
  symlinkSync(resolve('node_modules'), join(tree, 'node_modules'));
  execFileSync(
    process.execPath,
    ['node_modules/rolldown/bin/cli.mjs', '-c', 'scripts/build/rolldown.config.mjs', '--log-level', 'warn'],
    { cwd: tree, stdio: ['ignore', 'ignore', 'inherit'] },
  );
  writeFileSync(join(tree, 'test/support/build.ts'), noBuild);
  change(
    join(tree, 'test/support/each-file.ts'),
    'await openLauncher();',
    `${recording}\nawait openLauncher();`,
  );
  // Each test file gets a process of its own, so that it sees what a module does when it is loaded.
  change(join(tree, 'vitest.config.ts'), 'isolate: false', 'isolate: true');
  writeFileSync(index, JSON.stringify({ content, mutants }));
  return mutants;
}

function change(path, from, to) {
  const text = readFileSync(path, 'utf8');
  if (!text.includes(from)) throw new Error(`${path} no longer contains: ${from}`);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
}
