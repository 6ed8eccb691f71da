import { declaresJson, jsonObject } from '../body.ts';
import { isObject } from '../state.ts';
import {
  modelNotFound,
  operationError,
  taskNotFound,
  type Call,
  json,
  RefusedCall,
  type Reply,
  type Route,
} from '../exchange.ts';
import { serveVideo, videoOf } from '../files.ts';
import { note, recordPoll, recordSent } from '../journal.ts';
import { videoSize } from '../media/video.ts';
import { findModel, type Model, cost, priceFor } from '../models.ts';
import {
  decideOutcome,
  acceptOrder,
  findTask,
  type Order,
  type Progress,
  progressOf,
  type Task,
} from '../tasks.ts';

const common = { area: 'a', auth: 'bearer' } as const;
const submitPath = /^\/v1beta\/models\/([^/:]+)(?::|%3[Aa])predictLongRunning$/;
const operationPath = /^\/v1beta\/models\/([^/]+)\/operations\/([^/]+)$/;
const filePath = /^\/v1beta\/files\/([^/:]+)(?::|%3[Aa])download$/;

/** How long the upstream stores result files: two days. */
const fileLifeMs = 2 * 24 * 3600 * 1000;

/** The routes of Protocol A (specification 4.1). */
export const protocolA: readonly Route[] = [
  { ...common, method: 'POST', pattern: submitPath, kind: 'submit', handle: submit },
  { ...common, method: 'GET', pattern: operationPath, kind: 'poll', handle: showOperation },
  { ...common, method: 'GET', pattern: filePath, kind: 'download', handle: download },
];

function submit(call: Call, name: string): Reply {
  const model = findModel('a', name, call.mayUse);
  if (model === undefined) return modelNotFound(name, call.requestId);
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined) return operationError(400, 'INVALID_ARGUMENT', 'The body must be a JSON object.');
  const task = acceptOrder(call, 'a', orderA(call, model, body));
  return recordSent(call, task.id, json(200, { name: nameOf(task), done: false }));
}

function showOperation(call: Call, model: string, id: string): Reply {
  const task = ownTask(call, id);
  if (task?.model !== model) return taskNotFound('a', call.requestId);
  const progress = progressOf(task, call.gateway.now());
  return recordPoll(call, id, progress, operationReply(call, task, progress));
}

function operationReply(call: Call, task: Task, { finishedAt }: Progress): Reply {
  if (finishedAt === undefined) return json(200, { name: nameOf(task), done: false });
  return task.outcome.end === 'fails'
    ? json(200, { name: nameOf(task), done: true, error: { code: 13, message: task.outcome.message } })
    : finishedReply(call, task, task.outcome.end === 'succeeds' ? task.outcome.filtered : 0);
}

function finishedReply(call: Call, task: Task, filtered: number): Reply {
  const deliveredSamples = Array.from(
    { length: Math.max(0, task.samples - filtered) },
    (_, sample) => sample,
  );
  const isInline = findModel('a', task.model)?.isInline === true;
  const samples = deliveredSamples.map((sample) => ({
    video: isInline ? inlineVideo(task, sample) : linkedVideo(call, task, sample),
  }));
  const reply = json(200, {
    name: nameOf(task),
    done: true,
    response: {
      '@type': 'type.googleapis.com/google.ai.generativelanguage.v1beta.PredictLongRunningResponse',
      generateVideoResponse: {
        ...(samples.length > 0 && { generatedSamples: samples }),
        ...(filtered > 0 && { raiMediaFilteredCount: filtered, raiMediaFilteredReasons: [filterReason] }),
      },
    },
  });
  return isInline
    ? { ...reply, onEnd: (_, isWhole) => isWhole && noteInline(call, task, deliveredSamples) }
    : reply;
}

const filterReason =
  'The result was held back because it may violate the content policy. Support code: 58061214';

function inlineVideo(task: Task, sample: number): object {
  return { encodedVideo: Buffer.from(videoOf(task, sample)).toString('base64'), encoding: 'video/mp4' };
}

function linkedVideo(call: Call, { id }: Task, sample: number): object {
  return {
    uri: `${call.gateway.url}/v1beta/files/${id}s${sample}:download?alt=media`,
    encoding: 'video/mp4',
  };
}

function download(call: Call, file: string): Reply {
  const { gateway } = call;
  const [, id = '', sample = ''] = /^([a-z0-9]+)s(\d)$/.exec(file) ?? [];
  const task = ownTask(call, id);
  const { finishedAt } = task ? progressOf(task, gateway.now()) : {};
  if (task === undefined || finishedAt === undefined || Number(sample) >= countDelivered(task))
    return fileNotFound();
  if (gateway.now() > finishedAt + fileLifeMs) return fileNotFound();
  if (call.query.get('alt') !== 'media') return operationError(400, 'INVALID_ARGUMENT', 'alt must be media.');
  return serveVideo(call, task, finishedAt, Number(sample));
}

