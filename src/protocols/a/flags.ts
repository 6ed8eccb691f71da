import { imageType, imageTypes, maxAssetBytes, switchFlag, valueFlag, wholeNumber } from '../flag.ts';
import { type Flag, isStoredName } from '../protocol.ts';
import { isBase64 } from '../../media/spooled-string.ts';
import type { Json } from '../../json.ts';

/**
 * Converts a file to Protocol A's `image`: Base64 with no Data URL prefix, and the MIME type that its bytes imply
 * (specification 2.1).
 * @throws Error that states the allowed files, if the file is empty, over 20 MiB, or not an image of a known type.
 */
export function imageFromFile(bytes: Uint8Array): Json {
  const mimeType = imageType(bytes);
  if (mimeType === undefined || bytes.length > maxAssetBytes.image)
    throw new Error(`an image (${imageTypes.map(shortName).join(', ')}) of at most 20 MiB`);
  const content = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { bytesBase64Encoded: content.toString('base64'), mimeType };
}

/** Returns an `image` that contains a frame's name. The frame's PNG bytes replace the name when the request is sent. */
function imageFromFrame(name: string): Json {
  return { bytesBase64Encoded: name, mimeType: 'image/png' };
}

/**
 * Returns a phrase that describes valid `bytesBase64Encoded` if `content` is invalid; undefined if `content` is valid.
 */
export function contentFault(content: string): string | undefined {
  if (isStoredName(content)) return undefined;
  if (/^data:/i.test(content)) return 'Base64 with no Data URL prefix';
  return isBase64(content) ? undefined : 'strict Base64: A-Z a-z 0-9 + / with its padding, no white space';
}

/**
 * Returns the MIME type to declare for the content if `mimeType` is wrong, or a phrase that describes it if the
 * content's type is unknown. Returns undefined if `mimeType` is right, or if neither type is known.
 */
export function expectedType(mimeType: string, content: string): string | undefined {
  if (isStoredName(content)) return undefined;
  const detected = imageType(Buffer.from(content.slice(0, 88), 'base64'));
  if (detected !== undefined) return detected === mimeType.toLowerCase() ? undefined : detected;
  return imageTypes.includes(mimeType.toLowerCase()) ? 'the type that matches the bytes' : undefined;
}

function shortName(mime: string): string {
  return mime.slice('image/'.length);
}

// A longer name would not fit in a request line.
const maxNameLength = 2048;
// Characters that end the path or act as a slash, white space, and characters that cannot be printed.
const unsafeCharacters = /[?#\\\s\p{Cc}\p{Cf}\p{Cs}]/u;

/** Whether the name of a model or operation can be used in a request's path (specification 4.1). */
export function isRelativePath(name: string): boolean {
  const segments = name.split('/');
  return (
    name.length <= maxNameLength &&
    !unsafeCharacters.test(name) &&
    !segments.some((segment) => ['', '.', '..'].includes(segment))
  );
}

const wholeNumberOption = { parse: wholeNumber };

/**
 * The flags of `mgw video a submit`: every field of specification 2.1, and the model, which is part of the path (4.1).
 */
export const flags: readonly Flag[] = [
  valueFlag('-m, --model <name>', 'model', 'model name, exactly as listed by mgw models --protocol a'),
  valueFlag(
    '--prompt <text>',
    'instances.0.prompt',
    'description of the video: content, motion, camera, style, sound',
  ),
  valueFlag(
    '-d, --duration <seconds>',
    'parameters.durationSeconds',
    'length, in whole seconds',
    wholeNumberOption,
  ),
  valueFlag('--resolution <name>', 'parameters.resolution', 'size, such as 720p or 1080p', {
    words: ['720p', '1080p'],
  }),
  valueFlag('--aspect-ratio <ratio>', 'parameters.aspectRatio', 'width to height, such as 16:9 or 9:16', {
    words: ['16:9', '9:16'],
  }),
  switchFlag('--audio', 'parameters.generateAudio', 'generate sound, if the model supports it'),
  valueFlag('--negative-prompt <text>', 'parameters.negativePrompt', 'what must not appear in the video'),
  valueFlag(
    '--sample-count <n>',
    'parameters.sampleCount',
    'number of videos; each is charged',
    wholeNumberOption,
  ),
  valueFlag(
    '--person-generation <policy>',
    'parameters.personGeneration',
    "the model's policy on showing people",
  ),
  valueFlag('--seed <n>', 'parameters.seed', 'random seed, a whole number', wholeNumberOption),
  switchFlag('--enhance-prompt', 'parameters.enhancePrompt', 'let the model rewrite the prompt'),
  {
    flags: '--image <file|@job>',
    field: 'instances.0.image',
    description: 'first frame, if the model accepts one: a PNG or JPEG file, or @JOB:last',
    fieldDescription: 'first frame, if the model accepts one',
    kind: 'file',
    fromFile: imageFromFile,
    fromFrame: imageFromFrame,
    isAsset: true,
    group: 'Assets',
  },
];
