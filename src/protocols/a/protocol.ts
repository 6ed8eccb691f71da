import { bearer } from '../../exchange.ts';
import { textAt, type JsonObject, at } from '../../json.ts';
import type { Protocol, Quantity } from '../protocol.ts';
import { flags } from './flags.ts';
import { inlineMedia, readQuery } from './observation.ts';
import { modelOf, query, readSubmission, submission } from './wire.ts';

/**
 * Protocol A, the long-running-operation style (specification 2.1, 2.2, 3.1, 4.1). The model is part of the path, not
 * of the body. A composed body still contains it as a top-level `model`, so that flags, defaults, `--set`, the
 * fingerprint and the job's record treat it like any other field. `submission` moves it into the path and sends the
 * rest unchanged.
 */
export const a: Protocol = {
  name: 'a',
  about: 'Protocol A: long-running operations (predictLongRunning)',
  examples: [
    'mgw video a submit "a paper boat at sea" -m video-a -d 8 --resolution 720p --audio -o boat.mp4',
    'mgw video a submit "two boats" -m video-a --sample-count 2 -d 4 -o clip.mp4',
    'mgw video a submit "a boat" -m video-a -d 4 --set parameters.seed=7 --dry-run',
  ],
  setExample: 'parameters.seed=7',
  modelMarks: /^(protocol)?a$|longrunning|^veo|geminivideo/,
  auth: bearer,
  flags,
  assetFields: ['instances.*.image.bytesBase64Encoded'],
  inlineAssets: true,
  inlineMedia,
  countOf,
  checks: () => import('./checks.ts'),
  normalise,
  quantityOf,
  modelOf,
  submission,
  readSubmission,
  query,
  readQuery,
  // The address exists only when the file does (specification 3.1).
  notReady: () => false,
};

// Some listings give the name with the `models/` that precedes it in the path.
function normalise(body: JsonObject): JsonObject {
  const model = textAt(body, 'model')?.replace(/^models\//, '');
  return model === undefined ? body : { ...body, model };
}

/** The number of videos that a body requests: `sampleCount` (default 1) for each instance. */
function countOf({ instances, parameters }: JsonObject): number {
  const samples = Number(at(parameters, 'sampleCount') ?? 1);
  const files = (Array.isArray(instances) ? instances.length : 1) * samples;
  return Number.isSafeInteger(files) && files > 1 ? files : 1;
}

/** The maximum that a body requests. If it has no length, the model chooses one (specification 2.1). */
function quantityOf(body: JsonObject): Quantity {
  const videos = countOf(body);
  const seconds = at(body, 'parameters.durationSeconds');
  const isLengthOpen = seconds === undefined;
  return { videos, isLengthOpen, ...(typeof seconds === 'number' && { seconds: seconds * videos }), body };
}
