import { chmodSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it, test } from 'vitest';
import { localError } from '../../src/errors.ts';
import { makeFolder } from '../../src/files/make-folder.ts';
import { makeFoldersOf } from '../../src/jobs/fetch-place.ts';
import { canMount, mountDisk } from '../faults/disk.ts';
import { watchDisk } from '../support/disk-operations.ts';

let root: string;
beforeEach(() => (root = mkdtempSync(path.join(tmpdir(), 'mgw-folder-'))));
afterEach(() => rmSync(root, { recursive: true, force: true }));

const mode = (folder: string): number => statSync(folder).mode & 0o777;

it('makeFolder creates a folder and its parents with access only for their owner, even if called concurrently', async () => {
  const folder = path.join(root, 'a', 'b', 'c');
  await Promise.all(Array.from({ length: 20 }, () => makeFolder(folder)));
  expect([folder, path.dirname(folder)].map(mode)).toEqual([0o700, 0o700]);
});

it('makeFolder leaves an existing folder unchanged, even behind a link', async () => {
  chmodSync(root, 0o755);
  await makeFolder(root);
  expect(mode(root)).toBe(0o755);
  symlinkSync(root, path.join(root, 'link'));
  await makeFolder(path.join(root, 'link', 'inner'));
  expect(mode(path.join(root, 'inner'))).toBe(0o700);
});

it("makeFolder syncs the folder's name, even if the process that created the folder has died", async () => {
  const synced: unknown[] = [];
  await watchDisk(({ name, path: at }, run) => {
    if (name === 'sync') synced.push(at);
    return run();
  });
  const folder = path.join(root, 'a', 'b');
  await makeFolder(folder);
  expect(synced.splice(0)).toEqual([root, path.join(root, 'a')]);
  await makeFolder(folder);
  await watchDisk(undefined);
  expect(synced).toEqual([path.join(root, 'a')]);
});

it("makeFolder throws the system's error if the folder cannot be created", async () => {
  const file = path.join(root, 'file');
  writeFileSync(file, '');
  await expect(makeFolder(file)).rejects.toMatchObject({ code: 'EEXIST' });
  await expect(makeFolder(path.join(file, 'inner'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  await expect(makeFolder('/proc/nowhere/inner')).rejects.toMatchObject({ code: 'ENOENT' });
});

test.skipIf(!canMount)(
  'on a read-only file system, the error does not suggest creating a missing folder',
  async () => {
    const disk = mountDisk(path.join(root, 'disk'), 64);
    try {
      disk.readOnly();
      const output = path.join(root, 'disk', 'deep', 'er', 'a.mp4');
      const target = { kind: 'file', path: output } as const;
      const place = { kind: 'names', isFolder: true, place: { folder: '', template: '' } } as const;
      const missing = Object.assign(new Error('missing'), { code: 'ENOENT' });
      const errors = [
        await makeFoldersOf(place, target, 1).catch((error: unknown) => error),
        localError(missing, output, 'no'),
      ];
      for (const error of errors)
        expect(error).toMatchObject({
          message: expect.stringContaining('the file system is read-only') as string,
          next: undefined,
        });
    } finally {
      disk.unmount();
    }
  },
);
