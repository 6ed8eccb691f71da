import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { fakeMp4 } from '../support/film.ts';
import { clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
});
afterEach(() => scene.gateway.close());

it('a batch row never replaces the only file of another row, even with --force', async () => {
  scene.gateway.videoOf = (prompt) => fakeMp4(5000 + prompt.length);
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a long boat']));
  const output = ['-o', scene.at('{index}.{ext}')];
  expect(await scene.batch('run', file, ...output)).toMatchObject({ code: 0 });
  const saved = readFileSync(scene.at('1.mp4'));
  scene.file('m.csv', clips(['c', 'the longest boat'], ['a', 'a boat'], ['b', 'a long boat']));
  const forced = await scene.read('run', file, ...output, '--force');
  expect(forced).toMatchObject({
    exit_code: 2,
    problems: [
      { line: 2, message: expect.stringContaining('1.mp4 is the file of the row a') as string },
      { line: 3, message: expect.stringContaining('2.mp4 is the file of the row b') as string },
    ],
  });
  expect(scene.gateway.posts()).toHaveLength(2);
  expect(await scene.read('run', file, ...output, '--force', '--skip-bad')).toMatchObject({
    exit_code: 11,
    batch: { bad: 2, states: { done: 1 } },
  });
  expect(readFileSync(scene.at('1.mp4'))).toEqual(saved);
  expect(scene.gateway.posts()).toHaveLength(2);
});

it('a rejected row whose content was corrected is sent by a run, and is not reported as paid for', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  scene.gateway.judge = (prompt) => (prompt === 'a cat' ? { kind: 'refuse' } : undefined);
  expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
  scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a kitten']));
  expect(await scene.read('plan', file)).toMatchObject({ batch: { states: { done: 1, new: 1 } } });
  const { code, stdout, stderr } = await scene.batch('run', file);
  expect({ code, stdout }).toEqual({ code: 0, stdout: `${scene.at('b.mp4')}\n` });
  expect(stderr).not.toContain('Already paid for');
  expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
  expect(Object.fromEntries(scene.gateway.charges)).toEqual({ 'a boat': 1, 'a kitten': 1 });
});
