import type { $ZodType } from 'zod/v4/core';
import type { AuthScheme, Exchange, Failure, Model, Reply, SubmitVerdict } from '../exchange.ts';
import { type Json, type JsonObject, isObject } from '../json.ts';

/**
 * A flag of `submit` and the body field that it sets. The table of a protocol is data: the command line, the
 * help, the defaults of the config and the error messages are all read from it.
 */
export interface Flag {
  /** In commander's syntax: `--duration <seconds>`, `--reference-image <url...>`, `--audio`. */
  flags: string;
  description: string;
  /** Path of the field in the body: `parameters.durationSeconds`, `instances.0.prompt`. */
  field: string;
  /**
   * `text` one value; `list` may be repeated; `switch` also has a `--no-` form; `file` is a path whose bytes are read
   * and passed to `fromFile`.
   */
  kind: 'text' | 'list' | 'switch' | 'file';
  /**
   * Turns the text of the command line (for `switch` the boolean) into the field's value.
   * @throws Error whose message states what is allowed without naming the flag.
   */
  parse?: (value: string | boolean) => Json;
  /** Turns a file's bytes into the field's value (kind `file`). Throws like `parse`. */
  fromFile?: (bytes: Uint8Array) => Json;
  /** Returns the field's value with the name of a frame in place of its bytes (kind `file`). */
  fromFrame?: (name: string) => Json;
  /** Whether `@FILE` on the command line means the text of that file (kind `text`). */
  atFile?: true;
  /**
   * Whether the field accepts the URL of an asset, so that the flag also accepts a file that mgw uploads (design 17).
   */
  isAsset?: true;
  /** Other fields with the same meaning. If one is present, a configured default does not apply. */
  aliases?: readonly string[];
  /** Group in the help. */
  group?: string;
  /** Values that completion offers; a model may accept others. */
  words?: readonly string[];
}

/**
 * How the listing is used: to find the protocol of a model (`find`), to fill in a missing field (`fill`), or only to check
 * the body (`check`).
 */
export type ListingUse = 'find' | 'fill' | 'check';

/** One broken rule of the specification, found before anything is sent. */
export interface Violation {
  /** The body's field, by the protocol's own name. */
  field: string;
  /** The value, short and printable. */
  value: string;
  /** What is allowed, in words: `5 to 15 seconds`. */
  allowed: string;
  /** The long name of the flag that sets the field, if there is one: `--duration`. */
  flag?: string;
  /** The field that was probably meant, if this one is not in the specification. */
  meant?: string;
  /** Shown instead of `allowed` if the value came from a file and `allowed` quotes it. */
  allowedAnyway?: string;
}

/** The local checks of a protocol's bodies (design 7), which only a command that makes a body loads. */
export interface Checks {
  /** The body's fields with their types, limits and descriptions. */
  readonly schema: $ZodType;
  /** Every broken rule, and every field that is probably misnamed; empty if the body may be sent. */
  readonly check: (body: JsonObject) => Violation[];
  /** The flags, by long name, that a body leaves to the model's defaults (specification 2.1, 9). */
  readonly unsetFlags: (body: JsonObject) => string[];
  /** Notes for the user about a valid body. */
  readonly advise: (body: JsonObject) => string[];
}

/** The maximum that a request can cost, in the units of prices (specification 8). */
export interface Quantity {
  /** Absent if the request contains no valid number. */
  videos?: number;
  /** The total seconds of all videos; absent if nothing limits them. */
  seconds?: number;
  /** True if the request leaves the length of its videos to the gateway. */
  isLengthOpen?: boolean;
  /** The number of reference images, which are not first or last frames; absent for 0. */
  referenceImages?: number;
  /** The number of characters in the spoken text, and how many of them are not white space. */
  characters?: number;
  visibleCharacters?: number;
  /** The body, completed with the defaults of the specification. */
  body: JsonObject;
}

/** The location of one result. The sources of one result are tried in order. */
export type Source =
  /** On the gateway itself, below the base URL; the key is sent. */
  | { kind: 'gateway'; path: string }
  /** An absolute URL. `own-site` sends the key if design 6 allows it; `never` sends none. */
  | { kind: 'url'; url: string; key: 'own-site' | 'never' }
  /** Inside the poll's response: `Reply.spooled[index]`. */
  | { kind: 'inline'; index: number };

/** One file of a finished job. */
export interface Result {
  sources: Source[];
  /** MIME type if the gateway returned one. */
  mime?: string;
  /** The gateway's metadata of the file (B's `MetaData`), for `--json`. */
  details?: JsonObject;
}

