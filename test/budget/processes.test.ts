import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'rolldown';
import { beforeAll, expect, it } from 'vitest';
import { freshFolder } from '../support/fresh-folder.ts';

/** Reserves 1 of 100 thirty times; what fits is noted in a file of its own, as if it had been sent. */
const program = `
  import { appendFileSync } from 'node:fs';
  import { FileBudget, openBudgetLog, decimalOf } from './budget.mjs';
  const [, , path, notes] = process.argv;
  const outcomeOf = () => Promise.resolve('open');
  const budget = new FileBudget({ log: await openBudgetLog(path), now: () => Date.now(), outcomeOf });
  const limit = { amount: decimalOf(100) };
  for (let count = 0; count < 30; count += 1) {
    const id = process.pid + '.' + count;
    const { fits } = await budget.reserve({ id, amount: decimalOf(1), owner: { pid: process.pid, start: '', host: '' } }, limit);
    if (fits) appendFileSync(notes, id + '\\n');
    process.send?.(fits);
  }
  process.disconnect?.();
`;

let folder: string;

beforeAll(async () => {
  folder = freshFolder();
  const entry = join(folder, 'entry.ts');
  const sources = ['budget/file-budget', 'budget/budget-log', 'decimal'].map(
    (name) => `export * from '${process.cwd()}/src/${name}.ts';`,
  );
  writeFileSync(entry, sources.join('\n'));
  await build({
    input: entry,
    platform: 'node',
    external: [/^node:/],
    output: { file: join(folder, 'budget.mjs'), format: 'esm' },
    logLevel: 'silent',
  });
  writeFileSync(join(folder, 'program.mjs'), program);
});

/** Runs five processes; some are killed after as many answers. Gives what they spent. */
async function spend(name: string, killedAfter: readonly number[]): Promise<string[]> {
  const notes = join(folder, name);
  mkdirSync(notes);
  const runs = Array.from({ length: 5 }, (_, index) => {
    const args = [join(folder, 'program.mjs'), join(notes, 'budget.jsonl'), join(notes, `${index}.txt`)];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    let answers = 0;
    child.on('message', () => {
      answers += 1;
      if (answers === killedAfter[index]) child.kill('SIGKILL');
    });
    return new Promise((resolve) => child.once('close', resolve));
  });
  await Promise.all(runs);
  return readdirSync(notes)
    .filter((file) => file.endsWith('.txt'))
    .flatMap((file) => readFileSync(join(notes, file), 'utf8').trim().split('\n'));
}

it('five processes spend a budget of 100 to the last unit', async () => {
  const spent = await spend('calm', []);
  expect(new Set(spent).size).toBe(100);
});

it('and never more, though some of them are killed', async () => {
  const spent = await spend('killed', [2, 5]);
  // Of each killed process at most one reservation is held that nobody used.
  expect(spent.length).toBeLessThanOrEqual(100);
  expect(spent.length).toBeGreaterThanOrEqual(95);
});
