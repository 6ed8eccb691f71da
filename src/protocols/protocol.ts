import type { $ZodType } from 'zod/v4/core';
import type { AuthScheme, Exchange, Failure, Model, Reply, SubmitVerdict } from '../exchange.ts';
import { type Json, type JsonObject, isObject } from '../json.ts';

/**
 * A flag of `submit` and the body field that it sets. A protocol's flag table is data: the command line, the help, the
 * config defaults and the error messages are all derived from it.
 */
export interface Flag {
  /** The flag in commander's syntax: `--duration <seconds>`, `--reference-image <url...>`, `--audio`. */
  flags: string;
  description: string;
  /** The description of the field in a body, if the flag's description applies only to the flag. */
  fieldDescription?: string;
  /** The field's path in the body: `parameters.durationSeconds`, `instances.0.prompt`. */
  field: string;
  /**
   * `text` accepts one value; `list` may be repeated; `switch` also has a `--no-` form; `file` is the path of a file
   * whose bytes are passed to `fromFile`.
   */
  kind: 'text' | 'list' | 'switch' | 'file';
  /**
   * Converts the text from the command line (for `switch`, the boolean) to the field's value.
   * @throws Error whose message states the allowed values without naming the flag.
   */
  parse?: (value: string | boolean) => Json;
  /** Converts a file's bytes to the field's value (kind `file`). Throws like `parse`. */
  fromFile?: (bytes: Uint8Array) => Json;
  /** Returns the field's value with a frame's name in place of the frame's bytes (kind `file`). */
  fromFrame?: (name: string) => Json;
  /** Whether `@FILE` on the command line is replaced with that file's text (kind `text`). */
  atFile?: true;
  /** Whether the field accepts an asset's URL. If so, the flag also accepts a file, which mgw uploads (design 17). */
  isAsset?: true;
  /** Other fields with the same meaning. If one is present, a configured default does not apply. */
  aliases?: readonly string[];
  /** The heading under which the help lists the flag. */
  group?: string;
  /** Values that shell completion offers. A model may accept others. */
  words?: readonly string[];
}

/**
 * How the model list is used: to find a model's protocol (`find`), to fill in a missing field (`fill`), or only to
 * check the body (`check`).
 */
export type ListingUse = 'find' | 'fill' | 'check';

/** One broken rule of the specification, found before anything is sent. */
export interface Violation {
  /** The body's field, under the protocol's own name. */
  field: string;
  /** The value in short, printable form. */
  value: string;
  /** What is allowed, in words: `5 to 15 seconds`. */
  allowed: string;
  /** The long name of the flag that sets the field, if there is one: `--duration`. */
  flag?: string;
  /** The field that was probably meant, if `field` is not in the specification. */
  meant?: string;
  /** Shown instead of `allowed` if the value came from a file and `allowed` quotes the value. */
  allowedAnyway?: string;
}

/** The local checks of a protocol's bodies (design 7). Only commands that compose a body load them. */
export interface Checks {
  /** The body's fields with their types, limits and descriptions. */
  readonly schema: $ZodType;
  /** Returns every broken rule, and every field that is probably misnamed; empty if the body may be sent. */
  readonly check: (body: JsonObject) => Violation[];
  /** Returns the long names of the flags that a body does not set (specification 2.1, 9). */
  readonly unsetFlags: (body: JsonObject) => string[];
  /** Returns notes for the user about a valid body. */
  readonly advise: (body: JsonObject) => string[];
}

/** The maximum quantities that a request can be charged for, in the units of prices (specification 8). */
export interface Quantity {
  /** The number of videos; absent if the request contains no valid number. */
  videos?: number;
  /** The total duration of all videos, in seconds; absent if nothing limits it. */
  seconds?: number;
  /** True if the request leaves the video length to the gateway. */
  isLengthOpen?: boolean;
  /** The number of reference images, excluding first and last frames; absent if 0. */
  referenceImages?: number;
  /** The number of characters in the spoken text, and how many of them are not white space. */
  characters?: number;
  visibleCharacters?: number;
  /** The body, completed with the specification's defaults. */
  body: JsonObject;
}

