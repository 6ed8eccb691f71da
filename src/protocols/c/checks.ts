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
import { familyOf, maxSeconds, official, ratios, selfHosted, type Family } from './models.ts';

function urls(max: number, allowed = `a list of at most ${max} URLs`) {
  return z.array(assetUrl(), { error: allowed }).check(z.maxLength(max, { error: allowed }));
}

const maxPrompt = 30_000;
const promptRule = `text of 1 to ${maxPrompt} characters`;
const isTooLong = (prompt: string) => (charactersIn(prompt) > maxPrompt ? promptRule : undefined);
const longPrompt = () => {
  const schema = text(promptRule).check(validated(isTooLong));
  return schema.register(z.globalRegistry, { maxLength: maxPrompt });
};

// The specification describes the type only as "an image source", so URLs inside objects are checked too.
const imageSource = z.any().check(({ value, issues }) => {
  const objectWithUrls = z.looseObject({ url: z.optional(assetUrl()), image_url: z.optional(assetUrl()) });
  const schema = Array.isArray(value) ? z.array(assetUrl()) : isObject(value) ? objectWithUrls : assetUrl();
  for (const { path, message } of z.safeParse<z.core.$ZodType>(schema, value).error?.issues ?? [])
    issues.push({ code: 'custom', path, message, input: value });
});

// Returns the schema for the fields of specification 2.5, with the limits of section 8 if the model's family is known.
function bodyOf(model: z.core.$ZodType, family: Family | undefined, overrides: z.core.$ZodShape): BodySchema {
  const shortest = family?.minSeconds;
  const allowed =
    shortest === undefined ? 'a number of seconds above 0' : `${shortest} to ${maxSeconds} seconds`;
  const duration = () =>
    z
      .number({ error: allowed })
      .check(
        ...(shortest === undefined
          ? [z.gt(0, { error: allowed })]
          : [z.minimum(shortest, { error: allowed }), z.maximum(maxSeconds, { error: allowed })]),
      );
  const isInRange = (seconds: string): boolean =>
    /^(0|[1-9]\d*)(\.\d+)?$/.test(seconds) && z.safeParse(duration(), Number(seconds)).success;
  const durationText = z.string().check(z.refine(isInRange, { error: allowed }));
  const ratio = () =>
    family === selfHosted ? oneOfWords(ratios) : text('a ratio such as 16:9, or adaptive');
  return withDescriptions(
    z.strictObject({
      model,
      prompt: z.optional(z.string({ error: 'text' })),
      duration: z.optional(duration()),
      seconds: nativeField('duration', z.union([duration(), durationText], { error: allowed })),
      resolution: z.optional(
        family === undefined ? text() : oneOfWords(family.resolutions, family.resolutionRule),
      ),
      aspect_ratio: z.optional(ratio()),
      ratio: nativeField('aspect_ratio', ratio()),
      generation_mode: z.optional(oneOfWords(['t2v', 'i2v', 'r2v'])),
      mode: nativeField('generation_mode', oneOfWords(['t2va', 'i2va', 'fl2va', 'l2va', 'ref2va'])),
      prompt_optimization: z.optional(trueOrFalse()),
      image: z.optional(assetUrl()),
      last_frame_image_url: z.optional(assetUrl()),
      input_reference: z.optional(imageSource),
      images: z.optional(urls(9)),
      reference_image_urls: z.optional(urls(9)),
      reference_video_urls: z.optional(urls(3)),
      reference_audio_urls: z.optional(urls(3)),
      audios: nativeField('reference_audio_urls', urls(3)),
      ...overrides,
    }),
    flags,
  );
}

function nativeField<T extends z.core.$ZodType>(field: string, schema: T) {
  const optional = z.optional(schema);
  z.globalRegistry.add(optional, { description: `same as ${field}` });
  return optional;
}

const knownModels = [...official.models, ...selfHosted.models];
const modelRule = `the name of a model, such as ${knownModels.join(', ')}`;
const oneOfModels = ({ models }: Family) => oneOfWords(models, modelRule);
const noOptimization = z.never({ error: 'only with a self-hosted model' });
const otherModel = text(modelRule).check(
  z.regex(new RegExp(`^(?!(${knownModels.join('|')})$)`), { error: modelRule }),
);
const schemas = {
  official: bodyOf(oneOfModels(official), official, { prompt_optimization: z.optional(noOptimization) }),
  selfHosted: bodyOf(oneOfModels(selfHosted), selfHosted, {
    prompt: longPrompt(),
    reference_video_urls: z.optional(urls(0, 'none, because only vendor-h3 accepts reference videos')),
  }),
  other: bodyOf(otherModel, undefined, {}),
};

function schemaOf(body: JsonObject): BodySchema {
  const family = familyOf(body);
  return family === undefined ? schemas.other : family === official ? schemas.official : schemas.selfHosted;
}

/** The schema of a body (specification 2.5), with the limits of section 8 for the models listed there. */
export const schema = z.union([schemas.official, schemas.selfHosted, schemas.other]);

