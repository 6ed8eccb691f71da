import { textAt, type JsonObject } from '../json.ts';
import type { Quantity } from '../protocols/protocol.ts';

/** What a body of speech is billed for at most: its characters, which are code points and not bytes (specification 8). */
export function speechQuantity(body: JsonObject): Quantity {
  const text = textAt(body, 'req_params.text') ?? '';
  const characters = Array.from(text).length;
  return { characters, visibleCharacters: Array.from(text.replace(/\s+/gu, '')).length, body };
}