/** A location of a result. A result's sources are tried in order. */
export type Source =
  /** A path on the gateway itself, below the base URL. The key is sent. */
  | { kind: 'gateway'; path: string }
  /** An absolute URL. `own-site` sends the key if design 6 allows it; `never` sends none. */
  | { kind: 'url'; url: string; key: 'own-site' | 'never' }
  /** Inside the poll's response: `Reply.spooled[index]`. */
  | { kind: 'inline'; index: number };

/** One file of a finished job. */
export interface Result {
  sources: Source[];
  /** The MIME type, if the gateway returned one. */
  mime?: string;
  /** The gateway's metadata for the file (B's `MetaData`), for `--json`. */
  details?: JsonObject;
}

/** A task's state, according to one response. */
export interface Observation {
  kind: 'observation';
  state: 'queued' | 'running' | 'succeeded' | 'failed';
  /** The status word as received, or '' if there was none. */
  nativeStatus: string;
  /** The percentage, 0 to 100; absent if the gateway returned none. */
  progress?: number;
  /** The reason why the task failed (state `failed`). */
  failure?: Failure;
  /** The files to fetch (state `succeeded`). If none has a source, the command exits with 9. */
  results: Result[];
  /**
   * True if the gateway reports that the task is finished, but nothing proves success. Such a task is not
   * recorded as a success.
   */
  unproven?: true;
  /** A warning for the user about a task that has not failed, for example that some videos were filtered. */
  warning?: string;
  /** Reported usage, for `--json`. */
  usage?: JsonObject;
  requestId?: string;
}

/** The verdict on the response to a status query. */
export type QueryVerdict =
  | Observation
  /** The gateway reports that the task does not exist, has expired or belongs to another identity. */
  | { kind: 'missing'; failure: Failure }
  /** The key is refused (401, or a 403 that is not about the balance). */
  | { kind: 'unauthorized'; failure: Failure }
  /**
   * The response proves nothing about the task: a rate limit, a server error, or an unreadable response. The caller
   * queries again later. `hasNoStateYet` is true if the gateway responded normally, but has no state yet.
   */
  | { kind: 'again'; failure: Failure; hasNoStateYet?: true };

/**
 * One video protocol. Every method is pure: it builds a request or reads a response. No method sleeps, retries, prints
 * or accesses the disk. The caller decides how to act on a verdict.
 */
export interface Protocol {
  readonly name: string;
  /** The help line that describes the protocol and its style. */
  readonly about: string;
  /** Example command lines in the help of `submit`. A test runs them against the sandbox. */
  readonly examples: readonly string[];
  /** An example value of `--set`, with the protocol's own field names: `parameters.seed=7`. */
  readonly setExample: string;
  /**
   * Matches the marks of this protocol's models in a model list (specification 2.7). Each mark is reduced to lower-case
   * letters and digits first.
   */
  readonly modelMarks: RegExp;
  /** Models that the specification assigns to this protocol. A protocol in the model list takes precedence. */
  readonly models?: readonly string[];
  /** Whether models with listed versions belong to this protocol. */
  readonly hasVersions?: true;
  /** How the key is sent (specification 5). */
  readonly auth: AuthScheme;
  /** The setting that replaces `auth`, if there is one (specification 5.5). */
  readonly authSetting?: 'cAuth';
  /** The flags of `submit`, in help order. */
  readonly flags: readonly Flag[];
  /** The paths of asset URLs in a body; `*` matches any list index: `FileInfos.*.Url`. */
  readonly assetFields?: readonly string[];
  /** Whether assets are sent as Base64 in the body, so that no store is needed. */
  readonly inlineAssets?: true;
  /** Returns a model's maximum asset size, in bytes; undefined if the specification gives none. */
  maxAssetBytes?(kind: AssetKind, model: string): number | undefined;

