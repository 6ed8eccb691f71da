import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { instrument, runtime } from './instrument.mjs';

/** The source files and folders that decide about money, including claims. */
export const moneyPath = [
  ...['flows', 'payment', 'budget', 'ledger'].map((folder) => `src/${folder}/`),
  ...['submit', 'create-or-resume', 'charge-outcome', 'remove'].map((name) => `src/jobs/${name}.ts`),
  'src/http/streamed-call.ts',
];

/** Returns the path of a test file's record in the copy, which lists the mutants that the file's tests reach. */
export function recordOf(file) {
  return `reached/${file.replaceAll('/', '+')}.json`;
}

const isOfTool = /^(scripts\/mutants\/(main|sample|tests|runner)\.mjs|test\/mutants\.md)$/;

// Replaces the build that precedes each test run, because the tree is built only once.
const noBuild = 'export default function setup(): void {}\n';

// Records the mutants that each test reaches, in its own process and in child processes. Concurrent tests, and code
// outside tests, are recorded together.
const recording = `
const reached = process.env['MGW_REACHED'];
if (reached) {
  const path = process.env['PATH'] ?? '';
  const recordAs = (name: string): void => {
    process.env['PATH'] = path.replace(/=$/, \`=\${reached}/\${name}\`);
    const { __mgwMutants: mutants } = globalThis as unknown as { __mgwMutants?: { log: string; seen: Set<string> } };
    if (mutants === undefined) return;
    mutants.log = \`\${reached}/\${name}\`;
    mutants.seen.clear();
  };
  recordAs('all');
  beforeEach(({ task }) => recordAs(task.concurrent ? 'all' : task.id));
  afterEach(() => recordAs('all'));
}
`;

/**
 * Copies the project into a folder, adds every mutant to the source, and builds the copy. An existing copy of the same
 * source is reused, with its test records.
 * @returns all mutants, each with its number
 */
export function makeTree(tree, note) {
  const names = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'])
    .toString()
    .split('\0')
    .filter((name) => statSync(name, { throwIfNoEntry: false })?.isFile() === true);
  const isTest = (name) => name.endsWith('.test.ts');
  const hashOf = (text) => createHash('sha256').update(text).digest('hex');
  const hashes = names
    .filter((each) => !isOfTool.test(each))
    .map((name) => [name, hashOf(readFileSync(name))]);
  const content = hashOf(JSON.stringify(hashes.filter(([name]) => !isTest(name))));
  const tests = Object.fromEntries(hashes.filter(([name]) => isTest(name)));
  const index = join(tree, 'mutants.json');
  const cached = existsSync(index) ? JSON.parse(readFileSync(index, 'utf8')) : undefined;
  if (cached?.content === content) {
    const changed = [...Object.keys(cached.tests), ...Object.keys(tests)].filter(
      (each) => cached.tests[each] !== tests[each],
    );
    for (const name of changed) {
      rmSync(join(tree, name), { force: true });
      rmSync(join(tree, recordOf(name)), { force: true });
      if (name in tests) cpSync(name, join(tree, name));
    }
    writeFileSync(index, JSON.stringify({ ...cached, tests }));
    return cached.mutants;
  }
  note('Building a copy that holds every mutant');
  rmSync(tree, { recursive: true, force: true });
  const mutants = [];
  for (const name of names.sort()) {
    const to = join(tree, name);
    mkdirSync(dirname(to), { recursive: true });
    cpSync(name, to);
    if (!name.endsWith('.ts') || !moneyPath.some((path) => name.startsWith(path))) continue;
    const instrumented = instrument(name, readFileSync(name, 'utf8'), mutants.length);
    mutants.push(...instrumented.mutants);
    writeFileSync(to, instrumented.text);
  }
  mutants.forEach((mutant, number) => (mutant.number = number));
  // Links the packages but not the caches, which other copies of the project also use.
  mkdirSync(join(tree, 'node_modules'));
  for (const name of readdirSync('node_modules'))
    if (name === '.bin' || !name.startsWith('.'))
      symlinkSync(resolve('node_modules', name), join(tree, 'node_modules', name));
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
  change(join(tree, 'test/support/each-file.ts'), 'import { afterEach }', 'import { afterEach, beforeEach }');
  // The simulated processes have neither the real environment nor the real files, so the simulation defines the
  // runtime.
  const imports = "import { readFileSync } from 'node:fs';";
  change(join(tree, 'test/simulation/program.ts'), imports, `${runtime}${imports}`);
  // Runs each test file in its own process, so the file also reaches code that runs when a module is loaded.
  change(join(tree, 'vitest.config.ts'), 'isolate: false', 'isolate: true');
  writeFileSync(index, JSON.stringify({ content, tests, mutants }));
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
