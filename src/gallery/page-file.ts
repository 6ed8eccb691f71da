import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { copyFile, link, mkdir, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { MgwError } from '../errors.ts';
import { localError } from '../files/local-error.ts';
import type { Job } from '../job.ts';
import { generator } from './html.ts';
import { sizeOf } from './links.ts';

/** The absolute path of the page that `-o` names: a folder, or a file whose name ends in `.html`. */
export function pagePath(given: string): string {
  return extname(given).toLowerCase() === '.html' && !/[\\/]$/.test(given)
    ? resolve(given)
    : resolve(given, 'index.html');
}

/**
 * Writes a page, whole or not at all.
 * @throws MgwError: exit 10 where there is a page that is not mgw's, or it cannot be written.
 */
export async function writePage(path: string, html: string, force: boolean): Promise<void> {
  if (!force) await checkOwn(path);
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await mkdir(dirname(path), { recursive: true });
    const file = await open(draft, 'wx');
    try {
      await file.writeFile(html);
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw localError(error, path, 'no');
  }
}

async function checkOwn(path: string): Promise<void> {
  const file = await open(path, 'r').catch(() => undefined);
  if (file === undefined) return;
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(4096), 0, 4096, 0);
    if (buffer.toString('latin1', 0, bytesRead).includes(generator)) return;
  } catch {
    // A folder, or what cannot be read, is no page of mgw's.
  } finally {
    await file.close();
  }
  throw new MgwError(
    'output_exists',
    `${path} exists already, and is not a gallery of mgw's. --force replaces it.`,
    {
      retry: 'safe',
    },
  );
}

/** The folder next to a page that takes the copies. */
const mediaFolder = 'media';

/**
 * Puts a job's files next to a page, as further names of the same file where the disk allows it, and gives their new paths.
 * A copy that is there stays.
 * @throws MgwError('local_io'), exit 10.
 */
export async function copyFiles(job: Job, page: string): Promise<Map<string, string>> {
  const copies = new Map<string, string>();
  for (const { path, bytes } of job.files) {
    if (sizeOf(path) === undefined) continue;
    const copy = join(dirname(page), mediaFolder, `${job.id}-${basename(path)}`);
    copies.set(path, copy);
    if (sizeOf(copy) === bytes) continue;
    try {
      await mkdir(dirname(copy), { recursive: true });
      await rm(copy, { force: true });
      await link(path, copy).catch(() => copyFile(path, copy, constants.COPYFILE_FICLONE));
    } catch (error) {
      throw localError(error, copy, 'no');
    }
  }
  return copies;
}
