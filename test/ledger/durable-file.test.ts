import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect, it } from 'vitest';
import { appendFile, createExclusively, createFile, replaceFile } from '../../src/ledger/durable-file.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk, type DiskOperation } from '../support/disk-operations.ts';
import { freshFolder } from '../support/servers.ts';

/** Returns the operations that `act` performs on the folder, in order, up to the moment when `act` returns. */
async function operationsOf(
  folder: string,
  act: (path: string) => Promise<unknown>,
  failure: (operation: DiskOperation) => string | false = () => false,
): Promise<string[]> {
  const seen: string[] = [];
  onEnd(() => watchDisk(undefined));
  await watchDisk((operation, run) => {
    const { name, path = '' } = operation;
    const code = failure(operation);
    if (code !== false) throw Object.assign(new Error(code), { code });
    const file = path === folder ? 'folder' : basename(path).replace(/\.[\w-]+\.tmp$/, '.tmp');
    const note = (): void => void seen.push(`${name} ${file}`);
    const result = run();
    if (!(result instanceof Promise)) note();
    return result instanceof Promise ? result.then(note) : result;
  });
  await act(join(folder, 'file'));
  await watchDisk(undefined);
  return seen;
}

// A power cut may lose everything that is not synced. The content must be synced before its name, and the name before
// the caller continues.
it.each<[string, (path: string) => Promise<unknown>, string[]]>([
  ['createFile', (path) => createFile(path, 'text'), ['open file', 'write file', 'sync file', 'sync folder']],
  [
    'createExclusively',
    (path) => createExclusively(path, 'text'),
    ['open file.tmp', 'write file.tmp', 'sync file.tmp', 'link file', 'unlink file.tmp', 'sync folder'],
  ],
  [
    'replaceFile',
    (path) => replaceFile(path, 'text'),
    ['open file.tmp', 'write file.tmp', 'sync file.tmp', 'rename file', 'sync folder'],
  ],
])('%s syncs the content before the name, and both before it returns', async (_, act, operations) => {
  expect(await operationsOf(freshFolder(), act)).toEqual(operations);
});

it.each(['EPERM', 'ENOTSUP', 'EINVAL', 'UNKNOWN'])(
  'createExclusively creates a file even if linking fails with %s, and never replaces another file',
  async (code) => {
    const folder = freshFolder();
    const create = async (path: string): Promise<void> => {
      expect(await createExclusively(path, 'one')).toBe(true);
      expect(await createExclusively(path, 'two')).toBe(false);
      expect(readFileSync(path, 'utf8')).toBe('one');
    };
    await operationsOf(folder, create, ({ name }) => (name === 'link' ? code : false));
  },
);

// The other process may die before it syncs a file that this process relies on.
it('createExclusively makes an existing file of another process durable', async () => {
  const folder = freshFolder();
  writeFileSync(join(folder, 'file'), 'text');
  const operations = await operationsOf(folder, async (path) => {
    expect(await createExclusively(path, 'other')).toBe(false);
  });
  expect(operations).toContain('sync folder');
});

it('appendFile syncs its data unless durability is not required', async () => {
  const folder = freshFolder();
  writeFileSync(join(folder, 'file'), 'a line\n');
  const append = (isDurable?: boolean): Promise<string[]> =>
    operationsOf(folder, (path) => appendFile(path, 'text\n', isDurable === undefined ? {} : { isDurable }));
  expect(await append()).toEqual(['open file', 'write file', 'sync file']);
  expect(await append(false)).toEqual(['open file', 'write file']);
});

it.each<[string, (path: string) => void]>([
  ['removed', (path) => rmSync(path)],
  ['replaced', (path) => renameSync(`${path}.new`, path)],
])('appendFile fails if the file is %s during the call', async (_, change) => {
  const path = join(freshFolder(), 'file');
  for (const each of [path, `${path}.new`]) writeFileSync(each, 'a line\n');
  onEnd(() => watchDisk(undefined));
  await watchDisk(({ name }, run) => {
    if (name === 'write') change(path);
    return run();
  });
  await expect(appendFile(path, 'text\n')).rejects.toMatchObject({ code: 'ENOENT' });
});

it('createExclusively creates a file once and durably, even if the disk has no hard links', async () => {
  const folder = freshFolder();
  const operations = await operationsOf(
    folder,
    async (path) => {
      expect(await createExclusively(path, 'text')).toBe(true);
      expect(await createExclusively(path, 'other')).toBe(false);
    },
    ({ name }) => name === 'link' && 'EPERM',
  );
  expect(readFileSync(join(folder, 'file'), 'utf8')).toBe('text');
  expect(operations.slice(3, 6)).toEqual(['open file', 'write file', 'sync file']);
  expect(operations.filter((each) => each === 'sync folder')).toHaveLength(2);
});

it('createFile without durability syncs nothing', async () => {
  const act = (path: string): Promise<void> => createFile(path, 'text', false);
  expect(await operationsOf(freshFolder(), act)).toEqual(['open file', 'write file']);
});
