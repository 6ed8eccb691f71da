import fs, {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import {
  appendFile,
  beforeEachStep,
  createExclusively,
  createFile,
  readBytes,
  readTail,
  replaceFile,
  type AppendOptions,
} from '../../src/ledger/durable-file.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk, type DiskOperation } from '../support/disk-operations.ts';
import { freshFolder } from '../support/servers.ts';

let folder: string;
let path: string;

beforeEach(() => {
  folder = freshFolder();
  path = join(folder, 'file');
});

const text = (): string => readFileSync(path, 'utf8');
const broken = (code: string): Error => Object.assign(new Error(code), { code });

/** Makes the first operation with the given name fail with `code`. */
async function failAt(name: DiskOperation['name'], code: string): Promise<void> {
  let isOver = false;
  onEnd(() => watchDisk(undefined));
  await watchDisk((operation, run) => {
    if (isOver || operation.name !== name) return run();
    isOver = true;
    throw broken(code);
  });
}

describe('an appended line', () => {
  it.each<[string, AppendOptions, string, string]>([
    [
      'is written again if it continues a line that another process tore in the meantime',
      {},
      'on',
      'one\nontwo\ntwo\n',
    ],
    [
      'is written once after a complete line that another process wrote in the meantime',
      {},
      'on\n',
      'one\non\ntwo\n',
    ],
    ['is written once if a torn line before it must remain unchanged', { tornEnd: '' }, 'on', 'one\nontwo\n'],
  ])('%s', async (_, options, other, after) => {
    writeFileSync(path, 'one\n');
    onEnd(() => watchDisk(undefined));
    await watchDisk((operation, run) => {
      if (operation.name === 'write' && text() === 'one\n') appendFileSync(path, other);
      return run();
    });
    await appendFile(path, 'two\n', options);
    expect(text()).toBe(after);
  });

  it.each<[string, string, AppendOptions, string]>([
    ['to a complete line', 'one\n', {}, 'one\ntwo\n'],
    ['to an empty file', '', {}, 'two\n'],
    ['to a torn line', 'on', {}, 'on\ntwo\n'],
    ['to a torn line with a terminator', 'on', { tornEnd: '!\n' }, 'on!\ntwo\n'],
    ['to a torn line that must remain unchanged', 'on', { tornEnd: '' }, 'ontwo\n'],
    ['to a line that is known to be complete', 'on', { isComplete: () => true }, 'ontwo\n'],
    ['to a line that is not known to be complete', 'on', { isComplete: () => false }, 'on\ntwo\n'],
  ])('is added correctly %s', async (_, before, options, after) => {
    writeFileSync(path, before);
    const sizes = await appendFile(path, 'two\n', options);
    expect([text(), sizes.before.size, sizes.after.size]).toEqual([after, before.length, after.length]);
  });

  it('causes an error if the file is missing, unless the file may be created', async () => {
    await expect(appendFile(path, 'one\n')).rejects.toMatchObject({ code: 'ENOENT' });
    await appendFile(path, 'one\n', { creates: true });
    expect([text(), statSync(path).mode & 0o777]).toEqual(['one\n', 0o600]);
  });

  it('causes an error if the path is a folder, a device or a link', async () => {
    mkdirSync(path);
    await expect(appendFile(path, 'x')).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(appendFile('/dev/null', 'x', { isDurable: false })).rejects.toMatchObject({
      code: 'EINVAL',
    });
    symlinkSync('/dev/null', join(folder, 'link'));
    await expect(appendFile(join(folder, 'link'), 'x')).rejects.toMatchObject({ code: 'ELOOP' });
  });

  it('causes an error if only part of it is written', async () => {
    writeFileSync(path, '');
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, half }, run) => (name === 'write' && half ? half() : run()));
    await expect(appendFile(path, 'one\n')).rejects.toMatchObject({ code: 'ENOSPC' });
  });
});

