import * as z from 'zod/mini';
import type { JsonObject } from '../../../src/json.ts';
import type { Violation } from '../../../src/protocols/protocol.ts';

/** The toy protocol's body. */
export const schema = z.object({ engine: z.string(), words: z.string(), length: z.optional(z.number()) });

/** Returns a violation if the body has no text. */
export function check(body: JsonObject): Violation[] {
  return body['words'] === undefined
    ? [{ field: 'words', value: '', allowed: 'text', flag: '--prompt' }]
    : [];
}

/** Returns no flags: no model defaults apply to the toy protocol. */
export function unsetFlags(): string[] {
  return [];
}

/** Returns no advice. */
export function advise(): string[] {
  return [];
}
