import { hash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { makeFolder } from '../files/make-folder.ts';
import { tryParseJson } from '../json.ts';
import { formatNames } from './manifest/manifest.ts';

const knownBatch = z.object({
  name: z.string(),
  /** Whether the batch's name was given on the command line. */
  isNamed: z.boolean(),
  /** The manifest's absolute path; `-` if it was read from standard input. */
  file: z.string(),
  /** The value of `--format`. */
  format: z.optional(z.enum(formatNames)),
  /** The output template, with an absolute folder. */
  output: z.string(),
  /** The output template in the manifest; null if the command line overrides it. */
  written: z.nullable(z.string()),
  /** The values of `-d`. */
  defaults: z.array(z.string()),
  /** The absolute paths of the `--allow-files` folders. */
  allowFiles: z.array(z.string()),
  /** The values of `--ignore-columns`. */
  ignoreColumns: z.optional(z.array(z.string())),
  sidecar: z.optional(z.boolean()),
});

/** The options of a batch's last run. */
export type KnownBatch = z.infer<typeof knownBatch>;

/**
 * Records the options of a batch's last run, under the batch's name and its manifest's path, if it has one. `folder` is
 * the ledger's folder.
 */
export async function rememberBatch(folder: string, batch: KnownBatch): Promise<void> {
  await makeFolder(join(folder, 'batches'));
  for (const key of batch.file === '-' ? [batch.name] : [batch.name, batch.file])
    await writeFile(`${pathOfBatch(folder, key)}.json`, `${JSON.stringify(batch)}\n`, { mode: 0o600 });
}

/**
 * Returns the options of a batch's last run; undefined if unknown.
 * @param key the batch's name, or its manifest's absolute path
 */
export async function recallBatch(folder: string, key: string): Promise<KnownBatch | undefined> {
  const text = await readFile(`${pathOfBatch(folder, key)}.json`, 'utf8').catch(() => '');
  const { data } = z.safeParse(knownBatch, tryParseJson(text));
  return data?.name === key || data?.file === key ? data : undefined;
}

/**
 * Returns the path prefix of a batch's files in the ledger. The path is valid on any file system, even if the batch's
 * name is not a valid file name.
 */
export function pathOfBatch(folder: string, key: string): string {
  return join(folder, 'batches', hash('sha256', key).slice(0, 32));
}

/**
 * Returns the options of every batch's last run, sorted by name. Skips unreadable files. `folder` is the ledger's
 * folder.
 */
export async function knownBatches(folder: string): Promise<KnownBatch[]> {
  const files = await readdir(join(folder, 'batches')).catch(() => []);
  const byName = new Map<string, KnownBatch>();
  for (const file of files.filter((each) => each.endsWith('.json'))) {
    const text = await readFile(join(folder, 'batches', file), 'utf8').catch(() => '');
    const { data } = z.safeParse(knownBatch, tryParseJson(text));
    if (data !== undefined) byName.set(data.name, data);
  }
  return [...byName.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}