/** Returns a violation for each rule of specification 2.5 and 8 that a body breaks. */
export function check(body: JsonObject): Violation[] {
  return [
    ...checkShape(schemaOf(body), body, flags),
    ...checkInput(body),
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

const inputs = ['prompt', 'last_frame_image_url', 'reference_video_urls', ...references];

// Returns a violation if a body for the official model has neither a prompt nor an asset. The specification does not
// say whether this model requires a prompt (2.5), but a body without any input is a mistake that would be charged.
function checkInput(body: JsonObject): Violation[] {
  const hasInput = inputs.some((name) => hasValue(body[name]) && body[name] !== '');
  if (familyOf(body) !== official || hasInput) return [];
  return [violation(flags, 'prompt', undefined, 'text, unless there is an image or a reference')];
}

// Returns a violation if a body requests the multi-reference mode without a reference image or audio. The rule applies
// only to self-hosted models.
function checkReferences(body: JsonObject): Violation[] {
  const isUnified = body['generation_mode'] === 'r2v';
  if (familyOf(body) !== selfHosted || (!isUnified && body['mode'] !== 'ref2va')) return [];
  const field = isUnified ? 'generation_mode' : 'mode';
  if (references.some((name) => hasValue(body[name]))) return [];
  const allowed = 'multi-reference only with at least one reference image or audio';
  return [violation(flags, field, body[field], allowed)];
}

// Pairs of fields with the same meaning. The specification does not define which field of a pair takes precedence
// (2.5).
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

/** Returns the flags that a body does not set. */
export function unsetFlags(body: JsonObject): string[] {
  return [
    ...(body['duration'] === undefined && body['seconds'] === undefined ? ['duration'] : []),
    ...(body['resolution'] === undefined && familyOf(body) !== selfHosted ? ['resolution'] : []),
  ];
}

/**
 * Returns notes if a body does not follow the specification's advice, or has values or fields that the specification
 * does not list (design 7).
 */
export function advise(body: JsonObject): string[] {
  const family = familyOf(body);
  const native = ['seconds', 'audios', 'mode'].filter((field) => body[field] !== undefined);
  const seconds = body['duration'] ?? body['seconds'];
  const ratio = body['aspect_ratio'] ?? body['ratio'];
  const notes: [boolean, string][] = [
    [
      family === undefined,
      `The specification does not list ${shownValue(body['model'])}, so its limits are not checked.`,
    ],
    [
      family === official && native.length > 0,
      `These native fields of the self-hosted models may not work with vendor-h3: ${native.join(', ')}.`,
    ],
    [family === selfHosted && body['resolution'] === '768P', '768P is converted to 720p.'],
    [family === selfHosted && ratio === 'adaptive', 'With adaptive, the upstream chooses the aspect ratio.'],
    [
      seconds !== undefined && !Number.isInteger(typeof seconds === 'string' ? Number(seconds) : seconds),
      `${shownValue(seconds)} seconds is not a whole number: the model may round it or refuse it.`,
    ],
    [
      typeof ratio === 'string' && !ratios.includes(ratio),
      `The specification does not list the aspect ratio ${shownValue(ratio)}: the model may refuse it.`,
    ],
  ];
  const applicable = notes.filter(([isDue]) => isDue).map(([, note]) => note);
  return [...applicable, ...adviseOfAssets(body), ...adviseOfUnlisted(schemaOf(body), body)];
}

/** Whether a mode requires (true), refuses (false) or allows (absent) each kind of asset. */
interface ModeAssets {
  first?: boolean;
  last?: boolean;
  references?: boolean;
}

// The modes of specification 2.5. In `r2v`, a single image may be the reference.
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

/** Whether a field is present and not an empty list. */
function hasValue(value: Json | undefined): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined;
}

/** Returns notes on assets that the specification advises against, or that contradict the mode (design 7). */
function adviseOfAssets(body: JsonObject): string[] {
  const has = (...fields: string[]): boolean => fields.some((field) => hasValue(body[field]));
  const present = {
    first: has('image', 'images', 'input_reference'),
    last: has('last_frame_image_url'),
    references: has('reference_image_urls', 'reference_video_urls', 'reference_audio_urls', 'audios'),
  };
  const field = body['generation_mode'] === undefined ? 'mode' : 'generation_mode';
  const mode = body[field];
  const { first, last, references } = modes.get(mode) ?? {};
  const clashes = [
    ...(mode === 'i2v' && !present.first && !present.last ? ['needs an image'] : []),
    ...(mode === 'r2v' && !present.first && !present.references ? ['needs a reference'] : []),
    ...clashWith(first, present.first, 'a first frame (image)'),
    ...clashWith(last, present.last, 'a last frame (last_frame_image_url)'),
    ...clashWith(references, present.references, 'references'),
  ];
  const isAdaptive = (body['aspect_ratio'] ?? body['ratio']) === 'adaptive';
  const isAdvised = familyOf(body) === official && Object.values(present).includes(true) && !isAdaptive;
  const lacksFirst = present.last && !present.first && first === undefined;
  return [
    ...(isAdvised ? ['The specification advises --aspect-ratio adaptive for frames and references.'] : []),
    ...(lacksFirst
      ? [
          'last_frame_image_url is set without image, but the specification describes it together with a first frame.',
        ]
      : []),
    ...(clashes.length > 0
      ? [`${field} contradicts the assets: ${JSON.stringify(mode)} ${clashes.join(' and ')}.`]
      : []),
  ];
}

function clashWith(isRequired: boolean | undefined, isPresent: boolean, asset: string): string[] {
  if (isRequired === undefined || isRequired === isPresent) return [];
  return [isRequired ? `needs ${asset}` : `does not accept ${asset}`];
}
