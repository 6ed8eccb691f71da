import { at, type JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';

/** How many videos a body asks for: each instance, sampleCount times; 1 if that is left out. */
export function countOf({ instances, parameters }: JsonObject): number {
  const samples = Number(at(parameters, 'sampleCount') ?? 1);
  const files = (Array.isArray(instances) ? instances.length : 1) * samples;
  return Number.isSafeInteger(files) && files > 1 ? files : 1;
}

/** What a body asks for at most. A length that is left out is the model's to choose (specification 2.1). */
export function quantityOf(body: JsonObject): Quantity {
  const videos = countOf(body);
  const seconds = at(body, 'parameters.durationSeconds');
  const isLengthOpen = seconds === undefined;
  return { videos, isLengthOpen, ...(typeof seconds === 'number' && { seconds: seconds * videos }), body };
}
