import { readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { budgetPath } from '../../src/budget/file-budget.ts';
import { runHereAs } from '../support/one-process.ts';
import { type BatchJson, clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
  await runHereAs(scene.user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
});
afterEach(() => scene.gateway.close());

const charges = (): Record<string, number> => Object.fromEntries(scene.gateway.charges);

it('a retry of failed rows, stopped by its budget, suggests only the rows that it did not pay for', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog'], ['d', 'a fox']));
  scene.gateway.judge = (prompt) => (prompt === 'a fox' ? undefined : { kind: 'doom' });
  await scene.batch('run', file, '--budget', '9');
  const retry = ['retry', file, '--failed', '--budget', '5', '--concurrency', '1'] as const;
  const { stderr, json } = await scene.batch(...retry, '--json');
  const { exit_code, error, rows } = json as unknown as BatchJson;
  expect({ exit_code, error }).toMatchObject({
    exit_code: 12,
    error: {
      charged: 'yes',
      retry: 'never',
      message: expect.stringMatching(
        /rest of this retry: --budget 7\..*To run only the other rows, use --id/,
      ) as string,
      next: expect.arrayContaining(['retry', '--budget', '7', '--id', 'b', 'c']) as string[],
    },
  });
  expect(error?.next.filter((word) => ['a', '--failed', 'd'].includes(word))).toEqual([]);
  expect(stderr).not.toContain('--failed');
  expect(rows.find(({ id }) => id === 'b')?.next.join(' ')).toMatch(/--budget 7 .*--id b/);
  scene.gateway.judge = () => undefined;
  expect(await runHereAs(scene.user, error?.next.slice(1) ?? [])).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 2, 'a cat': 2, 'a dog': 2, 'a fox': 1 });
});

it('a retry stopped by its budget suggests the same command if that pays for no row again', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
  scene.gateway.judge = () => ({ kind: 'doom' });
  await scene.batch('run', file, '--budget', '9');
  scene.gateway.judge = () => undefined;
  const retry = ['retry', file, '--failed', '--budget', '4', '--concurrency', '1'] as const;
  const { error } = await scene.read(...retry);
  expect(error).toMatchObject({
    message: expect.stringContaining('does not pay for those rows again') as string,
    next: expect.arrayContaining(['retry', '--failed', '--budget', '6']) as string[],
  });
  expect(error?.next).not.toContain('--id');
  expect(await runHereAs(scene.user, error?.next.slice(1) ?? [])).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 2, 'a cat': 2, 'a dog': 2 });
});

it('a run with a budget but without a price suggests only the command that sets the price', async () => {
  await runHereAs(scene.user, ['config', 'unset', 'prices.c.vendor-h3-mini']);
  const { stderr, json } = await scene.batch(
    'run',
    scene.file('m.csv', clips(['a', 'a boat'])),
    '--budget',
    '5',
    '--json',
  );
  const { error, rows } = json as unknown as BatchJson;
  expect(error?.next.join(' ')).toMatch(/^mgw config set prices.c.vendor-h3-mini /);
  expect(rows[0]?.next).toEqual(error?.next);
  expect(stderr).not.toContain('→');
});

it('a damaged budget is reported once, and no row is started', async () => {
  const rows = [
    ['a', 'a boat'],
    ['b', 'a cat'],
    ['c', 'a dog'],
  ] as [string, string][];
  const file = scene.file('m.csv', clips(...rows.slice(0, 1)));
  await scene.batch('run', file, '--budget', '9');
  const budget = budgetPath(scene.user.env['MGW_STATE_DIR'] ?? '', 'batch', 'm');
  writeFileSync(budget, readFileSync(budget, 'utf8').replace('"amount":"1', '"amount":"7'));
  scene.file('m.csv', clips(...rows));
  const { code, stderr } = await scene.batch('run', file, '--budget', '9');
  expect([code, stderr.match(/budget file/g)]).toEqual([10, ['budget file']]);
  expect(charges()).toEqual({ 'a boat': 1 });
});

it('a retry by id suggests a budget for all its rows, and for no other row of the batch', async () => {
  const rows = ['a', 'b', 'c'].map((id): [string, string] => [id, `boat ${id}`]);
  const file = scene.file('m.csv', clips(...rows));
  await scene.batch('run', file, '--budget', '9');
  scene.file('m.csv', clips(...rows, ['d', 'boat d'], ['e', 'boat e']));
  const ids = ['--id', 'a', '--id', 'b', '--id', 'c'];
  const { exit_code, error } = await scene.read('retry', file, ...ids, '--budget', '3');
  expect({ exit_code, error }).toMatchObject({
    exit_code: 12,
    error: {
      message: expect.stringContaining('--budget 6.') as string,
      next: expect.arrayContaining([...ids, '--budget', '6']) as string[],
    },
  });
  expect(await runHereAs(scene.user, error?.next.slice(1) ?? [])).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'boat a': 2, 'boat b': 2, 'boat c': 2 });
});

it('a retry by id that its budget stopped says that it pays again for a row whose result is gone', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  scene.gateway.judge = () => void scene.gateway.gone.add('task-1');
  const retry = ['retry', file, '--id', 'a', '--id', 'b', '--budget', '1', '--concurrency', '1'] as const;
  const { error, rows } = await scene.read(...retry);
  expect(error).toMatchObject({
    retry: 'never',
    message: expect.stringContaining(
      'pays for those rows again. To run only the other rows, use --id.',
    ) as string,
    next: expect.arrayContaining(['retry', '--budget', '2', '--id', 'b']) as string[],
  });
  expect(error?.next).not.toContain('a');
  const next = rows.find(({ id }) => id === 'a')?.next ?? [];
  for (const command of [error?.next ?? [], next])
    expect(await runHereAs(scene.user, command.slice(1)), command.join(' ')).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1 });
});
