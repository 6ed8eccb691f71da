import { usageError } from '../../errors.ts';
import { textAt, type JsonObject } from '../../json.ts';
import type { Model } from '../../exchange.ts';
import type { ListingUse } from '../protocol.ts';
import { shownValue, violationMessage } from '../violations.ts';

/** The limits of a model family (specification 8). */
export interface Family {
  models: readonly string[];
  /** The minimum video duration, in seconds. */
  minSeconds: number;
  resolutions: readonly string[];
  /** The allowed resolution names, as a phrase for error messages. */
  resolutionRule: string;
  /**
   * The duration and resolution that are billed if a body omits them. The specification gives no default duration for
   * the self-hosted models, so the maximum is used.
   */
  defaults: { duration: number; resolution: string };
}

/** The aspect ratios of the self-hosted models; the specification lists none for the official model. */
export const ratios = ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', '9:21', '4:5', '5:4', 'adaptive'];

/** The maximum video duration, in seconds. */
export const maxSeconds = 15;

export const official: Family = {
  models: ['vendor-h3'],
  minSeconds: 4,
  resolutions: ['768P', '2K'],
  resolutionRule: '768P or 2K',
  defaults: { duration: 5, resolution: '768P' },
};

export const selfHosted: Family = {
  models: ['vendor-h3-base', 'vendor-h3-base-fast', 'vendor-h3-mini'],
  minSeconds: 5,
  resolutions: ['720p', '768P'],
  resolutionRule: '720p, or 768P, which is converted to 720p',
  defaults: { duration: maxSeconds, resolution: '720p' },
};

/** Returns the family of a body's model; undefined if the specification does not list that model. */
export function familyOf({ model }: JsonObject): Family | undefined {
  return [official, selfHosted].find(({ models }) => models.includes(model as string));
}

/**
 * Returns 720p if a body requests 768P from a self-hosted model; otherwise undefined. Self-hosted models have no 768P
 * (specification 8).
 */
export function convertedResolution(body: JsonObject): string | undefined {
  const isConverted = familyOf(body) === selfHosted && textAt(body, 'resolution')?.toLowerCase() === '768p';
  return isConverted ? '720p' : undefined;
}

/** Returns `check` for a model that the specification does not list: the model list must contain it (design 7). */
export function needsListing(body: JsonObject): ListingUse | undefined {
  return textAt(body, 'model') === undefined || familyOf(body) !== undefined ? undefined : 'check';
}

/** Returns the body unchanged. @throws MgwError('usage') if the model list does not contain its model. */
export function complete(body: JsonObject, models: readonly Model[]): JsonObject {
  const model = textAt(body, 'model') ?? '';
  if (models.some(({ id }) => id === model)) return body;
  const served = models.filter(({ protocols }) => protocols.includes('c')).map(({ id }) => id);
  const allowed = [...new Set([...served, ...official.models, ...selfHosted.models])].join(', ');
  const violation = { field: 'model', value: shownValue(model), allowed, flag: '--model' };
  throw usageError(violationMessage([violation]), ['mgw', 'models', '--protocol', 'c']);
}
