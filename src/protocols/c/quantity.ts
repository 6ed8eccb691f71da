import type { JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';
import { familyOf } from './models.ts';

/** What a body asks for at most: the declared seconds, which are billed whatever is made of them (specification 8). */
export function quantityOf(body: JsonObject): Quantity {
  const whole: JsonObject = { ...familyOf(body)?.defaults, ...body };
  const given = body['duration'] ?? body['seconds'] ?? whole['duration'];
  const seconds = typeof given === 'string' ? Number(given) : given;
  return { videos: 1, ...(typeof seconds === 'number' && { seconds }), body: whole };
}
