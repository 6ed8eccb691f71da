import * as z from 'zod/mini';
import { at, isObject, tryParseJson, type Json, type JsonObject } from '../../json.ts';
import { normalizedName } from '../../nearest.ts';
import {
  adviseOfUnlisted,
  assetUrl,
  checkShape,
  withDescriptions,
  trueOrFalse,
  validated,
  oneOfWords,
  text,
  wholeNumber,
} from '../body-schema.ts';
import { longName, violation } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { shownValue } from '../violations.ts';
import { checkExtInfo } from './ext-info.ts';
import { flags } from './flags.ts';

// The values that specification 2.3 lists for fields that also allow other values.
const listedValues = { Type: ['Url'], Category: ['Image'], Usage: ['FirstFrame', 'Reference'] };

// Returns a schema that accepts any word except a listed word in the wrong letter case.
function listedWord(name: keyof typeof listedValues): z.ZodMiniString {
  const words = listedValues[name];
  const correctWord = (value: string): string | undefined =>
    words.includes(value) ? undefined : words.find((word) => word.toLowerCase() === value.toLowerCase());
  return text(words.join(', ')).check(validated(correctWord));
}

const file = z.strictObject(
  {
    Type: z.optional(listedWord('Type')),
    Url: assetUrl(),
    Category: z.optional(listedWord('Category')),
    Usage: z.optional(listedWord('Usage')),
  },
  { error: 'an object with Type, Url, Category and Usage' },
);

const resolution = 'a size such as 720P, with a capital letter';
// Some models accept a word, such as adaptive, instead of a ratio.
const ratio = 'a ratio such as 16:9';

const output = z.strictObject(
  {
    StorageMode: z.optional(oneOfWords(['Temporary'])),
    Resolution: z.optional(text(resolution).check(z.regex(/^(?!\d+[pk]$)/, { error: resolution }))),
    Duration: z.optional(wholeNumber('a whole number of seconds, at least 1', 1)),
    AspectRatio: z.optional(
      text(ratio).check(z.regex(/^([1-9]\d{0,3}:[1-9]\d{0,3}|[a-zA-Z]+)$/, { error: ratio })),
    ),
    AudioGeneration: z.optional(oneOfWords(['Enabled', 'Disabled'], 'Enabled or Disabled')),
  },
  { error: 'an object' },
);

/** The schema of the body (specification 2.3), including mgw's own field `ReturnUsage`. */
export const schema = withDescriptions(
  z.strictObject({
    ModelName: text('the name of a model in the model list'),
    ModelVersion: text("one of the model's versions, as text"),
    Prompt: z.optional(text()),
    NegativePrompt: z.optional(text()),
    FileInfos: z.optional(z.array(file, { error: 'a list of objects with Type, Url, Category and Usage' })),
    OutputConfig: z.optional(output),
    ExtInfo: z.optional(z.any()),
    ReturnUsage: z.optional(trueOrFalse()),
  }),
  flags,
);

/** Returns every violation that Protocol B's local checks find (design 7, specification 2.3). */
export function check(body: JsonObject): Violation[] {
  const { FileInfos: files = [], Prompt, ExtInfo, ReturnUsage } = body;
  const needsPrompt = Array.isArray(files) && files.length === 0 && Prompt === undefined;
  const extInfo = checkExtInfo(ExtInfo);
  return [
    ...checkShape(schema, body, flags).map((broken) => withUsage(broken, body)),
    ...(needsPrompt ? [violation(flags, 'Prompt', Prompt, 'non-empty text')] : []),
    ...checkRefused(body),
    ...extInfo,
    ...(ReturnUsage === true && extInfo.length === 0 ? [unmergedUsage] : []),
  ];
}

