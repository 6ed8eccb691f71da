import { isObject, type Json, type JsonObject } from '../../json.ts';
import { checkAssetUrl } from '../asset-url.ts';
import { longName } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { shownValue } from '../violations.ts';
import { flags } from './flags.ts';

// What section 8 of the specification grants the official model and the self-hosted ones.
interface Limits {
  shortest: number;
  resolutions: readonly string[];
  allowedResolution: string;
}
const official: Limits = { shortest: 4, resolutions: ['768P', '2K'], allowedResolution: '768P or 2K' };
const selfHosted: Limits = {
  shortest: 5,
  resolutions: ['720p', '768P'],
  allowedResolution: '720p, or 768P, which is converted to 720p',
};
const limits = new Map<Json | undefined, Limits>([
  ['vendor-h3', official],
  ['vendor-h3-base', selfHosted],
  ['vendor-h3-base-fast', selfHosted],
  ['vendor-h3-mini', selfHosted],
]);
const models = 'vendor-h3, vendor-h3-base, vendor-h3-base-fast, vendor-h3-mini';
/** The most seconds that a video has. */
export const longest = 15;
const longestPrompt = 30_000;

const ratios = ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', '9:21', '4:5', '5:4', 'adaptive'];
const generationModes = ['t2v', 'i2v', 'r2v'];
const nativeModes = ['t2va', 'i2va', 'fl2va', 'l2va', 'ref2va'];

const singleAssets = ['image', 'last_frame_image_url'];
const assetLists: [string, number][] = [
  ['images', 9],
  ['reference_image_urls', 9],
  ['reference_video_urls', 3],
  ['reference_audio_urls', 3],
  ['audios', 3],
];
// Fields that say the same; which one wins is not shown (specification 2.5).
const counterparts: [string, string][] = [
  ['duration', 'seconds'],
  ['aspect_ratio', 'ratio'],
  ['generation_mode', 'mode'],
  ['reference_audio_urls', 'audios'],
];

/** The limits that a model's name stands for, by family; undefined for an unknown model. */
export function familyOf(body: JsonObject): 'official' | 'self-hosted' | undefined {
  const found = limits.get(body['model']);
  return found === undefined ? undefined : found === official ? 'official' : 'self-hosted';
}

/** Every rule of specification 2.5 and 8 that a body breaks. Fields that these do not name pass. */
export function check(body: JsonObject): Violation[] {
  const family = limits.get(body['model']);
  return [
    ...checkModel(body),
    ...checkPrompt(body, family),
    ...checkLength(body, family),
    ...checkResolution(body, family),
    ...checkWord(body, 'aspect_ratio', ratios),
    ...checkWord(body, 'generation_mode', generationModes),
    ...checkWord(body, 'mode', nativeModes),
    ...checkOptimization(body, family),
    ...singleAssets.flatMap((field) => checkUrl(field, body[field])),
    ...checkInputReference(body),
    ...assetLists.flatMap(([field, most]) => checkList(body, field, most)),
    ...checkVideos(body, family),
    ...checkReferences(body, family),
    ...counterparts.flatMap(([unified, native]) => checkPair(body, unified, native)),
  ];
}

function violation(
  field: string,
  value: Json | undefined,
  allowed: string,
  shown = shownValue(value),
): Violation {
  const flag = flags.find((one) => one.field === field.split('.')[0]);
  return { field, value: shown, allowed, flag: flag && `--${longName(flag)}` };
}

function checkModel({ model }: JsonObject): Violation[] {
  return limits.has(model) ? [] : [violation('model', model, `one of ${models}`)];
}

function checkPrompt({ prompt }: JsonObject, family: Limits | undefined): Violation[] {
  const allowed = `a text of 1 to ${longestPrompt} characters`;
  if (prompt === undefined) return family === selfHosted ? [violation('prompt', prompt, allowed)] : [];
  if (typeof prompt !== 'string' || prompt.trim() === '') return [violation('prompt', prompt, allowed)];
  const length = prompt.length <= longestPrompt ? prompt.length : Array.from(prompt).length;
  return length <= longestPrompt
    ? []
    : [violation('prompt', prompt, allowed, `a text of ${length} characters`)];
}

