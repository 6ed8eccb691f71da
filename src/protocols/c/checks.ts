import * as z from 'zod/mini';
import { isObject, type Json, type JsonObject } from '../../json.ts';
import {
  adviseOfDefaults,
  adviseOfUnlisted,
  assetUrl,
  checkShape,
  described,
  either,
  judged,
  oneOfWords,
  text,
  whole,
  type BodySchema,
} from '../body-schema.ts';
import { violation } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { charactersIn } from '../violations.ts';
import { flags } from './flags.ts';
import { familyOf, longest, official, selfHosted, type Family } from './models.ts';

const anyFamily: Family = {
  ...official,
  models: [...official.models, ...selfHosted.models],
  resolutions: [...official.resolutions, ...selfHosted.resolutions],
  resolution: '768P, 2K or 720p',
};

const ratios = ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', '9:21', '4:5', '5:4', 'adaptive'];
const ratio = () => z.optional(oneOfWords(ratios));

function urls(most: number, allowed = `a list of at most ${most} URLs`) {
  return z.array(assetUrl(), { error: allowed }).check(z.maxLength(most, { error: allowed }));
}

const longestPrompt = 30_000;
const promptWords = `a text of 1 to ${longestPrompt} characters`;
const isTooLong = (prompt: string) => (charactersIn(prompt) > longestPrompt ? promptWords : undefined);
const prompt = () => {
  const schema = text(promptWords).check(judged(isTooLong));
  return schema.register(z.globalRegistry, { maxLength: longestPrompt });
};

// Its type is not shown beyond "an image source": URLs are looked for where such objects hold them.
const imageSource = z.any().check(({ value, issues }) => {
  const around = z.looseObject({ url: z.optional(assetUrl()), image_url: z.optional(assetUrl()) });
  const schema = Array.isArray(value) ? z.array(assetUrl()) : isObject(value) ? around : assetUrl();
  for (const { path, message } of z.safeParse<z.core.$ZodType>(schema, value).error?.issues ?? [])
    issues.push({ code: 'custom', path, message, input: value });
});

function bodyOf(family: Family, own: z.core.$ZodShape): BodySchema {
  const { shortest, resolutions, resolution, models } = family;
  const length = `${shortest} to ${longest} whole seconds`;
  const digits = new RegExp(`^([${shortest}-9]|1[0-${longest - 10}])$`);
  const seconds = [whole(length, shortest, longest), z.string().check(z.regex(digits, { error: length }))];
  return described(
    z.strictObject({
      model: oneOfWords(models, `one of ${anyFamily.models.join(', ')}`),
      prompt: z.optional(prompt()),
      duration: z.optional(whole(length, shortest, longest)),
      seconds: native('duration', z.union(seconds, { error: length })),
      resolution: z.optional(oneOfWords(resolutions, resolution)),
      aspect_ratio: ratio(),
      ratio: native('aspect_ratio', ratio()),
      generation_mode: z.optional(oneOfWords(['t2v', 'i2v', 'r2v'])),
      mode: native('generation_mode', oneOfWords(['t2va', 'i2va', 'fl2va', 'l2va', 'ref2va'])),
      prompt_optimization: z.optional(either()),
      image: z.optional(assetUrl()),
      last_frame_image_url: z.optional(assetUrl()),
      input_reference: z.optional(imageSource),
      images: z.optional(urls(9)),
      reference_image_urls: z.optional(urls(9)),
      reference_video_urls: z.optional(urls(3)),
      reference_audio_urls: z.optional(urls(3)),
      audios: native('reference_audio_urls', urls(3)),
      ...own,
    }),
    flags,
  );
}

function native<T extends z.core.$ZodType>(field: string, schema: T) {
  const optional = z.optional(schema);
  z.globalRegistry.add(optional, { description: `says the same as ${field}` });
  return optional;
}

const optimizing = z.never({ error: 'only with a self-hosted model' });
const schemas = {
  official: bodyOf(official, { prompt_optimization: z.optional(optimizing) }),
  selfHosted: bodyOf(selfHosted, {
    prompt: prompt(),
    reference_video_urls: z.optional(urls(0, 'none, since only vendor-h3 takes reference videos')),
  }),
  any: bodyOf(anyFamily, {}),
};

function schemaOf(body: JsonObject): BodySchema {
  const family = familyOf(body);
  return family === undefined ? schemas.any : family === official ? schemas.official : schemas.selfHosted;
}

/** The bodies of specification 2.5 with the limits of section 8: that of the official model, or of a self-hosted one. */
export const schema = z.union([schemas.official, schemas.selfHosted]);

/** Every rule of specification 2.5 and 8 that a body breaks. */
export function check(body: JsonObject): Violation[] {
  return [
    ...checkShape(schemaOf(body), body, flags),
    ...checkReferences(body),
    ...counterparts.flatMap(([unified, native]) => checkPair(body, unified, native)),
  ];
}

const references = [
  'image',
  'images',
  'input_reference',
  'reference_image_urls',
  'reference_audio_urls',
  'audios',
];

function checkReferences(body: JsonObject): Violation[] {
  const isUnified = body['generation_mode'] === 'r2v';
  if (!isUnified && body['mode'] !== 'ref2va') return [];
  const field = isUnified ? 'generation_mode' : 'mode';
  const fields = familyOf(body) === official ? [...references, 'reference_video_urls'] : references;
  if (fields.some((name) => isGiven(body[name]))) return [];
  const allowed = 'multi-reference only with at least one reference image or audio';
  return [violation(flags, field, body[field], allowed)];
}

function isGiven(value: Json | undefined): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined;
}

// Fields that say the same; which one wins is not shown (specification 2.5).
const counterparts = [
  ['duration', 'seconds'],
  ['aspect_ratio', 'ratio'],
  ['generation_mode', 'mode'],
  ['reference_audio_urls', 'audios'],
] as const;

function checkPair(body: JsonObject, unified: string, native: string): Violation[] {
  if (body[unified] === undefined || body[native] === undefined) return [];
  return [violation(flags, unified, body[unified], `${unified} or ${native}, not both`)];
}

/** Fields left to the model's defaults, native ones that vendor-h3 may not know, and what no list shows. */
export function advise(body: JsonObject): string[] {
  const isOfficial = familyOf(body) === official;
  const left = [
    ...(body['duration'] === undefined && body['seconds'] === undefined ? ['duration'] : []),
    ...(body['resolution'] === undefined && isOfficial ? ['resolution'] : []),
  ];
  const native = ['seconds', 'audios', 'mode'].filter((field) => body[field] !== undefined);
  const notes: [boolean, string][] = [
    [
      isOfficial && native.length > 0,
      `Native fields of the self-hosted models, not known to work with vendor-h3: ${native.join(', ')}.`,
    ],
    [familyOf(body) === selfHosted && body['resolution'] === '768P', '768P is converted to 720p.'],
  ];
  const due = notes.filter(([isDue]) => isDue).map(([, note]) => note);
  return [...adviseOfDefaults('c', body['model'], left), ...due, ...adviseOfUnlisted(schemaOf(body), body)];
}
