import { textAt, type JsonObject } from '../json.ts';
import type { Quantity } from '../protocols/protocol.ts';

/** What a body of speech is billed for at most: its characters, which are code points and not bytes (specification 8). */
export function speechQuantity(body: JsonObject): Quantity {
  return { characters: Array.from(textAt(body, 'req_params.text') ?? '').length, body };
}