/** The state of a task according to one response. */
export interface Observation {
  kind: 'observation';
  state: 'queued' | 'running' | 'succeeded' | 'failed';
  /** The status word as received, or '' if there was none. */
  nativeStatus: string;
  /** Percent, 0 to 100, only if the gateway returned it. */
  progress?: number;
  /** The reason why the task failed (state `failed`). */
  failure?: Failure;
  /** The files to fetch (state `succeeded`). If none has a source, the command exits with 9. */
  results: Result[];
  /**
   * True if the gateway reports that the task is finished, but nothing proves success. Such a task is not recorded as a
   * success.
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
   * The response proves nothing about the task: rate limit, server error, or unreadable response. Query again later.
   * `isWell` if the gateway responded normally, but has no state yet.
   */
  | { kind: 'again'; failure: Failure; isWell?: true };

/**
 * One video protocol. Every method is pure: it builds a request or reads a response. It never sleeps, loops, retries,
 * prints or touches the disk. The caller decides how to act on a verdict.
 */
export interface Protocol {
  readonly name: string;
  /** One line of help: the protocol and its style. */
  readonly about: string;
  /** Command lines in the help of `submit`, which a test runs against the sandbox. */
  readonly examples: readonly string[];
  /** The syntax of `--set`, with the protocol's own field names: `parameters.seed=7`. */
  readonly setExample: string;
  /**
   * Matches the marks of this protocol's models in a model listing (specification 2.7): letters and digits, in lower
   * case.
   */
  readonly modelMarks: RegExp;
  /** Models that the specification assigns to this protocol, if the listing does not specify another one. */
  readonly models?: readonly string[];
  /** True if a model with listed versions belongs to this protocol. */
  readonly hasVersions?: true;
  /** How the key is sent (specification 5). */
  readonly auth: AuthScheme;
  /** The setting that replaces `auth`, if there is one (specification 5.5). */
  readonly authSetting?: 'cAuth';
  /** The flags of `submit`, in the order of the help. */
  readonly flags: readonly Flag[];
  /** The places of asset URLs in a body; `*` is any index of a list: `FileInfos.*.Url`. */
  readonly assetFields?: readonly string[];
  /** Whether assets are sent as Base64 in the body, so that no store is needed. */
  readonly inlineAssets?: true;
  /** Returns the maximum size of an asset for a model, in bytes; undefined if the specification gives none. */
  maxAssetBytes?(kind: AssetKind, model: string): number | undefined;

  /** Members of a poll's response whose long Base64 strings are media, and are decoded while they stream. */
  readonly inlineMedia?: readonly string[];
  /** Names of the equivalent paths of a submission, the default first, if there are several. */
  readonly endpoints?: readonly string[];
  /** Returns the number of files that a body requests, if the protocol can make several. Default 1. */
  countOf?(body: JsonObject): number;
  /** Why the model listing is needed (specification 2.7); undefined if it is not. */
  needsListing?(body: JsonObject): ListingUse | undefined;
  /**
   * The body completed from the listing and checked against it.
   * @throws MgwError('usage') listing the choices.
   */
  complete?(body: JsonObject, models: readonly Model[]): JsonObject;
  checks(): Promise<Checks>;
  /** Returns the body with the protocol's aliases replaced by one spelling. Called before the checks. */
  normalise(body: JsonObject): JsonObject;
  /**
   * Returns the resolution that the gateway makes instead of the requested one, according to the specification;
   * undefined if it makes the requested one.
   */
  convertedResolution?(body: JsonObject): string | undefined;
  /** The maximum that a body requests, to compute its cost. */
  quantityOf(body: JsonObject): Quantity;
  /** The model of a body, for the job's record. */
  modelOf(body: JsonObject): string | undefined;
  /**
   * The exchange that submits a body. `endpoint` chooses between equivalent paths.
   * @throws MgwError('usage') if the model's name cannot be put into a path.
   */
  submission(body: JsonObject, options?: { endpoint?: string }): Exchange;
  /** Reads the response to a submission, complete or truncated; never throws. */
  readSubmission(reply: Reply, body: JsonObject): SubmitVerdict;
  /**
   * The exchange that queries a task's state. `model` is the submitted model, if known.
   * @throws MgwError('result_unavailable') if the handle cannot be part of a path, or belongs to another model.
   */
  query(handle: string, model?: string): Exchange;
  /** Reads the response to a status query; never throws. */
  readQuery(reply: Reply, handle: string): QueryVerdict;
  /**
   * Whether a response that is not media reports that the result is not ready yet (specification 4.3), so that it is
   * requested again.
   */
  notReady(reply: Reply): boolean;
}

/** What an asset is. */
export type AssetKind = 'image' | 'video' | 'audio';

const storedForm = /^sha256:[\da-f]{64}(?:\.[a-z\d]{1,8})?(?:#(?:first|last))?$/;

/**
 * Whether a string names a file by its content: `sha256:`, the SHA-256, and its extension; `#first` or `#last` after it
 * is a frame of that video. It replaces the URL in fingerprints and in the ledger, because the signature of a URL
 * changes, and the bytes of a frame depend on the version of ffmpeg (design 17).
 */
export function isStoredName(text: string): boolean {
  return storedForm.test(text);
}

/** Whether an asset's value is the path of a local file: it is not a URL. A leading `@` is reserved for jobs. */
export function isLocalPath(value: string): boolean {
  return value.trim() !== '' && !/^(@|[a-z][a-z\d+.-]+:)/i.test(value) && !/\p{Cc}/u.test(value);
}

/** Whether an asset's value names an earlier job: `@KEY`, `@KEY:last`. */
export function isEarlierJob(value: string): boolean {
  return /^@./.test(value) && !/\p{Cc}/u.test(value);
}

/**
 * Returns a copy of a body with each string at the places of the protocol's assets replaced by what `change` returns.
 */
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

function replaceAssets(value: Json, [step, ...rest]: string[], change: (value: string) => string): Json {
  if (step === undefined) return typeof value === 'string' ? change(value) : value;
  if (step === '*')
    return Array.isArray(value) ? value.map((each) => replaceAssets(each, rest, change)) : value;
  const member = isObject(value) ? value[step] : undefined;
  return member === undefined
    ? value
    : { ...(value as JsonObject), [step]: replaceAssets(member, rest, change) };
}
