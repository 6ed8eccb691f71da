import { bearer } from '../../exchange.ts';
import { textAt, type JsonObject } from '../../json.ts';
import type { Protocol } from '../protocol.ts';
import { withReturnUsage } from './ext-info.ts';
import { flags } from './flags.ts';
import { readQuery } from './observation.ts';
import { quantityOf } from './quantity.ts';
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
