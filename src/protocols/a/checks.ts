import * as z from 'zod/mini';
import { at, type JsonObject } from '../../json.ts';
import {
  adviseOfUnlisted,
  checkShape,
  withDescriptions,
  trueOrFalse,
  validated,
  text,
  wholeNumber,
} from '../body-schema.ts';
import type { Violation } from '../protocol.ts';
import { flags, contentFault, expectedType, isRelativePath } from './flags.ts';

const modelRule = 'the name of a model, as `mgw models --protocol a` lists it';

const image = z
  .strictObject(
    {
      bytesBase64Encoded: text('Base64 of the image').check(validated(contentFault)),
      mimeType: text('the MIME type of the image'),
    },
    { error: 'an object with bytesBase64Encoded and mimeType' },
  )
  .check(({ value, issues }) => {
    const problem = expectedType(value.mimeType, value.bytesBase64Encoded);
    if (problem === undefined) return;
    issues.push({ code: 'custom', path: ['mimeType'], message: problem, input: value.mimeType });
  });

const instance = z.strictObject(
  { prompt: text(), image: z.optional(image) },
  { error: 'an object with a prompt' },
);

// The model checks ranges and allowed words, because they differ between models.
const parameters = z.strictObject(
  {
    sampleCount: z.optional(wholeNumber('a whole number, 1 or more', 1)),
    durationSeconds: z.optional(wholeNumber('a whole number of seconds, 1 or more', 1)),
    aspectRatio: z.optional(text()),
    resolution: z.optional(text()),
    negativePrompt: z.optional(z.string({ error: 'text' })),
    personGeneration: z.optional(text()),
    seed: z.optional(wholeNumber('a whole number')),
    enhancePrompt: z.optional(trueOrFalse()),
    generateAudio: z.optional(trueOrFalse()),
  },
  { error: 'an object' },
);

/** The schema of the body (specification 2.1). It includes the model, although the model is sent in the path. */
export const schema = withDescriptions(
  z.strictObject({
    model: z.string({ error: modelRule }).check(z.refine(isRelativePath, { error: modelRule })),
    instances: z.array(instance, { error: 'a list of objects' }).check(z.minLength(1)),
    parameters: z.optional(parameters),
  }),
  flags,
);

/**
 * Returns every violation that Protocol A's local checks find (specification 2.1; design 7); empty if the
 * body may be sent.
 */
export function check(body: JsonObject): Violation[] {
  const { instances = [] } = body;
  const isEmpty = Array.isArray(instances) && instances.length === 0;
  return checkShape(schema, isEmpty ? { ...body, instances: [{}] } : body, flags);
}

// The fields that specification 2.1 recommends sending, because the models' defaults differ.
const explicitFields = [
  ['durationSeconds', 'duration'],
  ['resolution', 'resolution'],
  ['generateAudio', 'audio'],
] as const;

/** Returns the flags that a body does not set. */
export function unsetFlags(body: JsonObject): string[] {
  return explicitFields.flatMap(([field, flag]) =>
    at(body, `parameters.${field}`) === undefined ? [flag] : [],
  );
}

/** Returns notes on fields that the specification does not list. */
export function advise(body: JsonObject): string[] {
  return adviseOfUnlisted(schema, body);
}
