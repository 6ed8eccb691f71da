import { usageError } from '../../errors.ts';
import { textAt, type JsonObject } from '../../json.ts';
import type { Model } from '../model.ts';
import type { ListingUse, Violation } from '../protocol.ts';
import { shownValue, violationMessage } from '../violations.ts';

const maxShown = 12;

/** The versions that the listing gives for a model; empty if it knows no such model or gives none. */
export function versionsOf(model: string, models: readonly Model[]): string[] {
  return models.find(({ id }) => id === model)?.model_versions ?? [];
}

/** The listing fills in or checks the version of every body that names a model. */
export function needsListing(body: JsonObject): ListingUse | undefined {
  if (textAt(body, 'ModelName') === undefined) return undefined;
  return body['ModelVersion'] === undefined ? 'fill' : 'check';
}

/**
 * Returns the body with the missing version, if the listing has just one for its model (design 7).
 * @throws MgwError('usage') if the listing denies model or version, or leaves a choice: it shows what there is.
 */
export function complete(body: JsonObject, models: readonly Model[]): JsonObject {
  const versions = versionsOf(textAt(body, 'ModelName') ?? '', models);
  const isOpen = body['ModelVersion'] === undefined;
  const [only] = versions;
  const found = isOpen && versions.length > 1 ? [wrongVersion('', versions)] : checkVersion(body, models);
  if (found.length > 0) throw usageError(violationMessage(found, textAt(body, 'ModelName')));
  return isOpen && only !== undefined ? { ...body, ModelVersion: only } : body;
}

/**
 * Returns what the listing contradicts: an unknown model, or an unknown version of the model (specification 2.3, 2.7).
 * Versions are compared as exact text, since they do not substitute for one another (specification 8). A model without
 * listed versions proves nothing. Empty if the model or version is missing, which `check` reports.
 */
export function checkVersion(body: JsonObject, models: readonly Model[]): Violation[] {
  const name = textAt(body, 'ModelName');
  if (name === undefined) return [];
  if (!models.some(({ id }) => id === name)) return [unknownModel(name, models)];
  const version = textAt(body, 'ModelVersion');
  const versions = versionsOf(name, models);
  if (version === undefined || versions.length === 0 || versions.includes(version)) return [];
  return [wrongVersion(shownValue(version), versions)];
}

function wrongVersion(value: string, versions: readonly string[]): Violation {
  return { field: 'ModelVersion', value, allowed: some(versions), flag: '--model-version' };
}

function unknownModel(name: string, models: readonly Model[]): Violation {
  const own = models.filter(({ protocols }) => protocols.length === 0 || protocols.includes('b'));
  const ids = own.map(({ id }) => id);
  const meant = ids.filter((id) => id.toLowerCase() === name.toLowerCase());
  const versioned = models.filter((model) => model.model_versions.length > 0).map(({ id }) => id);
  const candidates = [meant, versioned, ids].find((list) => list.length > 0) ?? [];
  const allowed = candidates.length === 0 ? 'a model of the listing, which is empty' : some(candidates);
  return { field: 'ModelName', value: shownValue(name), allowed, flag: '--model' };
}

function some(values: readonly string[]): string {
  const shown = values.slice(0, maxShown).map(shownValue).join(', ');
  return values.length > maxShown ? `${shown} and ${values.length - maxShown} more` : shown;
}
