import { existsSync, readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { fakeMp4 } from '../support/film.ts';
import { runHereAs } from '../support/one-process.ts';
import { clips, openScene, type Scene, shortWait } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
});
afterEach(() => scene.gateway.close());

const refused = new Set<string>();
beforeEach(() => {
  refused.clear();
  scene.gateway.judge = (prompt) => (refused.has(prompt) ? { kind: 'refuse' } : undefined);
});

const charges = (): unknown => Object.fromEntries(scene.gateway.charges);

/** Writes the manifest with the given prompt in row a. */
const write = (prompt: string): string => scene.file('m.csv', clips(['a', prompt], ['b', 'a cat']));

const outcome = async (...args: string[]): Promise<unknown> => {
  const { exit_code, batch } = await scene.read(...args);
  return [exit_code, Object.fromEntries(Object.entries(batch.states).filter(([, count]) => count > 0))];
};

it('a paid row whose changed content was refused is done once its content is reverted, and changed once it is corrected', async () => {
  const file = write('a boat');
  expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  refused.add('bad');
  write('bad');
  expect(await outcome('retry', file, '--changed')).toEqual([11, { rejected: 1 }]);
  expect(await outcome('status', file)).toEqual([11, { changed: 1, done: 1 }]);
  const sent = scene.gateway.posts().length;
  write('a boat');
  for (const command of ['plan', 'run', 'status'])
    expect(await outcome(command, file)).toEqual([0, { done: 2 }]);
  expect(await outcome('retry', file, '--changed')).toEqual([0, {}]);
  expect(scene.gateway.posts()).toHaveLength(sent);

  const paid = readFileSync(scene.at('a.mp4'));
  write('a ship');
  scene.gateway.video = fakeMp4(5000);
  expect(await outcome('run', file)).toEqual([11, { changed: 1, done: 1 }]);
  const retried = { code: 0, stdout: `${scene.at('a.3.mp4')}\n` };
  expect(await scene.batch('retry', file, '--changed')).toMatchObject(retried);
  expect(readFileSync(scene.at('a.mp4'))).toEqual(paid);
  expect(await outcome('run', file)).toEqual([0, { done: 2 }]);
  expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a ship': 1 });
});

it('a refused retake leaves the row done, and only a retry continues the retake', async () => {
  const file = write('a boat');
  expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  refused.add('a boat');
  const retry = ['retry', file, '--id', 'a'];
  const { rows } = await scene.read(...retry);
  expect(rows).toMatchObject([
    { id: 'a', state: 'rejected', next: expect.arrayContaining(['retry', '--id', 'a']) as unknown },
  ]);
  refused.clear();
  expect(await outcome('status', file)).toEqual([0, { done: 2 }]);
  expect(await outcome('run', file)).toEqual([0, { done: 2 }]);
  expect((await runHereAs(scene.user, ['jobs', 'show', '@m/a'])).stdout).toContain('succeeded');
  const listed = await runHereAs(scene.user, ['batch', 'ls', '--json']);
  expect(listed.json['batches']).toMatchObject([{ states: { succeeded: 2 } }]);
  expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });

  expect(await scene.batch(...retry)).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
  const { json } = await runHereAs(scene.user, ['jobs', 'ls', '--json']);
  expect((json as unknown as { jobs: unknown[] }).jobs).toHaveLength(3);
  expect(await outcome('run', file)).toEqual([0, { done: 2 }]);
  expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1 });
});

it('a retake that was refused, and then replaced its file with --force, is not saved a second time', async () => {
  const file = write('a boat');
  expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  refused.add('a boat');
  const retry = ['retry', file, '--id', 'a'];
  expect(await scene.batch(...retry)).toMatchObject({ code: 11 });
  refused.clear();
  expect(await scene.batch(...retry, '--force')).toMatchObject({ code: 0, stdout: `${scene.at('a.mp4')}\n` });
  expect(await outcome('run', file)).toEqual([0, { done: 2 }]);
  expect(existsSync(scene.at('a.2.mp4'))).toBe(false);
});

it('a row that was never sent and then corrected is new, and only its new content is paid for', async () => {
  const file = write('wrong');
  scene.gateway.judge = () => ({ kind: 'limit' });
  expect(await outcome('run', file, '--retries', '0', '--concurrency', '1')).toEqual([11, { new: 2 }]);
  scene.gateway.judge = () => undefined;
  write('right');
  expect(await outcome('plan', file)).toEqual([0, { new: 2 }]);
  for (const flag of ['--failed', '--stale'])
    expect(await scene.batch('retry', file, flag)).toMatchObject({ code: 0 });
  expect(charges()).toEqual({});
  expect(await outcome('run', file)).toEqual([0, { done: 2 }]);
  expect(charges()).toEqual({ right: 1, 'a cat': 1 });
});

it.each([true, false])(
  'a run saves a second take next to the first take in another folder (the take is finished: %s)',
  async (isFinished) => {
    const file = write('a boat');
    const run = async (command: string, folder: string, ...args: string[]): Promise<[number, string]> => {
      const output = ['-o', scene.at(`${folder}/{id}.{ext}`)];
      const { code, stdout } = await scene.batch(command, file, ...output, ...args);
      return [code, stdout.replaceAll(`${scene.user.cwd}/`, '')];
    };
    for (const folder of ['one', 'two']) expect((await run('run', folder))[0]).toBe(0);
    const earlier = readFileSync(scene.at('one/a.mp4'));
    scene.gateway.video = fakeMp4(5000);
    scene.gateway.polls = isFinished ? 0 : Infinity;
    expect((await run('retry', 'two', '--id', 'a', ...shortWait))[0]).toBe(isFinished ? 0 : 11);
    scene.gateway.polls = 0;
    expect(await run('run', 'one')).toEqual([0, 'one/a.2.mp4\n']);
    expect(readFileSync(scene.at('one/a.mp4'))).toEqual(earlier);
    expect(await run('run', 'one')).toEqual([0, '']);
    expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1 });
  },
);
