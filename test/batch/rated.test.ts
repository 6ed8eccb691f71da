import { existsSync, renameSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { runHereAs } from '../support/one-process.ts';
import { clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
});
afterEach(() => scene.gateway.close());

it('batch retry --rated pays once for a new take of each low-rated row, and keeps the earlier take', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a kite']));
  expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  await runHereAs(scene.user, ['jobs', 'rate', '@m/a', '2', '--note', 'too flat']);
  await runHereAs(scene.user, ['jobs', 'rate', '@m/b', '3']);
  const retry = ['retry', file, '--rated', '2'];
  expect(await scene.batch(...retry)).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
  for (const again of [retry, ['run', file], ['status', file, '-o', scene.at('{id}.{ext}')]])
    expect(await scene.batch(...again)).toMatchObject({ code: 0 });
  expect(Object.fromEntries(scene.gateway.charges)).toEqual({ 'a boat': 2, 'a cat': 1, 'a kite': 1 });
  expect(existsSync(scene.at('a.mp4'))).toBe(true);

  // The file was moved after it was rated.
  renameSync(scene.at('a.2.mp4'), scene.at('flat.mp4'));
  await runHereAs(scene.user, ['jobs', 'rate', '@m/a', '1']);
  expect(await scene.batch(...retry)).toMatchObject({ code: 0, stdout: `${scene.at('a.3.mp4')}\n` });
  expect(await scene.batch('status', file, '-o', scene.at('{id}.{ext}'))).toMatchObject({ code: 0 });
});
