import { at, isObject, type Json, type JsonObject } from '../../json.ts';
import { longName } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { shownValue } from '../violations.ts';
import { flags } from './flags.ts';
import { contentFault, deniedType } from './image.ts';
import { isModelName } from './names.ts';

/** What a value must be: a test, and the same in words. */
interface Rule {
  allowed: string;
  holds: (value: Json) => boolean;
}

const words: Rule = { allowed: 'a text that is not empty', holds: isText };
const whole: Rule = { allowed: 'a whole number', holds: (value) => Number.isSafeInteger(value) };
const positive: Rule = {
  allowed: 'a whole number, 1 or more',
  holds: (value) => Number.isSafeInteger(value) && Number(value) >= 1,
};
const flag: Rule = { allowed: 'true or false', holds: (value) => typeof value === 'boolean' };

// Specification 2.1. Ranges and words differ between models and are the model's to refuse.
const parameterRules: Record<string, Rule> = {
  sampleCount: positive,
  durationSeconds: { ...positive, allowed: 'a whole number of seconds, 1 or more' },
  aspectRatio: words,
  resolution: words,
  negativePrompt: { allowed: 'a text', holds: (value) => typeof value === 'string' },
  personGeneration: words,
  seed: whole,
  enhancePrompt: flag,
  generateAudio: flag,
};

/** Every local check of Protocol A (specification 2.1; design 7); empty where the body may be sent. */
export function check(body: JsonObject): Violation[] {
  return [...checkModel(body), ...checkInstances(body.instances), ...checkParameters(body.parameters)];
}

function checkModel({ model }: JsonObject): Violation[] {
  if (typeof model === 'string' && isModelName(model)) return [];
  return [violation('model', model, 'the name of a model, as `mgw models --protocol a` lists it')];
}

function checkInstances(instances: Json | undefined): Violation[] {
  if (instances === undefined || (Array.isArray(instances) && instances.length === 0))
    return [violation('instances.0.prompt', undefined, words.allowed)];
  if (!Array.isArray(instances)) return [violation('instances', instances, 'a list of objects')];
  return instances.flatMap((instance, index) => checkInstance(instance, `instances.${index}`));
}

function checkInstance(instance: Json, field: string): Violation[] {
  if (!isObject(instance)) return [violation(field, instance, 'an object with a prompt')];
  const { prompt, image } = instance;
  const missing = isText(prompt) ? [] : [violation(`${field}.prompt`, prompt, words.allowed)];
  return image === undefined ? missing : [...missing, ...checkImage(image, `${field}.image`)];
}

function checkImage(image: Json, field: string): Violation[] {
  if (!isObject(image)) return [violation(field, image, 'an object with bytesBase64Encoded and mimeType')];
  const { bytesBase64Encoded: content, mimeType } = image;
  const found: Violation[] = [];
  const fault = isText(content) ? contentFault(content) : 'Base64 of the image';
  if (fault !== undefined) found.push(violation(`${field}.bytesBase64Encoded`, content, fault));
  if (!isText(mimeType)) found.push(violation(`${field}.mimeType`, mimeType, 'the MIME type of the image'));
  if (found.length > 0 || !isText(content) || !isText(mimeType)) return found;
  const denied = deniedType(mimeType, content);
  return denied === undefined ? [] : [violation(`${field}.mimeType`, mimeType, denied)];
}

function checkParameters(parameters: Json | undefined): Violation[] {
  if (parameters === undefined) return [];
  if (!isObject(parameters)) return [violation('parameters', parameters, 'an object')];
  return Object.entries(parameterRules).flatMap(([name, { allowed, holds }]) => {
    const value = at(parameters, name);
    return value === undefined || holds(value) ? [] : [violation(`parameters.${name}`, value, allowed)];
  });
}

function violation(field: string, value: Json | undefined, allowed: string): Violation {
  const setter = flags.find((entry) => entry.field === field || field.startsWith(`${entry.field}.`));
  return {
    field,
    value: shownValue(value),
    allowed,
    ...(setter !== undefined && { flag: `--${longName(setter)}` }),
  };
}

function isText(value: Json | undefined): value is string {
  return typeof value === 'string' && value.trim() !== '';
}

// Specification 2.1 wants these sent, since the models' defaults differ.
const explicit = [
  { field: 'durationSeconds', flag: '--duration', key: 'duration' },
  { field: 'resolution', flag: '--resolution', key: 'resolution' },
  { field: 'generateAudio', flag: '--audio or --no-audio', key: 'audio' },
];

/** A note for each of duration, resolution and audio that is left to the model's default (specification 2.1). */
export function advise(body: JsonObject): string[] {
  const model = typeof body.model === 'string' ? body.model : '<model>';
  return explicit
    .filter(({ field }) => at(body, `parameters.${field}`) === undefined)
    .map(
      ({ field, flag, key }) =>
        `${field} is left to the model's default, which may change with its version: give ${flag}, ` +
        `or set defaults.video.a.${model}.${key} once.`,
    );
}
