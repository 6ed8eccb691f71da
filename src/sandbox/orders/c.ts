import { isHttpUrl } from '../body.ts';
import { type Model, cost, priceFor } from '../models.ts';
import { taskError, type Call, RefusedCall } from '../exchange.ts';
import { videoSize } from '../media/video.ts';
import { failure, decideOutcome, type Order, type Outcome } from '../tasks.ts';
import { canFetch } from '../store/service.ts';

type Body = Record<string, unknown>;

/** A request's assets, by role (specification 2.5). */
interface Assets {
  /** The images that may be the first or last frame. */
  frames: string[];
  /** All frames but the last: `image` and `input_reference`, which may also be references. */
  sources: string[];
  images: string[];
  videos: string[];
  audios: string[];
}

/** The requested values, before the model's limits are applied. */
interface RequestedValues {
  prompt: string;
  seconds: number;
  resolution: string;
  ratio: string;
  mode: string;
  assets: Assets;
}

const maxPromptLength = 30_000;
/**
 * The maximum duration, in seconds. Self-hosted models are billed for any declared duration, so a limit of one day
 * bounds the bill.
 */
const maxSeconds = 86_400;
const knownRatios = ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', '9:21', '4:5', '5:4', 'adaptive'];
const knownModes = ['', 't2v', 'i2v', 'r2v'];
const nativeModes = ['t2va', 'i2va', 'fl2va', 'l2va', 'ref2va'];

/**
 * Parses a Protocol C submission (specification 2.5, 7, 8). Throws RefusedCall if the gateway refuses the submission.
 */
export function orderC(call: Call, model: Model, body: Body): Order {
  const values = readRequestedValues(model, body);
  if (!model.isSelfHosted) refuseOutOfRange(values);
  const output = model.isSelfHosted ? upstreamValues(values) : values;
  return {
    model,
    prompt: values.prompt,
    declaredSeconds: values.seconds,
    seconds: output.seconds,
    resolution: output.resolution,
    ratio: output.ratio,
    ...videoSize(output.resolution, output.ratio),
    samples: 1,
    audio: nativeModes.includes(values.mode) || values.assets.audios.length > 0,
    amount: cost(priceFor('c', model.id, output.resolution), {
      units: values.seconds,
      referenceImages: referenceImagesOf(values),
    }),
    outcome: upstreamFailure(call, model, values) ?? decideOutcome(call, 'c', values.prompt),
    body,
  };
}

function readRequestedValues(model: Model, body: Body): RequestedValues {
  const assets = readAssets(body);
  const prompt = textOf(body, 'prompt') ?? '';
  const isBlank = prompt.trim() === '';
  if (isBlank && (model.isSelfHosted || allAssets(assets).length === 0))
    refuse('invalid_request', 'prompt is required');
  return {
    prompt,
    seconds: readSeconds(body, model),
    resolution: textOf(body, 'resolution') ?? (model.isSelfHosted ? '720p' : '768P'),
    ratio: textOf(body, 'aspect_ratio') ?? textOf(body, 'ratio') ?? '16:9',
    mode: textOf(body, 'generation_mode') ?? (model.isSelfHosted ? textOf(body, 'mode') : undefined) ?? '',
    assets,
  };
}

function readSeconds(body: Body, { id, isSelfHosted }: Model): number {
  const nativeSeconds = isSelfHosted ? body.seconds : undefined;
  const value =
    body.duration ??
    (typeof nativeSeconds === 'string' ? Number(nativeSeconds) : nativeSeconds) ??
    priceFor('c', id).defaultSeconds;
  if (typeof value !== 'number' || !(value > 0 && value <= maxSeconds))
    refuse('invalid_duration', `duration must be a number above 0, at most ${maxSeconds}`);
  return value;
}

function readAssets(body: Body): Assets {
  const listUrls = (...values: unknown[]): string[] =>
    urls(
      'image',
      values.filter((value) => value != null),
    );
  return {
    frames: listUrls(body.image, body.input_reference, body.last_frame_image_url),
    sources: listUrls(body.image, body.input_reference),
    images: urls('reference_image_urls', [
      ...listOf(body, 'images'),
      ...listOf(body, 'reference_image_urls'),
    ]),
    videos: urls('reference_video_urls', listOf(body, 'reference_video_urls')),
    audios: urls('reference_audio_urls', [
      ...listOf(body, 'reference_audio_urls'),
      ...listOf(body, 'audios'),
    ]),
  };
}

