import type { JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';
import { familyOf, longest } from './checks.ts';

// Specification 8 shows the official model's defaults, and for the self-hosted ones only what a video has at most.
const defaults = {
  official: { duration: 5, resolution: '768P' },
  'self-hosted': { duration: longest, resolution: '720p' },
};

/** What a body asks for at most: the declared seconds, which are billed whatever is made of them (specification 8). */
export function quantityOf(body: JsonObject): Quantity {
  const family = familyOf(body);
  const whole: JsonObject = { ...(family && defaults[family]), ...body };
  const given = body['duration'] ?? body['seconds'] ?? whole['duration'];
  const seconds = typeof given === 'string' ? Number(given) : given;
  return { videos: 1, ...(typeof seconds === 'number' && { seconds }), body: whole };
}
