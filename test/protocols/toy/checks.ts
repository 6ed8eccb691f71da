import * as z from 'zod/mini';
import type { JsonObject } from '../../../src/json.ts';
import type { Violation } from '../../../src/protocols/protocol.ts';

/** The body of the toy protocol. */
export const schema = z.object({ engine: z.string(), words: z.string(), length: z.optional(z.number()) });

/** Refuses a body without text. */
export function check(body: JsonObject): Violation[] {
  return body['words'] === undefined
    ? [{ field: 'words', value: '', allowed: 'a text', flag: '--prompt' }]
    : [];
}

/** Returns the flags that are left to the model. */
export function unsetFlags(): string[] {
  return [];
}

/** Returns no advice. */
export function advise(): string[] {
  return [];
}
