import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isObject, tryParseJson, type Json } from '../json.ts';
import { makeFolder } from '../files/make-folder.ts';

/** What tells a batch that was run, so that it can be named again. */
export interface KnownBatch {
  /** Absolute path of the manifest. */
  file: string;
  /** The template of its files, its folder being absolute. */
  output: string;
  /** The values of `-d`. */
  defaults: string[];
}

/** Remembers how a batch was run last; it is a convenience, and nothing rests on it. `folder` is the ledger's. */
export async function rememberBatch(folder: string, name: string, batch: KnownBatch): Promise<void> {
  await makeFolder(join(folder, 'batches'));
  await writeFile(`${pathOfBatch(folder, name)}.json`, `${JSON.stringify({ name, ...batch })}\n`, {
    mode: 0o600,
  });
}

/** How a batch was run last; undefined where none of that name is known. */
export async function recallBatch(folder: string, name: string): Promise<KnownBatch | undefined> {
  const text = await readFile(`${pathOfBatch(folder, name)}.json`, 'utf8').catch(() => '');
  const json = tryParseJson(text);
  if (!isObject(json) || json['name'] !== name) return undefined;
  const { file, output, defaults } = json;
  const isKnown = typeof file === 'string' && typeof output === 'string' && isTexts(defaults);
  return isKnown ? { file, output, defaults } : undefined;
}

function isTexts(value: Json | undefined): value is string[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

/** Where things are kept of a batch: the beginning of their paths. Any name will do on any file system. */
export function pathOfBatch(folder: string, name: string): string {
  return join(folder, 'batches', createHash('sha256').update(name).digest('hex').slice(0, 32));
}
