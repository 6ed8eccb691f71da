import * as z from 'zod/mini';
import { messageOf } from '../../errors.ts';
import { parseDecimal } from '../../decimal.ts';
import type { JobKind } from '../../job.ts';
import { isObject, parseBodyJson, type JsonObject } from '../../json.ts';
import { isKeyName, keyNameRules } from '../../jobs/ref.ts';
import { longName } from '../../protocols/compose.ts';
import type { Flag } from '../../protocols/protocol.ts';
import { findProtocol } from '../../protocols/registry.ts';
import { kinds, listItems, remarks, rowFlags, rowId, nameHint } from './fields.ts';
import { shownValue } from '../../protocols/violations.ts';
import type { Problem, WrittenField } from './fields.ts';

/** Returns a check whose message states the allowed values, like the messages of the flag parsers. */
function checkBy<T>(parse: (value: T) => unknown): z.core.$ZodCheck<T> {
  return z.check<T>((context) => {
    try {
      parse(context.value);
    } catch (error) {
      context.issues.push({
        code: 'custom',
        message: messageOf(error),
        input: context.value,
        continue: true,
      });
    }
  });
}

// Returns a pattern that matches the words in any case. A pattern in JSON Schema cannot ignore the case.
function wordPattern(words: readonly string[]): RegExp {
  return new RegExp(`^(${words.map(anyCase).join('|')})$`);
}

function anyCase(word: string): string {
  return word.replace(/[a-z]/g, (letter) => `[${letter.toUpperCase()}${letter}]`);
}

const plainText = z.string('text');
const textOrNumber = z.pipe(z.union([z.string(), z.number()], 'a number or text'), z.transform(String));
// If only one alternative's check fails, zod uses the message of that check.
const switchValue = z.pipe(
  z.union(
    [z.boolean(), z.string().check(z.regex(wordPattern(['true', 'false']), 'true or false'))],
    'true or false',
  ),
  z.transform((value) => String(value).toLowerCase() === 'true'),
);
const wordList = z.pipe(
  z.union(
    [
      z
        .string()
        .check(
          z.describe('values separated by spaces, or by commas or semicolons before a space, a URL or @'),
        ),
      z.array(z.string()),
    ],
    'a list of strings, or one string with spaces or commas between the values',
  ),
  z.transform((value) => (typeof value === 'string' ? listItems(value) : value)),
);

// Returns the schema of a flag's value, including the flag's own check.
function flagSchema(flag: Flag): z.ZodMiniType {
  const { parse, description } = flag;
  const withDescription = z.describe(description);
  if (flag.kind === 'switch') return z.optional(switchValue.check(withDescription));
  if (flag.kind === 'list') {
    const checkEach = checkBy<string[]>((values) => values.forEach((value) => parse?.(value)));
    return z.optional(wordList.check(checkEach, withDescription));
  }
  const check = checkBy<string>((value) => parse?.(value));
  return z.optional(
    isNumeric(flag) ? textOrNumber.check(check, withDescription) : plainText.check(check, withDescription),
  );
}

// A text field does not accept a number, because parsing may change its digits: version 2.0 would become 2.
function isNumeric({ parse }: Flag): boolean {
  try {
    return typeof parse?.('5') === 'number';
  } catch {
    return false;
  }
}

function checkKeyName(text: string): void {
  if (!isKeyName(text)) throw new Error(keyNameRules);
}

function checkNotEmpty(text: string): void {
  if (text.trim() === '') throw new Error('non-empty text');
}

function checkTags(tags: readonly string[]): void {
  if (tags.length > 32 || !tags.every((tag) => isKeyName(tag)))
    throw new Error(`at most 32 words, each of ${keyNameRules}`);
}

function checkBody(value: unknown): void {
  if (typeof value !== 'string' || /^@(?!-$)./.test(value)) return;
  if (value.startsWith('@') || !isObject(parseBodyJson(value)))
    throw new Error('a JSON object, or @FILE to read it from a file');
}

const common = {
  id: z.optional(
    z
      .pipe(textOrNumber, z.transform(rowId))
      .check(
        checkBy(checkKeyName),
        z.describe('permanently names the row: its job is @NAME/ID; spaces become -'),
      ),
  ),
  output: z.optional(
    plainText.check(checkBy(checkNotEmpty), z.describe("path of the row's file in the output folder")),
  ),
  tags: z.optional(wordList.check(checkBy(checkTags), z.describe("words for finding the row's job"))),
};

const body = z.optional(
  z
    .union([z.string(), z.record(z.string(), z.unknown())], 'an object, or @FILE')
    .check(
      checkBy(checkBody),
      z.describe("the body with the protocol's own field names: @FILE, or the object itself"),
    ),
);
const text = z.optional(plainText.check(checkBy(checkNotEmpty), z.describe('the text to speak')));
const file = z.optional(plainText.check(checkBy(checkNotEmpty), z.describe('a file with the text to speak')));

const over = z.optional(
  z
    .pipe(textOrNumber, z.transform(rowId))
    .check(checkBy(checkNotEmpty), z.describe('id of the video row over which batch join lays the speech')),
);

