import type { Call, Reply, Route } from '../exchange.ts';
import { json } from '../exchange.ts';
import { type Model, MODELS } from '../models.ts';
import { pricesOf } from '../prices.ts';
import { voicesOf } from './speech.ts';

const ENDPOINT_TYPES: Readonly<Record<Model['area'], string[]>> = {
  a: ['gemini-video'],
  b: ['cloud-action-video'],
  c: ['openai-video'],
  tts: ['speech'],
  responses: ['openai-response'],
};

/** `GET /v1/models` (specification 2.7, 4.5), and one entry of it by its id. */
export const modelRoutes: readonly Route[] = [
  { method: 'GET', pattern: /^\/v1\/models$/, area: 'models', kind: 'list', auth: 'bearer', handle: listAll },
  {
    method: 'GET',
    pattern: /^\/v1\/models\/([^/]+)$/,
    area: 'models',
    kind: 'list',
    auth: 'bearer',
    handle: showOne,
  },
];

function listAll(call: Call): Reply {
  const models = MODELS.filter(({ id }) => call.mayUse(id));
  return json(200, { success: true, object: 'list', data: models.map((model) => entryOf(call, model)) });
}

/** An id that is not listed is an error under HTTP 200, as gateways of this kind answer it. */
function showOne(call: Call, id: string): Reply {
  const model = MODELS.find((candidate) => candidate.id === id && call.mayUse(id));
  if (model) return json(200, entryOf(call, model));
  const message = `The model '${id}' does not exist`;
  const error = { message, type: 'invalid_request_error', param: 'model', code: 'model_not_found' };
  return json(200, { error });
}

function entryOf(call: Call, { id, area, versions }: Model): object {
  return {
    id,
    object: 'model',
    created: 1_626_777_600,
    owned_by: 'sandbox',
    protocols: [area],
    supported_endpoint_types: ENDPOINT_TYPES[area],
    ...(versions && { model_versions: versions }),
    ...(area === 'tts' && { voices: voicesOf(call) }),
    prices: pricesOf(area, id).map((price) => ({
      unit: price.unit,
      price: price.price,
      resolution: price.resolution,
      default_seconds: price.defaultSeconds,
      reference_image: price.referenceImage,
      free_reference_images: price.freeReferenceImages,
      minimum: price.minimum,
    })),
  };
}
