import { closeSync, openSync, rmSync, writeFileSync } from 'node:fs';
import type * as FileSystem from 'node:fs';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
  truncate,
  utimes,
  writeFile,
  link,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { HashedFile } from '../../src/files/hashed-file.ts';
import { checkOutput, publish } from '../../src/files/publish.ts';
import type { SealedFile } from '../../src/files/whole-file.ts';

const disk = vi.hoisted(() => ({
  link: undefined as string | undefined,
  rename: undefined as string | undefined,
  rm: undefined as string | undefined,
  /** The operations so far, in order. */
  done: [] as string[],
  /** Called before each link, rename and removal. */
  before: undefined as (() => void) | undefined,
}));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof FileSystem>();
  const failing =
    <A extends unknown[]>(name: 'link' | 'rename' | 'rm', act: (...args: A) => void) =>
    (...args: A): void => {
      const code = disk[name];
      if (code !== undefined) throw Object.assign(new Error(code), { code });
      disk.before?.();
      act(...args);
      disk.done.push(name);
    };
  const fsync = (file: number, ended: FileSystem.NoParamCallback): void =>
    real.fsync(file, (error) => {
      disk.done.push(real.fstatSync(file).isDirectory() ? 'sync folder' : 'sync');
      ended(error);
    });
  return {
    ...real,
    fsync,
    linkSync: failing('link', real.linkSync),
    renameSync: failing('rename', real.renameSync),
    unlinkSync: failing('rm', real.unlinkSync),
  };
});

let folder: string;
let part: SealedFile;
let target: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mgw-publish-'));
  target = join(folder, 'film.mp4');
  part = await sealed(`${target}.part`, 'new');
});
afterEach(async () => {
  Object.assign(disk, { link: undefined, rename: undefined, rm: undefined, before: undefined, done: [] });
  await rm(folder, { recursive: true });
});

async function sealed(path: string, text: string): Promise<SealedFile> {
  const file = new HashedFile(path, openSync(path, 'wx+'));
  await file.write([Buffer.from(text)]);
  return file.seal().finally(() => file.close());
}

const existing = { code: 'output_exists', exitCode: 10, charged: 'yes' };
const once = { force: false };
const force = { force: true };

const checked = (...args: Parameters<typeof checkOutput>): Promise<void> =>
  Promise.resolve().then(() => checkOutput(...args));

