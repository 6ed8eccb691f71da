import { at, type JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';

/** What a body asks for at most. A length that is left out is the model's to choose (specification 2.3). */
export function quantityOf(body: JsonObject): Quantity {
  const seconds = at(body, 'OutputConfig.Duration');
  const isLengthOpen = seconds === undefined;
  return { videos: 1, isLengthOpen, ...(typeof seconds === 'number' && { seconds }), body };
}
