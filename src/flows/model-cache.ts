import { createHash } from 'node:crypto';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Settings } from '../config/resolve.ts';
import { isObject, tryParseJson } from '../json.ts';
import { makeFolder } from '../files/make-folder.ts';
import type { Model } from '../protocols/model.ts';
import { ledgerFolder } from './places.ts';

/** The members of a model that are kept: enough to name it. */
export type KnownModel = Pick<Model, 'id' | 'protocols' | 'model_versions'>;

/**
 * Keeps the listing of the gateway for completion and suggestions, which make no request. Nothing else depends on it.
 * @throws the system's error.
 */
export async function rememberModels(settings: Settings, models: readonly Model[]): Promise<void> {
  const path = pathOf(settings);
  const kept = models.map(({ id, protocols, model_versions }): KnownModel => ({
    id,
    protocols,
    model_versions,
  }));
  const text = JSON.stringify({ models: kept });
  // Most listings equal the last one.
  if (recalled(path) === text) return;
  await makeFolder(dirname(path));
  writeFileSync(`${path}.${process.pid}`, text, { mode: 0o600 });
  renameSync(`${path}.${process.pid}`, path);
}

/** Returns the models of the last listing of this gateway; none if it was never listed here. */
export function recallModels(settings: Settings): KnownModel[] {
  const kept = tryParseJson(recalled(pathOf(settings)));
  const models = isObject(kept) && Array.isArray(kept['models']) ? kept['models'] : [];
  return models.filter(isKnown);
}

// Synchronous: starting the thread pool takes longer than reading this small file.
function recalled(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function isKnown(value: unknown): value is KnownModel {
  const { id, protocols, model_versions: versions } = (value ?? {}) as Partial<KnownModel>;
  return typeof id === 'string' && Array.isArray(protocols) && Array.isArray(versions);
}

// Each gateway has models of its own.
function pathOf(settings: Settings): string {
  const gateway = settings.sandbox.value ? 'sandbox' : (settings.baseUrl?.value ?? '');
  const name = createHash('sha256').update(gateway).digest('hex').slice(0, 32);
  return join(ledgerFolder(settings), 'models', `${name}.json`);
}