/** Returns the number of samples that can be downloaded, without filtered samples; 0 if the task has failed. */
function countDelivered({ samples, outcome }: Task): number {
  return outcome.end === 'succeeds' ? samples - outcome.filtered : 0;
}

/** Records that the results were fetched, because the operation contains them. */
function noteInline({ gateway }: Call, task: Task, samples: readonly number[]): void {
  for (const sample of samples) {
    const total = videoOf(task, sample).length;
    const span = { start: 0, end: total, total };
    note(gateway.stateDir, { kind: 'fetched', at: gateway.now(), task: task.id, sample, ...span });
  }
}

/**
 * Finds a task. Throws RefusedCall (HTTP 403) for any key other than the one that submitted the task (specification 5).
 */
function ownTask(call: Call, id: string): Task | undefined {
  const task = findTask(call.gateway.stateDir, 'a', id);
  if (task !== undefined && task.key !== call.key) {
    throw new RefusedCall(operationError(403, 'PERMISSION_DENIED', 'The operation belongs to another key.'));
  }
  return task;
}

function nameOf({ model, id }: Task): string {
  return `models/${model}/operations/${id}`;
}

function fileNotFound(): Reply {
  return operationError(404, 'NOT_FOUND', 'The file does not exist or has expired.');
}

type Body = Record<string, unknown>;
type Rule = (value: unknown, model: Model) => boolean;

const oneOf =
  (...values: unknown[]): Rule =>
  (value) =>
    values.includes(value);
const isText: Rule = (value) => typeof value === 'string';
const isFlag: Rule = (value) => typeof value === 'boolean';

/**
 * The fields of `parameters` (specification 2.1) and the values that the sandbox's models accept. The specification
 * defines no ranges, so these are the ranges of models that use this protocol elsewhere.
 */
const parameterRules: Readonly<Record<string, Rule>> = {
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

const imageTypes = ['image/png', 'image/jpeg', 'image/webp'];

/** Parses a Protocol A submission. Throws RefusedCall with the model's error for any unsupported field or value. */
function orderA(call: Call, model: Model, body: Body): Order {
  refuseUnknown('', body, ['instances', 'parameters']);
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
    amount: cost(price, { units: seconds * samples, videos: samples }),
    outcome: decideOutcome(call, 'a', prompt, samples),
    body,
  };
}

function readInstance(model: Model, instances: unknown): string {
  if (!Array.isArray(instances)) refuse('instances must be an array');
  const [instance, ...others] = instances as unknown[];
  if (!isObject(instance) || others.length > 0) refuse('instances must contain exactly one object');
  refuseUnknown('instances[0].', instance, ['prompt', 'image']);
  const { prompt, image } = instance;
  if (typeof prompt !== 'string' || prompt.trim() === '')
    refuse('instances[0].prompt must be a non-empty string');
  if (image !== undefined) checkImage(model, image);
  return prompt;
}

function checkImage(model: Model, image: unknown): void {
  if (!model.image) refuse(`${model.id} does not support instances[0].image`);
  if (!isObject(image)) refuse('instances[0].image must be an object');
  refuseUnknown('instances[0].image.', image, ['bytesBase64Encoded', 'mimeType']);
  const { bytesBase64Encoded: bytes, mimeType } = image;
  if (!imageTypes.includes(mimeType as string))
    refuse(`instances[0].image.mimeType must be ${imageTypes.join(', ')}`);
  if (typeof bytes !== 'string' || !isBase64(bytes)) {
    refuse('instances[0].image.bytesBase64Encoded must be Base64 without a prefix');
  }
}

/** Whether a string is non-empty standard Base64 with padding. */
function isBase64(text: string): boolean {
  return text.length > 0 && text.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(text);
}

function readParameters(model: Model, parameters: unknown = {}): Body {
  if (!isObject(parameters)) refuse('parameters must be an object');
  refuseUnknown('parameters.', parameters, Object.keys(parameterRules));
  for (const [name, value] of Object.entries(parameters)) {
    if (parameterRules[name]?.(value, model)) continue;
    refuse(`${model.id} does not support parameters.${name} = ${JSON.stringify(value)}`);
  }
  return parameters;
}

function refuseUnknown(prefix: string, value: Body, known: readonly string[]): void {
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined) refuse(`Unknown name "${prefix}${unknown}": cannot find field.`);
}

function refuse(message: string): never {
  throw new RefusedCall(operationError(400, 'INVALID_ARGUMENT', message));
}