describe('publish', () => {
  it.each([once, force])('gives the temporary file its final name (%o)', async (options) => {
    await publish(part, target, options);
    expect(await readdir(folder)).toEqual(['film.mp4']);
    expect(await readFile(target, 'utf8')).toBe('new');
  });

  it('never replaces an existing file', async () => {
    await writeFile(target, 'old');
    await expect(publish(part, target, once)).rejects.toMatchObject({
      ...existing,
      message: expect.stringContaining('--force') as string,
    });
    expect(await readFile(target, 'utf8')).toBe('old');
    expect(await readFile(part.path, 'utf8')).toBe('new');
  });

  it('replaces a file with force', async () => {
    await writeFile(target, 'old');
    await publish(part, target, force);
    expect(await readFile(target, 'utf8')).toBe('new');
    expect(await readdir(folder)).toEqual(['film.mp4']);
  });

  it("replaces a link with force, and does not change the link's target", async () => {
    const other = join(folder, 'other');
    await writeFile(other, 'other');
    await symlink(other, target);
    await expect(publish(part, target, once)).rejects.toMatchObject(existing);
    expect(await readlink(target)).toBe(other);
    await publish(part, target, force);
    expect((await lstat(target)).isFile()).toBe(true);
    expect(await readFile(other, 'utf8')).toBe('other');
  });

  it.each([once, force])('never replaces a folder (%o)', async (options) => {
    await mkdir(target);
    await expect(publish(part, target, options)).rejects.toMatchObject(existing);
    expect(await readFile(part.path, 'utf8')).toBe('new');
  });

  it('includes in its errors what the caller knows about the charge', async () => {
    await writeFile(target, 'old');
    await expect(publish(part, target, { force: false, charged: 'maybe' })).rejects.toMatchObject({
      charged: 'maybe',
    });
  });

  it.each([once, force])(
    'completes a publication that a crash interrupted between its steps (%o)',
    async (options) => {
      await link(part.path, target);
      await publish(part, target, options);
      expect(await readdir(folder)).toEqual(['film.mp4']);
      expect(await readFile(target, 'utf8')).toBe('new');
    },
  );

  it.each([
    ['was overwritten', async () => writeFile(part.path, 'NEW')],
    ['was truncated', async () => truncate(part.path, 1)],
    [
      'was replaced',
      async () => {
        await rm(part.path);
        await writeFile(part.path, 'NEW');
      },
    ],
    [
      'became a link',
      async () => {
        await rename(part.path, join(folder, 'elsewhere'));
        await symlink(join(folder, 'elsewhere'), part.path);
      },
    ],
    ['was removed', async () => rm(part.path)],
  ])('publishes nothing if the temporary file %s after it was completed', async (_, change) => {
    await change();
    for (const options of [once, force])
      await expect(publish(part, target, options)).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
    await expect(lstat(target)).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it.each([
    [once, 'link'],
    [force, 'rename'],
  ])(
    'syncs the folder after the file has its name and before the temporary file is removed (%o)',
    async (options, put) => {
      disk.done = [];
      await publish(part, target, options);
      expect(disk.done.slice(0, 2)).toEqual([put, 'sync folder']);
    },
  );

  it.each([once, force])(
    'publishes nothing if another file replaces the temporary file at the last moment (%o)',
    async (options) => {
      disk.before = () => {
        disk.before = undefined;
        rmSync(part.path);
        writeFileSync(part.path, 'bad');
      };
      await expect(publish(part, target, options)).rejects.toMatchObject({ code: 'local_io' });
      await expect(lstat(target)).rejects.toMatchObject({ code: 'ENOENT' });
    },
  );

  it("compares the content if the file system has changed the file's inode number", async () => {
    await utimes(part.path, 1, 1);
    await publish(part, target, once);
    expect(await readdir(folder)).toEqual(['film.mp4']);
  });

  it('accepts an identical file, regardless of its writer', async () => {
    await writeFile(target, 'new');
    await publish(part, target, once);
    expect(await readdir(folder)).toEqual(['film.mp4']);
    await publish(part, target, once);
  });

  it('replaces an empty file only if an earlier run had started to publish under its name', async () => {
    await writeFile(target, '');
    await expect(publish(part, target, once)).rejects.toMatchObject(existing);
    await publish(part, target, { force: false, isBegun: true });
    expect(await readFile(target, 'utf8')).toBe('new');
    expect(await readdir(folder)).toEqual(['film.mp4']);
    const other = await sealed(`${target}.2.part`, 'other');
    await expect(publish(other, target, { force: false, isBegun: true })).rejects.toMatchObject(existing);
  });

  it.each([undefined, 'EPERM'])(
    'succeeds in exactly one of many processes (links fail with %s)',
    async (code) => {
      disk.link = code;
      const parts = await Promise.all(
        Array.from({ length: 20 }, (_, at) => sealed(join(folder, `${at}.part`), `content ${at}`)),
      );
      const ends = await Promise.allSettled(parts.map((each) => publish(each, target, once)));
      const winners = ends.flatMap((end, at) => (end.status === 'fulfilled' ? [at] : []));
      expect(winners).toHaveLength(1);
      expect(await readFile(target, 'utf8')).toBe(`content ${winners[0] ?? -1}`);
      for (const end of ends) if (end.status === 'rejected') expect(end.reason).toMatchObject(existing);
    },
  );

  describe('on a file system without hard links', () => {
    beforeEach(() => {
      disk.link = 'ENOTSUP';
    });

    it('renames the file', async () => {
      await publish(part, target, once);
      expect(await readFile(target, 'utf8')).toBe('new');
      expect(await readdir(folder)).toEqual(['film.mp4']);
    });

    it('never replaces an existing file', async () => {
      await symlink('nowhere', target);
      await expect(publish(part, target, once)).rejects.toMatchObject(existing);
      expect(await readlink(target)).toBe('nowhere');
    });

    it('removes the reserved name if the rename fails', async () => {
      disk.rename = 'EIO';
      await expect(publish(part, target, once)).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
      expect(await readdir(folder)).toEqual(['film.mp4.part']);
    });
  });

  it('rethrows other disk errors', async () => {
    disk.link = 'EIO';
    await expect(publish(part, target, once)).rejects.toMatchObject({ code: 'local_io', retry: 'resume' });
  });
});

describe('checkOutput', () => {
  const refusal = { exitCode: 10, charged: 'no' };

  it.each([once, force])('accepts a free name without leaving any file (%o)', async (options) => {
    const before = await readdir(folder);
    disk.rm = 'EIO';
    await expect(checked(join(folder, 'free.mp4'), options)).rejects.toMatchObject({ code: 'local_io' });
    disk.rm = undefined;
    expect(await readdir(folder)).not.toEqual(before);
    await checked(join(folder, 'free.mp4'), options);
    expect(await readdir(folder)).toEqual(before);
  });

  it('refuses an existing file, and suggests --force', async () => {
    await writeFile(target, 'old');
    await expect(checked(target, once)).rejects.toMatchObject({
      ...refusal,
      code: 'output_exists',
      message: expect.stringContaining('--force') as string,
    });
    await checked(target, force);
    expect(await readFile(target, 'utf8')).toBe('old');
  });

  it('refuses a link, even a dangling one', async () => {
    await symlink('nowhere', target);
    await expect(checked(target, once)).rejects.toMatchObject({ ...refusal, code: 'output_exists' });
    await checked(target, force);
    expect(await readlink(target)).toBe('nowhere');
  });

  it.each([once, force])('refuses a folder and a device (%o)', async (options) => {
    for (const path of [folder, '/dev/null'])
      await expect(checked(path, options)).rejects.toMatchObject({ ...refusal, code: 'output_exists' });
  });

  it.each([once, force])(
    'refuses a link to a device, to a folder or to a file descriptor (%o)',
    async (options) => {
      const file = openSync(target, 'w');
      for (const to of ['/dev/null', folder, `/proc/self/fd/${file}`, 'fd/1']) {
        const link = join(folder, 'link');
        await symlink(to, link);
        const message = expect.stringContaining('is not a regular file') as string;
        await expect(checked(link, options)).rejects.toMatchObject({ ...refusal, message });
        await expect(publish(part, link, options)).rejects.toMatchObject(existing);
        expect(await readlink(link)).toBe(to);
        await rm(link);
      }
      closeSync(file);
    },
  );

  it('refuses a folder that is missing or is a file', async () => {
    const noFolder = expect.stringContaining('no such folder') as string;
    await expect(checked(join(folder, 'no', 'a.mp4'), once)).rejects.toMatchObject({
      ...refusal,
      code: 'local_io',
      message: noFolder,
    });
    await expect(checked(join(part.path, 'a.mp4'), once)).rejects.toMatchObject({
      ...refusal,
      code: 'local_io',
    });
  });

  it.runIf(process.platform === 'linux')('refuses a folder in which no user can create files', async () => {
    await expect(checked('/proc/a.mp4', once)).rejects.toMatchObject({ ...refusal, code: 'local_io' });
  });

  it("refuses a name that leaves no room for the temporary file's extension", async () => {
    await expect(checked(join(folder, 'n'.repeat(250)), once)).rejects.toMatchObject({
      ...refusal,
      message: expect.stringContaining('too long') as string,
    });
  });

  it('prints a name without its control characters', async () => {
    const path = join(folder, 'a\u001b[31m.mp4');
    await writeFile(path, '');
    await expect(checked(path, once)).rejects.toMatchObject({
      message: expect.not.stringContaining('\u001b') as string,
    });
  });
});
