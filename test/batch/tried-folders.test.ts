import { expect, test } from 'vitest';
import { TriedFolders } from '../../src/batch/tried-folders.ts';

test('a folder that took a file takes names as long for a second, and no other folder does', () => {
  let now = 0;
  const folders = new TriedFolders({ monotonic: () => now });
  expect(folders.has('/out/b.mp4')).toBe(false);
  folders.add('/out/b.mp4');
  now = 999;
  expect(['/out/c.mp4', '/out/cc.mp4', '/out/é.mp4', '/in/c.mp4'].map((path) => folders.has(path))).toEqual([
    true,
    false,
    false,
    false,
  ]);
  now = 1000;
  expect(folders.has('/out/c.mp4')).toBe(false);
});
