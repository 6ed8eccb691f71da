import { isObject } from '../body.ts';
import { cost } from '../credits.ts';
import { operationError } from '../envelopes.ts';
import type { Call } from '../exchange.ts';
import { Refused } from '../exchange.ts';
import { videoSize } from '../media/video-size.ts';
import type { Model } from '../models.ts';
import { settleOutcome } from '../outcomes.ts';
import { priceFor } from '../prices.ts';
import type { Order } from '../tasks.ts';

type Body = Record<string, unknown>;
type Rule = (value: unknown, model: Model) => boolean;

const oneOf =
  (...values: unknown[]): Rule =>
  (value) =>
    values.includes(value);
const isText: Rule = (value) => typeof value === 'string';
const isFlag: Rule = (value) => typeof value === 'boolean';

/**
 * The fields of `parameters` (specification 2.1) and the values that the sandbox's models take. The
 * specification leaves ranges to the model: these are those of the models that speak this protocol elsewhere.
 */
const PARAMETERS: Readonly<Record<string, Rule>> = {
  sampleCount: oneOf(1, 2, 3, 4),
  durationSeconds: oneOf(4, 6, 8),
  aspectRatio: oneOf('16:9', '9:16'),
  resolution: oneOf('720p', '1080p'),
  negativePrompt: isText,
  personGeneration: oneOf('allow_all', 'allow_adult', 'dont_allow'),
  seed: (value) => Number.isInteger(value) && Number(value) >= 0 && Number(value) < 2 ** 32,
  enhancePrompt: isFlag,
  generateAudio: (value, { audio }) => isFlag(value, {} as Model) && (audio === true || value === false),
};

const IMAGE_TYPES = ['image/png', 'image/jpeg', 'image/webp'];

/** Reads a submission to Protocol A. Throws Refused with the model's error for any field or value it lacks. */
export function orderA(call: Call, model: Model, body: Body): Order {
  onlyKnown('', body, ['instances', 'parameters']);
  const prompt = readInstance(model, body.instances);
  const parameters = readParameters(model, body.parameters);
  const price = priceFor('a', model.id);
  const seconds = Number(parameters.durationSeconds ?? price.defaultSeconds);
  const samples = Number(parameters.sampleCount ?? 1);
  const resolution = (parameters.resolution ?? '720p') as string;
  const ratio = (parameters.aspectRatio ?? '16:9') as string;
  return {
    model,
    prompt,
    declaredSeconds: seconds,
    seconds,
    resolution,
    ratio,
    ...videoSize(resolution, ratio),
    samples,
    audio: parameters.generateAudio === true,
    amount: cost(price.price, seconds * samples),
    outcome: settleOutcome(call, 'a', prompt, samples),
    body,
  };
}

function readInstance(model: Model, instances: unknown): string {
  if (!Array.isArray(instances)) refuse('instances must be an array');
  const [instance, ...others] = instances as unknown[];
  if (!isObject(instance) || others.length > 0) refuse('instances must hold exactly one object');
  onlyKnown('instances[0].', instance, ['prompt', 'image']);
  const { prompt, image } = instance;
  if (typeof prompt !== 'string' || prompt.trim() === '') refuse('instances[0].prompt must be a text');
  if (image !== undefined) checkImage(model, image);
  return prompt;
}

function checkImage(model: Model, image: unknown): void {
  if (!model.image) refuse(`${model.id} does not support instances[0].image`);
  if (!isObject(image)) refuse('instances[0].image must be an object');
  onlyKnown('instances[0].image.', image, ['bytesBase64Encoded', 'mimeType']);
  const { bytesBase64Encoded: bytes, mimeType } = image;
  if (!IMAGE_TYPES.includes(mimeType as string))
    refuse(`instances[0].image.mimeType must be ${IMAGE_TYPES.join(', ')}`);
  if (typeof bytes !== 'string' || !isBase64(bytes)) {
    refuse('instances[0].image.bytesBase64Encoded must be Base64 without a prefix');
  }
}

/** Standard Base64 with its padding, not empty. */
function isBase64(text: string): boolean {
  return text.length > 0 && text.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(text);
}

function readParameters(model: Model, parameters: unknown = {}): Body {
  if (!isObject(parameters)) refuse('parameters must be an object');
  onlyKnown('parameters.', parameters, Object.keys(PARAMETERS));
  for (const [name, value] of Object.entries(parameters)) {
    if (PARAMETERS[name]?.(value, model)) continue;
    refuse(`${model.id} does not support parameters.${name} = ${JSON.stringify(value)}`);
  }
  return parameters;
}

function onlyKnown(where: string, value: Body, known: readonly string[]): void {
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined) refuse(`Unknown name "${where}${unknown}": cannot find field.`);
}

function refuse(message: string): never {
  throw new Refused(operationError(400, 'INVALID_ARGUMENT', message));
}
