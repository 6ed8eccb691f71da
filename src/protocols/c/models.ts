import type { JsonObject } from '../../json.ts';

/** What section 8 of the specification grants a family of models. */
export interface Family {
  models: readonly string[];
  /** The fewest seconds that a video has. */
  shortest: number;
  resolutions: readonly string[];
  /** The resolutions in words. */
  resolution: string;
  /** What is billed where a body leaves it out; of the self-hosted models only what a video has at most is shown. */
  defaults: { duration: number; resolution: string };
}

/** The most seconds that a video has. */
export const longest = 15;

export const official: Family = {
  models: ['vendor-h3'],
  shortest: 4,
  resolutions: ['768P', '2K'],
  resolution: '768P or 2K',
  defaults: { duration: 5, resolution: '768P' },
};

export const selfHosted: Family = {
  models: ['vendor-h3-base', 'vendor-h3-base-fast', 'vendor-h3-mini'],
  shortest: 5,
  resolutions: ['720p', '768P'],
  resolution: '720p, or 768P, which is converted to 720p',
  defaults: { duration: longest, resolution: '720p' },
};

/** The family of a body's model; undefined for an unknown one. */
export function familyOf({ model }: JsonObject): Family | undefined {
  return [official, selfHosted].find(({ models }) => models.includes(model as string));
}
