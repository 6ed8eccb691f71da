import * as z from 'zod/mini';
import { isObject, type JsonObject, type Json } from '../../json.ts';
import {
  adviseOfUnlisted,
  assetUrl,
  checkShape,
  withDescriptions,
  trueOrFalse,
  validated,
  oneOfWords,
  text,
  type BodySchema,
} from '../body-schema.ts';
import { violation } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { charactersIn, shownValue } from '../violations.ts';
import { flags } from './flags.ts';
import { familyOf, longest, official, ratios, selfHosted, type Family } from './models.ts';

function urls(max: number, allowed = `a list of at most ${max} URLs`) {
  return z.array(assetUrl(), { error: allowed }).check(z.maxLength(max, { error: allowed }));
}

const maxPrompt = 30_000;
const promptWords = `text of 1 to ${maxPrompt} characters`;
const isTooLong = (prompt: string) => (charactersIn(prompt) > maxPrompt ? promptWords : undefined);
const longPrompt = () => {
  const schema = text(promptWords).check(validated(isTooLong));
  return schema.register(z.globalRegistry, { maxLength: maxPrompt });
};

// The specification describes the type only as "an image source", so URLs inside objects are checked too.
const imageSource = z.any().check(({ value, issues }) => {
  const around = z.looseObject({ url: z.optional(assetUrl()), image_url: z.optional(assetUrl()) });
  const schema = Array.isArray(value) ? z.array(assetUrl()) : isObject(value) ? around : assetUrl();
  for (const { path, message } of z.safeParse<z.core.$ZodType>(schema, value).error?.issues ?? [])
    issues.push({ code: 'custom', path, message, input: value });
});

