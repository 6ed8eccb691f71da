import { bearer } from '../../exchange.ts';
import { textAt, type JsonObject, at, type Json } from '../../json.ts';
import type { Protocol, Quantity } from '../protocol.ts';
import { withReturnUsage } from './ext-info.ts';
import { flags } from './flags.ts';
import { readQuery } from './observation.ts';
import { complete, needsListing } from './versions.ts';
import { query, readSubmission, submission } from './wire.ts';

/** Protocol B, the cloud-action style at the root path (specification 2.3, 2.4, 3.2, 4.2). */
export const b: Protocol = {
  name: 'b',
  about: 'Protocol B: cloud actions (CreateAigcVideoTask)',
  examples: [
    'mgw video b submit "a paper boat at sea" -m Video-B --model-version 2.0 -d 5 -o boat.mp4',
    'mgw video b submit "a boat" -m Video-B --model-version 2.0 --resolution 720P --no-audio --wait',
    'mgw video b submit "a boat" -m Video-B --model-version 2.0 --set OutputConfig.Duration=5 --dry-run',
  ],
  setExample: 'OutputConfig.Duration=5',
  modelMarks: /^(protocol)?b$|cloudaction|aigc|^(tencent)?vod$/,
  hasVersions: true,
  auth: bearer,
  flags,
  assetFields: ['FileInfos.*.Url'],
  needsListing,
  complete,
  checks: () => import('./checks.ts'),
  normalise,
  quantityOf,
  modelOf: (body) => textAt(body, 'ModelName'),
  submission,
  readSubmission,
  query,
  readQuery,
  // The result is a plain file on another host: nothing there tells that it will come later.
  notReady: () => false,
};

// `ReturnUsage`, which is `--return-usage` and no field of the gateway's, is folded into `ExtInfo`.
function normalise(body: JsonObject): JsonObject {
  const { ReturnUsage: asked, ...rest } = body;
  if (asked === false) return rest;
  const merged = asked === true ? withReturnUsage(body['ExtInfo']) : undefined;
  return merged === undefined ? body : { ...rest, ExtInfo: merged };
}

/** What a body asks for at most. A length that is left out is the model's to choose (specification 2.3). */
function quantityOf(body: JsonObject): Quantity {
  const seconds = at(body, 'OutputConfig.Duration');
  const isLengthOpen = seconds === undefined;
  return {
    videos: 1,
    isLengthOpen,
    ...(typeof seconds === 'number' && { seconds }),
    referenceImages: referenceImagesIn(body['FileInfos']),
    body,
  };
}

// Only a first frame is known to be none: without a Usage, the gateway decides (specification 2.3).
function referenceImagesIn(files: Json | undefined): number {
  if (!Array.isArray(files)) return 0;
  return files.filter((file) => at(file, 'Usage') !== 'FirstFrame').length;
}
