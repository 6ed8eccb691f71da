import { randomBytes } from 'node:crypto';
import { open, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { MgwError, localError } from '../errors.ts';
import type { Job, JobFile } from '../job.ts';
import { requestedValue } from '../protocols/requested-value.ts';
import { isObject, tryParseJson, type Json } from '../json.ts';
import { syncFolder } from '../files/make-folder.ts';
import { withoutSignatures } from '../redact.ts';
import { pathsAt, type Target } from './output.ts';

/** The name of a file's sidecar: `clip.mp4.json`. */
export function sidecarPath(path: string): string {
  return `${path}.json`;
}

/**
 * Makes sure, before anything is paid, that the sidecars of `count` files can be written: no file exists there, except
 * an older sidecar.
 * @throws MgwError('output_exists'), exit 10.
 */
export async function checkSidecarsFree(target: Target, count: number, force: boolean): Promise<void> {
  if (target.kind === 'stdout' || force) return;
  for (const path of pathsAt(target, { id: '' }, count)) await checkFree(path);
}

async function checkFree(path: string): Promise<void> {
  const target = sidecarPath(path);
  const text = await readFile(target, 'utf8').catch(() => undefined);
  if (text === undefined || isSidecar(tryParseJson(text))) return;
  throw new MgwError('output_exists', `${target} exists already, and is not mgw's. --force replaces it.`, {
    retry: 'safe',
  });
}

function isSidecar(json: Json | undefined): boolean {
  return isObject(json) && typeof json['mgw'] === 'string' && typeof json['job'] === 'string';
}

/**
 * Writes a sidecar next to each file of a job: how it was made and where it came from (design 13). Only the owner can
 * read a sidecar, and no address in it is signed.
 * @param version mgw's own
 * @throws MgwError('local_io'), exit 10: the files themselves are there.
 */
export async function writeSidecars(job: Job, files: readonly JobFile[], version: string): Promise<void> {
  for (const file of files) await writeSidecar(sidecarPath(file.path), contentOf(job, file, version));
}

function contentOf(job: Job, file: JobFile, version: string): object {
  const { path, ...about } = file;
  const { id, key, handle, protocol, model, base_url, created_at, submitted_at, finished_at } = job;
  const request = job.request as Json | undefined;
  return {
    mgw: version,
    job: id,
    key,
    protocol,
    model,
    seed: requestedValue(job, 'seed'),
    handle,
    gateway: base_url,
    created_at,
    submitted_at,
    finished_at,
    cost: job.cost,
    usage: job.usage,
    file: { name: basename(path), ...about },
    request,
  };
}

async function writeSidecar(path: string, content: object): Promise<void> {
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(`${withoutSignatures(JSON.stringify(content, undefined, 2))}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
    await syncFolder(dirname(path));
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw localError(error, path, 'yes');
  }
}
