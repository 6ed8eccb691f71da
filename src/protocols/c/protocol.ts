import { bearer } from '../../exchange.ts';
import { textAt, type JsonObject, type Json } from '../../json.ts';
import type { Protocol, Quantity } from '../protocol.ts';
import { flags } from './flags.ts';
import { complete, convertedResolution, needsListing, official, selfHosted, familyOf } from './models.ts';
import { notReady, readQuery } from './observation.ts';
import { contentPath, endpoints, query, readSubmission, submission } from './wire.ts';

/** Protocol C, the unified task style (specification 2.5, 3.3 and 4.3). */
export const c: Protocol = {
  name: 'c',
  about: 'Protocol C: unified tasks (/v1/video/generations)',
  examples: [
    'mgw video c submit "a paper boat at sea" -m vendor-h3-mini -o boat.mp4',
    'mgw video c submit "a boat" -m vendor-h3 -d 8 --resolution 768P --key boat-1 -o boat.mp4',
    'echo "a paper boat" | mgw video c submit - -m vendor-h3-mini --aspect-ratio 9:16',
    'mgw video c submit "a boat" -m vendor-h3-mini --set seed=7 --dry-run',
  ],
  setExample: 'seconds=5',
  modelMarks: /^(protocol)?c$|unified|openaivideo|videogenerations?$|^(v1)?videos$/,
  models: [...official.models, ...selfHosted.models],
  auth: bearer,
  authSetting: 'cAuth',
  flags,
  assetFields: [
    'image',
    'images.*',
    'last_frame_image_url',
    'reference_image_urls.*',
    'reference_video_urls.*',
    'reference_audio_urls.*',
    'audios.*',
    'input_reference',
  ],
  endpoints,
  needsListing,
  complete,
  checks: () => import('./checks.ts'),
  normalise,
  convertedResolution,
  quantityOf,
  modelOf: (body) => textAt(body, 'model'),
  submission,
  readSubmission,
  query,
  readQuery: (reply, handle) => readQuery(reply, contentPath(handle)),
  notReady,
};

// Both given stay both: the checks refuse them.
function normalise(body: JsonObject): JsonObject {
  if (body['ratio'] === undefined || body['aspect_ratio'] !== undefined) return body;
  const { ratio, ...rest } = body;
  return { ...rest, aspect_ratio: ratio };
}

/**
 * Returns the maximum that a body requests: the declared seconds, which are billed even if the video is shorter
 * (specification 8).
 */
function quantityOf(body: JsonObject): Quantity {
  const whole: JsonObject = { ...familyOf(body)?.defaults, ...body, ...billedResolution(body) };
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

// A self-hosted model has one resolution. Which price counts for another one is not shown: the dearest (specification 8).
function billedResolution(body: JsonObject): JsonObject {
  const { resolution } = body;
  if (familyOf(body) !== selfHosted || typeof resolution !== 'string') return {};
  const made = convertedResolution(body) ?? resolution;
  return made.toLowerCase() === selfHosted.defaults.resolution ? { resolution: made } : { resolution: null };
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
