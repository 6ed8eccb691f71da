import type { Json, JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';
import { familyOf } from './models.ts';

/** What a body asks for at most: the declared seconds, which are billed whatever is made of them (specification 8). */
export function quantityOf(body: JsonObject): Quantity {
  const whole: JsonObject = { ...familyOf(body)?.defaults, ...body };
  const asked = body['duration'] ?? body['seconds'];
  const given = asked ?? whole['duration'];
  const seconds = typeof given === 'string' ? Number(given) : given;
  return {
    videos: 1,
    isLengthOpen: asked === undefined,
    ...(typeof seconds === 'number' && { seconds }),
    referenceImages: referenceImagesIn(body),
    body: whole,
  };
}

// In reference mode, image and input_reference are references, too (specification 2.5).
function referenceImagesIn(body: JsonObject): number {
  const count = (...fields: string[]): number =>
    fields.reduce((sum, field) => sum + lengthOf(body[field]), 0);
  const mayRefer = body['generation_mode'] === 'r2v' || body['mode'] === 'ref2va' || isDecidedByAssets(body);
  return count('reference_image_urls', 'images') + (mayRefer ? count('image', 'input_reference') : 0);
}

const references = [
  'reference_image_urls',
  'images',
  'reference_video_urls',
  'reference_audio_urls',
  'audios',
];

// Without a mode, the service decides from the assets (specification 2.5).
function isDecidedByAssets(body: JsonObject): boolean {
  return (body['generation_mode'] ?? '') === '' && references.some((field) => lengthOf(body[field]) > 0);
}

// A single value counts as a list of one.
function lengthOf(list: Json | undefined): number {
  if (Array.isArray(list)) return list.length;
  return list === undefined || list === null ? 0 : 1;
}
