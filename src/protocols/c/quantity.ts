import type { JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';
import { familyOf } from './models.ts';

/** What a body asks for at most: the declared seconds, which are billed whatever is made of them (specification 8). */
export function quantityOf(body: JsonObject): Quantity {
  const whole: JsonObject = { ...familyOf(body)?.defaults, ...body };
  const asked = body['duration'] ?? body['seconds'];
  const given = asked ?? whole['duration'];
  const seconds = typeof given === 'string' ? Number(given) : given;
  return {
    videos: 1,
    isLengthOpen: asked === undefined,
    ...(typeof seconds === 'number' && { seconds }),
    body: whole,
  };
}