it.skipIf(process.platform !== 'linux')(
  'a file is closed once it has been created, changed or read',
  async () => {
    await createFile(path, 'one\n');
    await appendFile(path, 'two\n');
    expect(readBytes(path)?.length).toBe(8);
    const { ino } = statSync(path);
    const isOpen = (fd: string): boolean =>
      statSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false })?.ino === ino;
    expect(readdirSync('/proc/self/fd').filter(isOpen)).toEqual([]);
  },
);

it('reading a file that is truncated during the read returns the remaining bytes', () => {
  writeFileSync(path, 'one two');
  const room = (bytes: number): Buffer => {
    truncateSync(path, 3);
    return Buffer.alloc(bytes);
  };
  expect(readTail(path, () => 0, room)?.tail.toString()).toBe('one');
});

it('reading from an offset returns the bytes after the offset, undefined for a missing file, and no bytes for a folder', () => {
  writeFileSync(path, 'one two');
  expect(readTail(path, () => 4)?.tail.toString()).toBe('two');
  expect(readTail(path, ({ size }) => size + 3)?.tail.length).toBe(0);
  expect(readBytes(path)?.toString()).toBe('one two');
  expect(readBytes(join(folder, 'other'))).toBeUndefined();
  expect(readBytes(folder)?.length).toBe(0);
  symlinkSync(path, join(folder, 'link'));
  expect(() => readBytes(join(folder, 'link'))).toThrow(expect.objectContaining({ code: 'ELOOP' }));
});

it('a file that is removed immediately before it is opened is read as a missing file', () => {
  const looked = vi.spyOn(fs, 'lstatSync').mockReturnValueOnce(statSync(folder));
  syncBuiltinESMExports();
  onEnd(() => {
    looked.mockRestore();
    syncBuiltinESMExports();
  });
  expect(readBytes(path)).toBeUndefined();
  expect(looked).toHaveBeenCalledOnce();
});

describe('a created file', () => {
  it('does not exist if its content could not be written or its folder could not be synced', async () => {
    await failAt('write', 'EIO');
    await expect(createFile(path, 'one')).rejects.toMatchObject({ code: 'EIO' });
    expect(readdirSync(folder)).toEqual([]);
    await failAt('link', 'EIO');
    await expect(createExclusively(path, 'one')).rejects.toMatchObject({ code: 'EIO' });
    expect(readdirSync(folder)).toEqual([]);
    let syncs = 0;
    await watchDisk(({ name }, run) => {
      if (name === 'sync' && (syncs += 1) === 2) throw broken('EIO');
      return run();
    });
    await expect(createExclusively(path, 'one')).rejects.toMatchObject({ code: 'EIO' });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('is never replaced by creating it again, and a failed replacement does not change it', async () => {
    await createFile(path, 'one');
    await expect(createFile(path, 'two')).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await createExclusively(path, 'two')).toBe(false);
    expect(text()).toBe('one');
    await replaceFile(path, 'two');
    expect(text()).toBe('two');
    await failAt('rename', 'EIO');
    await expect(replaceFile(path, 'three')).rejects.toMatchObject({ code: 'EIO' });
    expect([text(), readdirSync(folder)]).toEqual(['two', ['file']]);
  });

  it.each(['EIO', 'EEXIST'])(
    'is reported as created if its link exists although the call failed with %s',
    async (code) => {
      onEnd(() => watchDisk(undefined));
      await watchDisk(({ name }, run) => {
        if (name !== 'link') return run();
        run();
        throw broken(code);
      });
      expect(await createExclusively(path, 'one')).toBe(true);
      expect([text(), readdirSync(folder)]).toEqual(['one', ['file']]);
    },
  );
});

it('beforeEachStep runs a function before each change to the disk', async () => {
  const steps: string[] = [];
  beforeEachStep((change, at) => void steps.push(`${change} ${at === path}`));
  onEnd(() => beforeEachStep(undefined));
  await createFile(path, 'one\n');
  await appendFile(path, 'two\n');
  await createExclusively(path, 'x');
  await replaceFile(path, 'x');
  expect(steps).toEqual([
    'write true',
    'append true',
    'write false',
    'link true',
    'write false',
    'rename true',
  ]);
});