// The fields of specification 2.5, with the limits of section 8 if the family of the model is known.
function bodyOf(model: z.core.$ZodType, family: Family | undefined, own: z.core.$ZodShape): BodySchema {
  const shortest = family?.shortest;
  const allowed =
    shortest === undefined ? 'a number of seconds above 0' : `${shortest} to ${longest} seconds`;
  const duration = () =>
    z
      .number({ error: allowed })
      .check(
        ...(shortest === undefined
          ? [z.gt(0, { error: allowed })]
          : [z.minimum(shortest, { error: allowed }), z.maximum(longest, { error: allowed })]),
      );
  const isInRange = (seconds: string): boolean =>
    /^(0|[1-9]\d*)(\.\d+)?$/.test(seconds) && z.safeParse(duration(), Number(seconds)).success;
  const digits = z.string().check(z.refine(isInRange, { error: allowed }));
  const ratio = () =>
    family === selfHosted ? oneOfWords(ratios) : text('a ratio such as 16:9, or adaptive');
  return withDescriptions(
    z.strictObject({
      model,
      prompt: z.optional(z.string({ error: 'a text' })),
      duration: z.optional(duration()),
      seconds: native('duration', z.union([duration(), digits], { error: allowed })),
      resolution: z.optional(
        family === undefined ? text() : oneOfWords(family.resolutions, family.resolution),
      ),
      aspect_ratio: z.optional(ratio()),
      ratio: native('aspect_ratio', ratio()),
      generation_mode: z.optional(oneOfWords(['t2v', 'i2v', 'r2v'])),
      mode: native('generation_mode', oneOfWords(['t2va', 'i2va', 'fl2va', 'l2va', 'ref2va'])),
      prompt_optimization: z.optional(trueOrFalse()),
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
  z.globalRegistry.add(optional, { description: `same as ${field}` });
  return optional;
}

const named = [...official.models, ...selfHosted.models];
const modelWords = `the name of a model, such as ${named.join(', ')}`;
const oneOfModels = ({ models }: Family) => oneOfWords(models, modelWords);
const optimizing = z.never({ error: 'only with a self-hosted model' });
const otherModel = text(modelWords).check(
  z.regex(new RegExp(`^(?!(${named.join('|')})$)`), { error: modelWords }),
);
const schemas = {
  official: bodyOf(oneOfModels(official), official, { prompt_optimization: z.optional(optimizing) }),
  selfHosted: bodyOf(oneOfModels(selfHosted), selfHosted, {
    prompt: longPrompt(),
    reference_video_urls: z.optional(urls(0, 'none, since only vendor-h3 takes reference videos')),
  }),
  other: bodyOf(otherModel, undefined, {}),
};

function schemaOf(body: JsonObject): BodySchema {
  const family = familyOf(body);
  return family === undefined ? schemas.other : family === official ? schemas.official : schemas.selfHosted;
}

/** The bodies of specification 2.5, with the limits of section 8 for the models that it names. */
export const schema = z.union([schemas.official, schemas.selfHosted, schemas.other]);

/** Returns every rule of specification 2.5 and 8 that a body breaks. */
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

// This rule applies only to the self-hosted models.
function checkReferences(body: JsonObject): Violation[] {
  const isUnified = body['generation_mode'] === 'r2v';
  if (familyOf(body) !== selfHosted || (!isUnified && body['mode'] !== 'ref2va')) return [];
  const field = isUnified ? 'generation_mode' : 'mode';
  if (references.some((name) => isGiven(body[name]))) return [];
  const allowed = 'multi-reference only with at least one reference image or audio';
  return [violation(flags, field, body[field], allowed)];
}

// Pairs of fields with the same meaning. The specification does not say which one wins (2.5).
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

/** Returns the flags that are left to the model's defaults. */
export function unsetFlags(body: JsonObject): string[] {
  return [
    ...(body['duration'] === undefined && body['seconds'] === undefined ? ['duration'] : []),
    ...(body['resolution'] === undefined && familyOf(body) !== selfHosted ? ['resolution'] : []),
  ];
}

/** Returns notes on what the specification advises, and on what it does not list (design 7). */
export function advise(body: JsonObject): string[] {
  const family = familyOf(body);
  const native = ['seconds', 'audios', 'mode'].filter((field) => body[field] !== undefined);
  const seconds = body['duration'] ?? body['seconds'];
  const ratio = body['aspect_ratio'] ?? body['ratio'];
  const notes: [boolean, string][] = [
    [
      family === undefined,
      `The specification does not name ${shownValue(body['model'])}: its limits are not checked.`,
    ],
    [
      family === official && native.length > 0,
      `Native fields of the self-hosted models, not known to work with vendor-h3: ${native.join(', ')}.`,
    ],
    [family === selfHosted && body['resolution'] === '768P', '768P is converted to 720p.'],
    [
      family === selfHosted && ratio === 'adaptive',
      'adaptive sends no aspect ratio to the upstream, which then decides.',
    ],
    [
      seconds !== undefined && !Number.isInteger(typeof seconds === 'string' ? Number(seconds) : seconds),
      `${shownValue(seconds)} seconds is not a whole number: the model may round it or refuse it.`,
    ],
    [
      typeof ratio === 'string' && !ratios.includes(ratio),
      `The specification does not list the aspect ratio ${shownValue(ratio)}: the model may refuse it.`,
    ],
  ];
  const due = notes.filter(([isDue]) => isDue).map(([, note]) => note);
  return [...due, ...adviseOfAssets(body), ...adviseOfUnlisted(schemaOf(body), body)];
}

/** Whether a mode requires (true), refuses (false) or allows (absent) each kind of asset. */
interface ModeAssets {
  first?: boolean;
  last?: boolean;
  references?: boolean;
}

// Specification 2.5. A single image may be the reference of `r2v`.
const modes = new Map<unknown, ModeAssets>([
  ['t2v', { first: false, last: false, references: false }],
  ['t2va', { first: false, last: false, references: false }],
  ['i2v', { references: false }],
  ['i2va', { first: true, last: false, references: false }],
  ['fl2va', { first: true, last: true, references: false }],
  ['l2va', { first: false, last: true, references: false }],
  ['r2v', { last: false }],
  ['ref2va', { last: false }],
]);

/** Whether a body has a field, and the field is not an empty list. */
function isGiven(value: Json | undefined): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined;
}

/** Returns notes on assets that the specification advises against, or that contradict the mode (design 7). */
function adviseOfAssets(body: JsonObject): string[] {
  const has = (...fields: string[]): boolean => fields.some((field) => isGiven(body[field]));
  const given = {
    first: has('image', 'images', 'input_reference'),
    last: has('last_frame_image_url'),
    references: has('reference_image_urls', 'reference_video_urls', 'reference_audio_urls', 'audios'),
  };
  const field = body['generation_mode'] === undefined ? 'mode' : 'generation_mode';
  const mode = body[field];
  const { first, last, references } = modes.get(mode) ?? {};
  const clashes = [
    ...(mode === 'i2v' && !given.first && !given.last ? ['needs an image'] : []),
    ...(mode === 'r2v' && !given.first && !given.references ? ['needs a reference'] : []),
    ...clash(first, given.first, 'a first frame (image)'),
    ...clash(last, given.last, 'a last frame (last_frame_image_url)'),
    ...clash(references, given.references, 'references'),
  ];
  const isAdaptive = (body['aspect_ratio'] ?? body['ratio']) === 'adaptive';
  const isAdvised = familyOf(body) === official && Object.values(given).includes(true) && !isAdaptive;
  const lacksFirst = given.last && !given.first && first === undefined;
  return [
    ...(isAdvised ? ['The specification advises --aspect-ratio adaptive for frames and references.'] : []),
    ...(lacksFirst
      ? ['last_frame_image_url without image: the specification describes it together with a first frame.']
      : []),
    ...(clashes.length > 0
      ? [`${field} contradicts the assets: ${JSON.stringify(mode)} ${clashes.join(' and ')}.`]
      : []),
  ];
}

function clash(isTaken: boolean | undefined, isThere: boolean, what: string): string[] {
  if (isTaken === undefined || isTaken === isThere) return [];
  return [isTaken ? `needs ${what}` : `does not take ${what}`];
}