function allAssets({ frames, images, videos, audios }: Assets): string[] {
  return [...frames, ...images, ...videos, ...audios];
}

/** Refuses values outside the official model's limits (specification 8). */
function refuseOutOfRange({ seconds, resolution, ratio, mode, assets }: RequestedValues): void {
  if (seconds < 4 || seconds > 15) refuse('invalid_duration', 'duration must be 4 to 15 seconds');
  if (!['768P', '2K'].includes(resolution)) refuse('invalid_resolution', 'resolution must be 768P or 2K');
  if (!knownRatios.includes(ratio))
    refuse('invalid_ratio', `aspect_ratio must be one of ${knownRatios.join(', ')}`);
  if (!knownModes.includes(mode)) refuse('invalid_request', 'generation_mode must be t2v, i2v or r2v');
  if (assets.images.length > 9) refuse('invalid_image_count', 'at most 9 reference images');
  if (assets.videos.length > 3) refuse('invalid_request', 'at most 3 reference videos');
  if (assets.audios.length > 3) refuse('invalid_request', 'at most 3 reference audio files');
  if (mode === 'i2v' && assets.frames.length + assets.images.length === 0)
    refuse('invalid_image_count', 'i2v needs an image');
  if (mode === 'r2v' && allAssets(assets).length === 0) refuse('invalid_request', 'r2v needs a reference');
}

/**
 * Returns the number of images that are billed as references. Without a mode, an image is billed as a reference if the
 * request has another reference. A last frame is never billed as a reference.
 */
function referenceImagesOf({ mode, assets: { sources, images, videos, audios } }: RequestedValues): number {
  const hasReferences =
    mode === '' ? images.length + videos.length + audios.length > 0 : isReferenceMode(mode);
  return images.length + (hasReferences ? sources.length : 0);
}

function isReferenceMode(mode: string): boolean {
  return mode === 'r2v' || mode === 'ref2va';
}

/**
 * Returns the values that a self-hosted upstream uses. The upstream ignores values that it does not support
 * (specification 7, 8).
 */
function upstreamValues({
  seconds,
  ratio,
}: RequestedValues): Pick<RequestedValues, 'seconds' | 'resolution' | 'ratio'> {
  const knownRatio = knownRatios.includes(ratio) ? ratio : '16:9';
  return { seconds: Math.min(Math.max(seconds, 5), 15), resolution: '720p', ratio: knownRatio };
}

/**
 * Returns the failure of a task that the gateway accepts but the upstream rejects; undefined if the upstream
 * accepts the task.
 */
function upstreamFailure(
  { gateway }: Call,
  { isSelfHosted }: Model,
  { prompt, mode, assets }: RequestedValues,
): Outcome | undefined {
  const { frames, images, audios } = assets;
  if (!allAssets(assets).every((asset) => canFetch(gateway, asset))) return failure('unreachable-asset');
  if (!isSelfHosted) return undefined;
  if (Array.from(prompt).length > maxPromptLength)
    return failure('rejected', 'prompt is longer than 30000 characters');
  if (images.length > 9) return failure('rejected', 'at most 9 reference images');
  if (audios.length > 3) return failure('rejected', 'at most 3 reference audio files');
  if (![...knownModes, ...nativeModes].includes(mode)) return failure('rejected', `unknown mode ${mode}`);
  if (isReferenceMode(mode) && frames.length + images.length + audios.length === 0)
    return failure('rejected', `${mode} needs a reference`);
  return undefined;
}

function textOf(body: Body, field: string): string | undefined {
  const value = body[field];
  if (value == null) return undefined;
  return typeof value === 'string' ? value : refuse('invalid_request', `${field} must be a string`);
}

function listOf(body: Body, field: string): unknown[] {
  const value = body[field];
  if (value == null) return [];
  return Array.isArray(value) ? value : refuse('invalid_request', `${field} must be an array`);
}

function urls(field: string, values: unknown[]): string[] {
  return values.map((value) =>
    isHttpUrl(value) ? value : refuse('invalid_request', `${field} must be an HTTP(S) URL`),
  );
}

function refuse(code: string, message: string): never {
  throw new RefusedCall(taskError(400, code, message));
}
