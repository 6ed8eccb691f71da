import { bearer } from '../../exchange.ts';
import { textAt, type JsonObject } from '../../json.ts';
import type { Protocol } from '../protocol.ts';
import { flags } from './flags.ts';
import { notReady, readQuery } from './observation.ts';
import { quantityOf } from './quantity.ts';
import { contentPath, endpoints, query, readSubmission, submission } from './wire.ts';

/** Protocol C, the unified task style (specification 2.5, 3.3 and 4.3). */
export const c: Protocol = {
  name: 'c',
  auth: bearer,
  flags,
  endpoints,
  checks: () => import('./checks.ts'),
  normalise,
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