  /** Members of a poll's response whose long Base64 strings are media. mgw decodes them as they arrive. */
  readonly inlineMedia?: readonly string[];
  /** Names of the equivalent submission paths, default first, if there are several. */
  readonly endpoints?: readonly string[];
  /** Returns what a body needs the model list for (specification 2.7); undefined if it does not need it. */
  needsListing?(body: JsonObject): ListingUse | undefined;
  /**
   * Returns the body, completed from the model list and checked against it.
   * @throws MgwError('usage') listing the choices.
   */
  complete?(body: JsonObject, models: readonly Model[]): JsonObject;
  checks(): Promise<Checks>;
  /** Returns the body with the protocol's aliases replaced by one spelling. Called before the checks. */
  normalize(body: JsonObject): JsonObject;
  /**
   * Returns the resolution that the gateway produces instead of the requested one, according to the specification;
   * undefined if it produces the requested one.
   */
  convertedResolution?(body: JsonObject): string | undefined;
  /** Returns the maximum quantities that a body requests. The cost is computed from them. */
  quantityOf(body: JsonObject): Quantity;
  /** Returns a body's model, for the job's record. */
  modelOf(body: JsonObject): string | undefined;
  /**
   * Returns the request that submits a body. `endpoint` chooses between equivalent paths.
   * @throws MgwError('usage') if the model's name cannot be used in a path.
   */
  submission(body: JsonObject, options?: { endpoint?: string }): Exchange;
  /** Reads the response to a submission, complete or truncated; never throws. */
  readSubmission(reply: Reply, body: JsonObject): SubmitVerdict;
  /**
   * Returns the request that queries a task's state. `model` is the submitted model, if known.
   * @throws MgwError('result_unavailable') if the handle cannot be part of a path, or belongs to a different model.
   */
  query(handle: string, model?: string): Exchange;
  /** Reads the response to a status query; never throws. */
  readQuery(reply: Reply, handle: string): QueryVerdict;
  /**
   * Whether a response that is not media reports that the result is not ready yet. If so, mgw requests the result again
   * (specification 4.3).
   */
  notReady(reply: Reply): boolean;
}

/** Returns the number of videos that a body requests, or 1 if the number is invalid. */
export function videoCount(protocol: Protocol, body: JsonObject): number {
  return protocol.quantityOf(body).videos ?? 1;
}

/** The kinds of assets. */
export type AssetKind = 'image' | 'video' | 'audio';

const storedForm = /^sha256:[\da-f]{64}(?:\.[a-z\d]{1,8})?(?:#(?:first|last))?$/;

/**
 * Whether a string names a file by its content: `sha256:`, the SHA-256 hash and the extension. A trailing `#first` or
 * `#last` means a frame of that video. Fingerprints and the ledger contain this name, because a URL's signature
 * changes, and a frame's bytes depend on the ffmpeg version (design 17).
 */
export function isStoredName(text: string): boolean {
  return storedForm.test(text);
}

/** Returns the names of files and frames in a request, as `isStoredName` describes them. */
export function storedNamesIn(request: unknown): Set<string> {
  const text = JSON.stringify(request) ?? '';
  return new Set(
    Array.from(text.matchAll(/"(sha256:[^"]*)"/g), ([, name = '']) => name).filter(isStoredName),
  );
}

/** Whether an asset's value is a local file's path: neither a URL nor `@JOB`. */
export function isLocalPath(value: string): boolean {
  return value.trim() !== '' && !/^(@|[a-z][a-z\d+.-]+:)/i.test(value) && !/\p{Cc}/u.test(value);
}

/** Whether an asset's value names an earlier job: `@KEY`, `@KEY:last`. */
export function isEarlierJob(value: string): boolean {
  return /^@./.test(value) && !/\p{Cc}/u.test(value);
}

/** Returns a copy of a body in which each asset's value is replaced with the result of `change`. */
export function withAssets(
  { assetFields = [] }: Protocol,
  body: JsonObject,
  change: (value: string) => string,
): JsonObject {
  return assetFields.reduce<Json>(
    (copy, path) => replaceAssets(copy, path.split('.'), change),
    body,
  ) as JsonObject;
}

/** Returns the asset values in a body. */
export function assetsIn(protocol: Protocol, body: JsonObject): string[] {
  const values: string[] = [];
  withAssets(protocol, body, (value) => {
    values.push(value);
    return value;
  });
  return values;
}

function replaceAssets(value: Json, [step, ...rest]: string[], change: (value: string) => string): Json {
  if (step === undefined) return typeof value === 'string' ? change(value) : value;
  if (step === '*')
    return Array.isArray(value) ? value.map((each) => replaceAssets(each, rest, change)) : value;
  const member = isObject(value) ? value[step] : undefined;
  return member === undefined
    ? value
    : { ...(value as JsonObject), [step]: replaceAssets(member, rest, change) };
}
