import { bearer } from '../../exchange.ts';
import { textAt, type JsonObject } from '../../json.ts';
import type { Protocol } from '../protocol.ts';
import { flags } from './flags.ts';
import { complete, convertedResolution, needsListing, official, selfHosted } from './models.ts';
import { notReady, readQuery } from './observation.ts';
import { quantityOf } from './quantity.ts';
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
