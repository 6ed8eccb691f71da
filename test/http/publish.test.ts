import type * as FileSystem from 'node:fs/promises';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
  link,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { checkOutput, publish } from '../../src/http/publish.ts';

const disk = vi.hoisted(() => ({
  link: undefined as string | undefined,
  rename: undefined as string | undefined,
}));

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof FileSystem>();
  const failing =
    <A extends unknown[]>(name: 'link' | 'rename', act: (...args: A) => Promise<void>) =>
    async (...args: A): Promise<void> => {
      const code = disk[name];
      if (code !== undefined) throw Object.assign(new Error(code), { code });
      await act(...args);
    };
  return { ...real, link: failing('link', real.link), rename: failing('rename', real.rename) };
});

let folder: string;
let part: string;
let target: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mgw-publish-'));
  target = join(folder, 'film.mp4');
  part = `${target}.part`;
  await writeFile(part, 'new');
  await writeFile(`${part}.json`, '{}');
});
afterEach(async () => {
  Object.assign(disk, { link: undefined, rename: undefined });
  await rm(folder, { recursive: true });
});

const existing = { code: 'output_exists', exitCode: 10, charged: 'yes' };
const once = { force: false };
const force = { force: true };

describe('publish', () => {
  it.each([once, force])('gives the part its name and removes the notes (%o)', async (options) => {
    await publish(part, target, options);
    expect(await readdir(folder)).toEqual(['film.mp4']);
    expect(await readFile(target, 'utf8')).toBe('new');
  });

  it('never replaces what stands there', async () => {
    await writeFile(target, 'old');
    await expect(publish(part, target, once)).rejects.toMatchObject({
      ...existing,
      message: expect.stringContaining('--force') as string,
    });
    expect(await readFile(target, 'utf8')).toBe('old');
    expect(await readFile(part, 'utf8')).toBe('new');
  });

  it('replaces a file with force', async () => {
    await writeFile(target, 'old');
    await publish(part, target, force);
    expect(await readFile(target, 'utf8')).toBe('new');
    expect(await readdir(folder)).toEqual(['film.mp4']);
  });

  it('replaces a link with force, and leaves alone what it points to', async () => {
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
    expect(await readFile(part, 'utf8')).toBe('new');
  });

  it('says what the caller says about money', async () => {
    await writeFile(target, 'old');
    await expect(publish(part, target, { force: false, charged: 'maybe' })).rejects.toMatchObject({
      charged: 'maybe',
    });
  });

  it.each([once, force])('completes what a crash between its steps left (%o)', async (options) => {
    await link(part, target);
    await publish(part, target, options);
    expect(await readdir(folder)).toEqual(['film.mp4']);
    expect(await readFile(target, 'utf8')).toBe('new');
  });

  it.each([undefined, 'EPERM'])('lets one of many win (links fail with %s)', async (code) => {
    disk.link = code;
    const parts = Array.from({ length: 20 }, (_, at) => join(folder, `${at}.part`));
    await Promise.all(parts.map((path, at) => writeFile(path, `content ${at}`)));
    const ends = await Promise.allSettled(parts.map((path) => publish(path, target, once)));
    const winners = ends.flatMap((end, at) => (end.status === 'fulfilled' ? [at] : []));
    expect(winners).toHaveLength(1);
    expect(await readFile(target, 'utf8')).toBe(`content ${winners[0] ?? -1}`);
    for (const end of ends) if (end.status === 'rejected') expect(end.reason).toMatchObject(existing);
  });

  describe('where the file system knows no links', () => {
    beforeEach(() => {
      disk.link = 'ENOTSUP';
    });

    it('renames', async () => {
      await publish(part, target, once);
      expect(await readFile(target, 'utf8')).toBe('new');
      expect(await readdir(folder)).toEqual(['film.mp4']);
    });

    it('never replaces what stands there', async () => {
      await symlink('nowhere', target);
      await expect(publish(part, target, once)).rejects.toMatchObject(existing);
      expect(await readlink(target)).toBe('nowhere');
    });

    it('gives the name up again where the rename fails', async () => {
      disk.rename = 'EIO';
      await expect(publish(part, target, once)).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
      expect((await readdir(folder)).sort()).toEqual(['film.mp4.part', 'film.mp4.part.json']);
    });
  });

  it('tells other errors of the disk', async () => {
    disk.link = 'EIO';
    await expect(publish(part, target, once)).rejects.toMatchObject({ code: 'local_io', retry: 'resume' });
  });
});

describe('checkOutput', () => {
  const refusal = { exitCode: 10, charged: 'no' };

  it.each([once, force])('is content with a free name, and leaves nothing behind (%o)', async (options) => {
    const before = await readdir(folder);
    await checkOutput(join(folder, 'free.mp4'), options);
    expect(await readdir(folder)).toEqual(before);
  });

  it('refuses a file that exists, and names --force', async () => {
    await writeFile(target, 'old');
    await expect(checkOutput(target, once)).rejects.toMatchObject({
      ...refusal,
      code: 'output_exists',
      message: expect.stringContaining('--force') as string,
    });
    await checkOutput(target, force);
    expect(await readFile(target, 'utf8')).toBe('old');
  });

  it('refuses a link, also one that leads nowhere', async () => {
    await symlink('nowhere', target);
    await expect(checkOutput(target, once)).rejects.toMatchObject({ ...refusal, code: 'output_exists' });
    await checkOutput(target, force);
    expect(await readlink(target)).toBe('nowhere');
  });

  it.each([once, force])('refuses a folder and a device (%o)', async (options) => {
    for (const path of [folder, '/dev/null'])
      await expect(checkOutput(path, options)).rejects.toMatchObject({ ...refusal, code: 'output_exists' });
  });

  it('refuses a folder that is missing, or is a file', async () => {
    const noFolder = expect.stringContaining('no such folder') as string;
    await expect(checkOutput(join(folder, 'no', 'a.mp4'), once)).rejects.toMatchObject({
      ...refusal,
      code: 'local_io',
      message: noFolder,
    });
    await expect(checkOutput(join(part, 'a.mp4'), once)).rejects.toMatchObject({
      ...refusal,
      code: 'local_io',
    });
  });

  it.runIf(process.platform === 'linux')('refuses a folder that takes no files, whoever asks', async () => {
    await expect(checkOutput('/proc/a.mp4', once)).rejects.toMatchObject({ ...refusal, code: 'local_io' });
  });

  it('refuses a name that leaves no room for the ending of the part', async () => {
    await expect(checkOutput(join(folder, 'n'.repeat(250)), once)).rejects.toMatchObject({
      ...refusal,
      message: expect.stringContaining('too long') as string,
    });
  });

  it('shows a name without its control characters', async () => {
    const path = join(folder, 'a\u001b[31m.mp4');
    await writeFile(path, '');
    await expect(checkOutput(path, once)).rejects.toMatchObject({
      message: expect.not.stringContaining('\u001b') as string,
    });
  });
});