// Adds the flag to a violation in FileInfos. Two flags set FileInfos, so the entry's Usage determines which flag to
// report.
function withUsage(broken: Violation, body: JsonObject): Violation {
  const [entry, member] = broken.field.split(/\.(?=\w+$)/);
  if (!entry?.startsWith('FileInfos.') || member !== 'Url') return broken;
  const flag = at(body, `${entry}.Usage`) === 'FirstFrame' ? '--first-frame' : '--reference';
  return { ...broken, flag };
}

// Reported if `normalize` could not merge `ReturnUsage` into `ExtInfo`.
const unmergedUsage = violation(
  flags,
  'ReturnUsage',
  true,
  'ReturnUsage inside ExtInfo: mgw cannot rewrite this ExtInfo without losing digits of a number',
);

const hostedAssets = 'none, because hosted resources are not supported; use an http(s) URL in FileInfos';
const credentials = 'none, because the gateway adds the upstream credentials itself';
const refusedFields = new Map([
  ['subappid', 'none, because the gateway rejects requests that contain it'],
  ['fileid', hostedAssets],
  ['objectid', hostedAssets],
  ['lastframefileid', hostedAssets],
  ['drafttaskid', hostedAssets],
  ['secretid', credentials],
  ['secretkey', credentials],
]);
const refusedAtRoot = new Map([
  ...refusedFields,
  ['taskid', 'none, because a task id belongs to a query, not to a submission'],
]);

interface Place {
  path: string;
  value: Json | undefined;
  inExtInfo: boolean;
}

// Finds fields that the gateway refuses in any spelling and at any depth, even inside the JSON strings of `ExtInfo`.
// Not recursive, because a body may be nested too deeply for the stack.
function checkRefused(body: JsonObject): Violation[] {
  const violations: Violation[] = [];
  const queue: Place[] = [{ path: '', value: body, inExtInfo: false }];
  for (const place of queue) {
    const names = place.path === '' ? refusedAtRoot : refusedFields;
    for (const [key, value] of membersOf(place)) {
      const path = place.path === '' ? key : `${place.path}.${key}`;
      const allowed = Array.isArray(place.value) ? undefined : names.get(normalizedName(key));
      if (allowed !== undefined)
        violations.push({ field: path, value: allowed === credentials ? '***' : shownValue(value), allowed });
      queue.push({ path, value, inExtInfo: place.inExtInfo || path === 'ExtInfo' });
    }
  }
  return violations;
}

function membersOf({ value, inExtInfo }: Place): [string, Json | undefined][] {
  const json = inExtInfo && typeof value === 'string' ? unwrapJson(value) : value;
  return typeof json === 'object' && json !== null ? Object.entries(json) : [];
}

// Returns the value inside JSON text that may have been serialized several times. An integer with too many digits is
// parsed as a string of the same digits, which ends the recursion.
function unwrapJson(json: string): Json | undefined {
  const value = tryParseJson(json);
  return typeof value === 'string' && value !== json ? unwrapJson(value) : value;
}

/** Returns the flags that a body does not set. Their defaults may differ between model versions (specification 9). */
export function unsetFlags(body: JsonObject): string[] {
  return flags
    .filter(({ field }) => /Duration|Resolution|Audio/.test(field) && at(body, field) === undefined)
    .map(longName);
}

/** Returns notes on values and fields that the specification does not list. */
export function advise(body: JsonObject): string[] {
  return [...adviseOfFiles(body['FileInfos']), ...adviseOfUnlisted(schema, body)];
}

function adviseOfFiles(files: Json | undefined): string[] {
  if (!Array.isArray(files)) return [];
  return files.flatMap((entry, index) =>
    Object.entries(listedValues).flatMap(([name, values]) => {
      const value = isObject(entry) ? entry[name] : undefined;
      if (typeof value === 'string' && values.includes(value)) return [];
      const description = value === undefined ? 'is missing' : `is ${shownValue(value)}`;
      return [`FileInfos.${index}.${name} ${description}; the specification lists ${values.join(' and ')}.`];
    }),
  );
}
