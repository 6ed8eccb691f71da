import { expect, it } from 'vitest';
import type { PlannedRow } from '../../../src/batch/planned-row.ts';
import type { Plan } from '../../../src/batch/plan.ts';
import { nextOf, invalidRowsError } from '../../../src/cli/output/plan.ts';

it('a plan suggests the command that resolves a row in doubt, with the flags that select the ledger', () => {
  const row = { id: 'a', state: 'unknown', take: { number: 1, key: 'clips/a', job: { id: 'job_1' } } };
  const doubtful = row as PlannedRow;
  expect(nextOf(doubtful, { sandbox: true })?.join(' ')).toBe('mgw --sandbox jobs resolve job_1');
  expect(nextOf({ ...doubtful, state: 'running' }, {})).toBeUndefined();
});

it('a plan suggests the same command with --ignore-columns if unknown columns are the only error', () => {
  const problems = ['Owner', 'Shot Type'].map((column) => ({ line: 1, column, message: 'm' }));
  const plan = { bad: 2, rows: 2, problems } as unknown as Plan;
  const command = ['batch', 'run', 'a.csv', '-o', 'x/'];
  expect(invalidRowsError(plan, command).next).toEqual([
    'mgw',
    ...command,
    '--ignore-columns',
    'Owner,Shot Type',
  ]);
  const other = { ...plan, problems: [...problems, { line: 2, message: 'm' }] };
  expect(invalidRowsError(other, command).next).toEqual(['mgw', 'help', 'batch']);
});

it('a plan suggests a different output path if the outputs of all rows exist', () => {
  const problems = [{ line: 2, field: 'output', message: 'a.mp4 already exists; --force replaces it' }];
  const plan = { bad: 1, rows: 1, problems } as unknown as Plan;
  const command = ['batch', 'run', 'a.csv'];
  expect(invalidRowsError(plan, command).next).toEqual(['mgw', ...command, '-o', '{name}/{id}.{ext}']);
  expect(invalidRowsError(plan, [...command, '-o', 'x/']).next).toEqual(['mgw', 'help', 'batch']);
  expect(invalidRowsError({ ...plan, rows: 2 }, command).next).toEqual(['mgw', ...command, '--skip-bad']);
});

it.each([
  ['run', 'To skip invalid rows, use --skip-bad.'],
  ['plan', 'To skip invalid rows, run mgw batch run with --skip-bad.'],
])('the error of batch %s names a flag that a command has', (command, advice) => {
  const plan = { bad: 1, rows: 2, problems: [] } as unknown as Plan;
  expect(invalidRowsError(plan, ['batch', command, 'a.csv']).message).toBe(`1 row is invalid. ${advice}`);
});