function checkLength({ duration, seconds }: JsonObject, family = official): Violation[] {
  const allowed = `${family.shortest} to ${longest} whole seconds`;
  const fits = (value: Json): boolean => Number.isInteger(value) && inRange(Number(value), family);
  const isText = typeof seconds === 'string' && /^[1-9]\d?$/.test(seconds);
  const found: Violation[] = [];
  if (duration !== undefined && !fits(duration)) found.push(violation('duration', duration, allowed));
  if (seconds !== undefined && !fits(isText ? Number(seconds) : seconds))
    found.push(violation('seconds', seconds, allowed));
  return found;
}

function inRange(value: number, family: Limits): boolean {
  return value >= family.shortest && value <= longest;
}

function checkResolution({ resolution }: JsonObject, family: Limits | undefined): Violation[] {
  if (resolution === undefined) return [];
  const allowed = family?.resolutions ?? [...official.resolutions, ...selfHosted.resolutions];
  if (typeof resolution === 'string' && allowed.includes(resolution)) return [];
  return [violation('resolution', resolution, family?.allowedResolution ?? '768P, 2K or 720p')];
}

function checkWord(body: JsonObject, field: string, words: readonly string[]): Violation[] {
  const value = body[field];
  if (value === undefined || (typeof value === 'string' && words.includes(value))) return [];
  return [violation(field, value, words.join(', '))];
}

function checkOptimization(body: JsonObject, family: Limits | undefined): Violation[] {
  const value = body['prompt_optimization'];
  if (value === undefined) return [];
  if (family === official) return [violation('prompt_optimization', value, 'only with a self-hosted model')];
  return typeof value === 'boolean' ? [] : [violation('prompt_optimization', value, 'true or false')];
}

function checkUrl(field: string, value: Json | undefined): Violation[] {
  if (value === undefined) return [];
  const allowed = 'an http(s) URL that the public internet can reach';
  if (typeof value !== 'string') return [violation(field, value, allowed)];
  const problem = checkAssetUrl(value);
  return problem === undefined ? [] : [violation(field, value, `${allowed} (this one ${problem})`)];
}

// Its type is not shown beyond "an image source": URLs are looked for where such objects hold them.
function checkInputReference(body: JsonObject): Violation[] {
  const field = 'input_reference';
  const value = body[field];
  if (Array.isArray(value)) return value.flatMap((url, index) => checkUrl(`${field}.${index}`, url));
  if (!isObject(value)) return checkUrl(field, value);
  return ['url', 'image_url'].flatMap((name) => checkUrl(`${field}.${name}`, value[name]));
}

function checkList(body: JsonObject, field: string, most: number): Violation[] {
  const value = body[field];
  if (value === undefined) return [];
  const allowed = `a list of at most ${most} URLs`;
  if (!Array.isArray(value)) return [violation(field, value, allowed)];
  if (value.length > most) return [violation(field, value, allowed)];
  return value.flatMap((url, index) => checkUrl(`${field}.${index}`, url));
}

function checkVideos(body: JsonObject, family: Limits | undefined): Violation[] {
  const field = 'reference_video_urls';
  return family === selfHosted && count(body, field) > 0
    ? [violation(field, body[field], 'none, since only vendor-h3 takes reference videos')]
    : [];
}

function checkReferences(body: JsonObject, family: Limits | undefined): Violation[] {
  const isMulti = body['generation_mode'] === 'r2v' || body['mode'] === 'ref2va';
  const fields = [
    'image',
    'images',
    'input_reference',
    'reference_image_urls',
    'reference_audio_urls',
    'audios',
  ];
  if (family === official) fields.push('reference_video_urls');
  if (!isMulti || fields.some((field) => count(body, field) > 0)) return [];
  const field = body['generation_mode'] === 'r2v' ? 'generation_mode' : 'mode';
  return [violation(field, body[field], 'multi-reference only with at least one reference image or audio')];
}

function count(body: JsonObject, field: string): number {
  const value = body[field];
  return Array.isArray(value) ? value.length : value === undefined ? 0 : 1;
}

function checkPair(body: JsonObject, unified: string, native: string): Violation[] {
  if (body[unified] === undefined || body[native] === undefined) return [];
  return [violation(unified, body[unified], `${unified} or ${native}, not both`)];
}
