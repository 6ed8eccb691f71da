import type { Json, JsonObject } from '../../json.ts';
import { familyOf, official } from './models.ts';

/** What a mode does with each kind of asset: needs it (true), does not take it (false), or may take it (absent). */
interface ModeAssets {
  first?: boolean;
  last?: boolean;
  references?: boolean;
}

// Specification 2.5. A single image may be the reference of `r2v`.
const modes = new Map<unknown, ModeAssets>([
  ['t2v', { first: false, last: false, references: false }],
  ['t2va', { first: false, last: false, references: false }],
  ['i2v', { references: false }],
  ['i2va', { first: true, last: false, references: false }],
  ['fl2va', { first: true, last: true, references: false }],
  ['l2va', { first: false, last: true, references: false }],
  ['r2v', { last: false }],
  ['ref2va', { last: false }],
]);

/** Whether a body has a field, and the field is not an empty list. */
export function isGiven(value: Json | undefined): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined;
}

/** Returns notes on assets that the specification advises against, or that contradict the mode (design 7). */
export function adviseOfAssets(body: JsonObject): string[] {
  const has = (...fields: string[]): boolean => fields.some((field) => isGiven(body[field]));
  const given = {
    first: has('image', 'images', 'input_reference'),
    last: has('last_frame_image_url'),
    references: has('reference_image_urls', 'reference_video_urls', 'reference_audio_urls', 'audios'),
  };
  const field = body['generation_mode'] === undefined ? 'mode' : 'generation_mode';
  const mode = body[field];
  const { first, last, references } = modes.get(mode) ?? {};
  const clashes = [
    ...(mode === 'i2v' && !given.first && !given.last ? ['needs an image'] : []),
    ...clash(first, given.first, 'a first frame (image)'),
    ...clash(last, given.last, 'a last frame (last_frame_image_url)'),
    ...clash(references, given.references, 'references'),
  ];
  const isAdaptive = (body['aspect_ratio'] ?? body['ratio']) === 'adaptive';
  const isAdvised = familyOf(body) === official && Object.values(given).includes(true) && !isAdaptive;
  const lacksFirst = given.last && !given.first && first === undefined;
  return [
    ...(isAdvised ? ['The specification advises --aspect-ratio adaptive for frames and references.'] : []),
    ...(lacksFirst
      ? ['last_frame_image_url without image: the specification describes it together with a first frame.']
      : []),
    ...(clashes.length > 0
      ? [`${field} contradicts the assets: ${JSON.stringify(mode)} ${clashes.join(', ')}.`]
      : []),
  ];
}

function clash(isTaken: boolean | undefined, isThere: boolean, what: string): string[] {
  if (isTaken === undefined || isTaken === isThere) return [];
  return [isTaken ? `needs ${what}` : `does not take ${what}`];
}