function kindFields(kind: JobKind): Record<string, z.ZodMiniType> {
  if (kind === 'tts') return { text, file, over };
  const endpoints = findProtocol(kind)?.endpoints;
  if (endpoints === undefined) return { body };
  const endpoint = z
    .enum(endpoints, 'one of the equivalent paths')
    .check(z.describe('the path to send the request to'));
  return { body, endpoint: z.optional(endpoint) };
}

function buildRowSchema(kind: JobKind): RowSchema {
  const flags = Object.fromEntries(rowFlags(kind).map((flag) => [longName(flag), flagSchema(flag)]));
  const protocol = z.optional(
    z
      .union([z.literal(kind), z.string().check(z.regex(wordPattern([kind])))])
      .check(z.describe("the row's protocol; allowed in the defaults")),
  );
  return z.strictObject({ protocol, ...common, ...flags, ...kindFields(kind) });
}

type RowSchema = z.ZodMiniType<Record<string, unknown>>;

const rowSchemas: ReadonlyMap<JobKind, RowSchema> = new Map(
  kinds.map((kind) => [kind, buildRowSchema(kind)]),
);

/** Returns a row's schema: the flags of its command and the fields that every row has, without `set.PATH`. */
export function rowSchema(kind: JobKind): RowSchema {
  return rowSchemas.get(kind) ?? z.never();
}

function checkTaskCount(count: string): void {
  if (!/^[1-9]\d{0,3}$/.test(count)) throw new Error('a whole number, 1 to 9999');
}

/** The members of a YAML manifest, except its rows. */
export const headSchema = z.strictObject({
  name: z.optional(textOrNumber.check(checkBy(checkKeyName), z.describe('permanently names the batch'))),
  output: z.optional(
    plainText.check(checkBy(checkNotEmpty), z.describe('template of the output paths, such as {id}.{ext}')),
  ),
  concurrency: z.optional(
    textOrNumber.check(
      checkBy(checkTaskCount),
      z.describe('maximum number of tasks in progress at the gateway'),
    ),
  ),
  budget: z.optional(
    textOrNumber.check(checkBy(parseDecimal), z.describe('maximum cost of all runs of the batch together')),
  ),
});

const row = z.union([...rowSchemas.values()]).register(z.globalRegistry, {
  id: 'row',
  description:
    'The fields of a row. mgw also accepts a column that a template uses, such as animal for {animal}. This schema accepts it only if its name begins with #, as in #animal.',
});
const manifest = z.extend(headSchema, {
  defaults: z.optional(row),
  matrix: z.optional(
    z
      .record(z.string(), z.array(z.unknown()).check(z.minLength(1)))
      .check(z.describe('lists of values by field; each combination makes a row')),
  ),
  rows: z.optional(z.array(row)),
});

const manifestNames = Object.keys(manifest.shape);

/** Returns the JSON Schema of a YAML manifest. `$defs.row` is the schema of a line in JSON Lines. */
export function manifestJsonSchema(): JsonObject {
  const schema = z.toJSONSchema(manifest, {
    io: 'input',
    override: ({ jsonSchema }) => withPaths(jsonSchema),
  });
  return schema as unknown as JsonObject;
}

// Adds what zod cannot express: members whose names match a pattern, and alternative spellings of a name.
function withPaths(schema: z.core.JSONSchema.BaseSchema): void {
  const { properties } = schema;
  if (properties?.['protocol'] === undefined) return;
  const patterns: typeof properties = {
    '^[Ss][Ee][Tt]\\..': {},
    '^#': {},
    [wordPattern(remarks).source]: {},
  };
  for (const [name, property] of Object.entries(properties)) {
    properties[name.replaceAll('-', '_')] ??= property;
    // Begins with a capital letter, because validators refuse a pattern that also matches one of the properties.
    const rest = anyCase(name.slice(1)).replaceAll('-', '[\\s_-]+');
    patterns[`^${name.charAt(0).toUpperCase()}${rest}$`] = property;
  }
  schema.patternProperties = patterns;
}

/** The parsed members of a YAML manifest, except its rows. */
export interface Head {
  name?: string;
  output?: string;
  concurrency?: string;
  /** The amount of the batch's budget, in plain digits. */
  budget?: string;
}

/** Parses a manifest's head. Reports invalid members and omits them. */
export function readHead(fields: readonly WrittenField[], report: (problem: Problem) => void): Head {
  const head: Record<string, unknown> = {};
  for (const { name, value, line } of fields) {
    if (value === null) continue;
    const result = z.safeParse(headSchema, { [name]: value });
    if (result.success) Object.assign(head, result.data);
    else if (manifestNames.includes(name)) {
      const message = `${shownValue(value)} is not allowed; allowed: ${result.error.issues[0]?.message ?? ''}`;
      report({ line, field: name, message });
    } else {
      const message = `a manifest has no ${shownValue(name)}; ${nameHint(name, manifestNames)}`;
      report({ line, message });
    }
  }
  return head;
}
