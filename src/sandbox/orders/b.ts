import { isHttpUrl, parseBounded } from '../body.ts';
import { isObject } from '../state.ts';
import { findModel, type Model, cost, priceFor } from '../models.ts';
import { actionError, type Call, RefusedCall } from '../exchange.ts';
import { videoSize } from '../media/video.ts';
import { failure, decideOutcome, type Order } from '../tasks.ts';
import { canFetch } from '../store/service.ts';

type Body = Record<string, unknown>;
type Rule = (value: unknown) => boolean;

/** Fields of Tencent-like clouds that this gateway refuses at any depth (specification 2.3). */
const forbiddenFields = [
  'SubAppId',
  'FileId',
  'ObjectId',
  'LastFrameFileId',
  'draft_task_id',
  'SecretId',
  'SecretKey',
];
const knownFields = [
  'ModelName',
  'ModelVersion',
  'Prompt',
  'NegativePrompt',
  'FileInfos',
  'OutputConfig',
  'ExtInfo',
];
const knownFileFields = ['Type', 'Url', 'Category', 'Usage'];

/**
 * The allowed values of `OutputConfig` (specification 2.3). They are case-sensitive. If the specification defines no
 * range, the sandbox uses its own.
 */
const outputRules: Readonly<Record<string, Rule>> = {
  StorageMode: (value) => value === 'Temporary',
  Resolution: (value) => ['720P', '1080P'].includes(value as string),
  Duration: (value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= 60,
  AspectRatio: (value) => ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9'].includes(value as string),
  AudioGeneration: (value) => value === 'Enabled' || value === 'Disabled',
};

/**
 * Parses the body of `CreateAigcVideoTask`. Throws RefusedCall with `Response.Error` if the gateway refuses the body.
 */
export function orderB(call: Call, body: Body): Order {
  const refuse = refusalFor(call);
  refuseForbidden(refuse, body);
  refuseUnknown(refuse, '', body, knownFields);
  const model = readModel(refuse, call, body);
  const files = readFileInfos(refuse, body.FileInfos);
  const references = files.filter(({ usage }) => usage === 'Reference');
  const output = readOutput(refuse, body.OutputConfig);
  const prompt = readPrompt(refuse, body, files.length > 0);
  const price = priceFor('b', model.id);
  const seconds = Number(output.Duration ?? price.defaultSeconds);
  const resolution = (output.Resolution ?? '720P') as string;
  const ratio = (output.AspectRatio ?? '16:9') as string;
  return {
    model,
    prompt,
    declaredSeconds: seconds,
    seconds,
    resolution,
    ratio,
    ...videoSize(resolution, ratio),
    samples: 1,
    audio: output.AudioGeneration === 'Enabled',
    returnUsage: readExtInfo(refuse, model, body.ExtInfo),
    amount: cost(price, { units: seconds, referenceImages: references.length }),
    outcome: files.every(({ url }) => canFetch(call.gateway, url))
      ? decideOutcome(call, 'b', prompt)
      : failure('unreachable-asset'),
    body,
  };
}

type Refuse = (code: string, message: string) => never;

function refusalFor(call: Call): Refuse {
  return (code, message) => {
    throw new RefusedCall(actionError(code, message, call.requestId));
  };
}

/** Refuses forbidden fields, including those in the JSON inside strings such as `ExtInfo`. */
function refuseForbidden(refuse: Refuse, value: unknown): void {
  if (typeof value === 'string' && /^\s*[[{]/.test(value)) refuseForbidden(refuse, parseBounded(value));
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    if (forbiddenFields.includes(name)) refuse('InvalidParameterValue', `${name} is not supported.`);
    refuseForbidden(refuse, member);
  }
}

function refuseUnknown(refuse: Refuse, prefix: string, value: Body, known: readonly string[]): void {
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined)
    refuse('UnknownParameter', `The parameter \`${prefix}${unknown}\` is not recognized.`);
}

function readModel(refuse: Refuse, call: Call, { ModelName, ModelVersion }: Body): Model {
  if (ModelName === undefined) refuse('MissingParameter', 'ModelName is missing.');
  if (ModelVersion === undefined) refuse('MissingParameter', 'ModelVersion is missing.');
  const model = findModel('b', ModelName, call.mayUse);
  if (model?.versions?.includes(ModelVersion as string)) return model;
  const pair = `${JSON.stringify(ModelName)} ${JSON.stringify(ModelVersion)}`;
  return refuse(
    'InvalidParameterValue',
    `This key cannot use this combination of ModelName and ModelVersion: ${pair}.`,
  );
}

function readPrompt(refuse: Refuse, { Prompt, NegativePrompt }: Body, hasAssets: boolean): string {
  if (NegativePrompt !== undefined && typeof NegativePrompt !== 'string') {
    refuse('InvalidParameter', 'NegativePrompt must be a string.');
  }
  if (Prompt !== undefined && typeof Prompt !== 'string')
    refuse('InvalidParameter', 'Prompt must be a string.');
  const prompt = Prompt ?? '';
  if (prompt.trim() === '' && !hasAssets) refuse('MissingParameter', 'Prompt is required for text-to-video.');
  return prompt;
}

/** An image in a request, and its usage. */
interface File {
  url: string;
  usage: 'FirstFrame' | 'Reference';
}

function readFileInfos(refuse: Refuse, infos: unknown = []): File[] {
  if (!Array.isArray(infos)) refuse('InvalidParameter', 'FileInfos must be an array.');
  return (infos as unknown[]).map((info, index) => {
    const prefix = `FileInfos.${index}.`;
    if (!isObject(info)) return refuse('InvalidParameter', `FileInfos.${index} must be an object.`);
    refuseUnknown(refuse, prefix, info, knownFileFields);
    const { Type, Url, Category = 'Image', Usage = 'Reference' } = info;
    if (Type !== 'Url') refuse('InvalidParameterValue', `${prefix}Type must be Url.`);
    if (Category !== 'Image') refuse('InvalidParameterValue', `${prefix}Category must be Image.`);
    if (Usage !== 'FirstFrame' && Usage !== 'Reference') {
      refuse('InvalidParameterValue', `${prefix}Usage must be FirstFrame or Reference.`);
    }
    if (!isHttpUrl(Url)) return refuse('InvalidParameterValue', `${prefix}Url must be an HTTP(S) URL.`);
    return { url: Url, usage: Usage };
  });
}

function readOutput(refuse: Refuse, output: unknown = {}): Body {
  if (!isObject(output)) return refuse('InvalidParameter', 'OutputConfig must be an object.');
  refuseUnknown(refuse, 'OutputConfig.', output, Object.keys(outputRules));
  for (const [name, value] of Object.entries(output)) {
    if (outputRules[name]?.(value)) continue;
    refuse('InvalidParameterValue', `OutputConfig.${name} must not be ${JSON.stringify(value)}.`);
  }
  return output;
}

/**
 * Whether the request requires a report of its usage. `ExtInfo` is a string that contains a JSON object. For a model
 * with extension parameters, the object's `ExtVideoParameters` is also a string that contains a JSON object
 * (specification 2.3).
 */
function readExtInfo(refuse: Refuse, { isExtended }: Model, extInfo: unknown): boolean {
  if (extInfo === undefined) return false;
  const outer = typeof extInfo === 'string' ? parseBounded(extInfo) : undefined;
  if (!isObject(outer))
    return refuse('InvalidParameterValue', 'ExtInfo must be a string that contains a JSON object.');
  if (!isExtended) return false;
  const { ExtVideoParameters: inner } = outer;
  const parameters = typeof inner === 'string' ? parseBounded(inner) : undefined;
  if (!isObject(parameters)) {
    return refuse(
      'InvalidParameterValue',
      'ExtInfo.ExtVideoParameters must be a string that contains a JSON object.',
    );
  }
  const { ReturnUsage = false } = parameters;
  return typeof ReturnUsage === 'boolean'
    ? ReturnUsage
    : refuse('InvalidParameterValue', 'ReturnUsage must be a boolean.');
}
