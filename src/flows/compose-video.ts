import type { Exchange } from '../exchange.ts';
import { messageOf, MgwError, usageError } from '../errors.ts';
import { at, type JsonObject } from '../json.ts';
import { compose, longName, type ComposeInput, dottedPath } from '../protocols/compose.ts';
import type { Settings } from '../config/resolve.ts';
import { findProtocol, protocolNames } from '../protocols/registry.ts';
import type { Checks, Flag, ListingUse, Protocol, Violation } from '../protocols/protocol.ts';
import { shownValue, valueInFile, violationMessage } from '../protocols/violations.ts';
import { listedModels, type Listing, recallModels } from './models.ts';
import { isKnownToServe, refuseOtherProtocol } from './model-protocol.ts';
import { withSettings } from './settings.ts';
import type { Session } from './session.ts';
import {
  checkFrames,
  type EarlierAssets,
  type NamedFiles,
  namedFiles,
  type ReadLocalFile,
  uploadFor,
} from './uploads.ts';

/** The parts of a request body, and options for composing it. */
export interface BodyParts extends Omit<ComposeInput, 'defaults'> {
  /** The defaults to use instead of this machine's configured ones, by flag. */
  defaults?: Record<string, unknown> | undefined;
  /** Whether to run the local checks. Default: true. */
  check?: boolean | undefined;
  /** Whether this is a dry run. A dry run fetches no file, and the model list only to fill in a missing field. */
  dryRun?: boolean | undefined;
  /** The request path to use, if the protocol has several equivalent paths. */
  endpoint?: string | undefined;
  /** Whether to check the status, type and size of each asset before the video is paid for. */
  checkAssets?: boolean | undefined;
  /** Reads the local files named by asset flags. If absent, asset flags accept only URLs. */
  readLocalFile?: ReadLocalFile | undefined;
  /** Videos of earlier jobs, by asset flag value. Values missing from the map are looked up in the ledger. */
  inputs?: EarlierAssets | undefined;
}

/** A video that can be submitted: its request and the body that the user specified. */
export interface ComposedVideo {
  /** The protocol with its settings applied. */
  protocol: Protocol;
  /** The body to send, completed from the configured defaults and the model list. */
  body: JsonObject;
  /**
   * The body that the user specified, with aliases replaced. Two commands with the same `userBody` request the same
   * video.
   */
  userBody: JsonObject;
  /** The configured defaults that completed the body, by flag; absent for a resubmission. */
  defaults?: Record<string, unknown>;
  exchange: Exchange;
  /** The value of `--endpoint`. */
  endpoint?: string | undefined;
  /** Finds the videos of earlier jobs, or fetches those that are missing; absent if the body was not composed here. */
  findVideos?: () => Promise<void>;
  /** Uploads the body's files and returns the request with their URLs; absent if the body has no files to upload. */
  upload?: (() => Promise<Exchange>) | undefined;
  /**
   * Why the video cannot be paid for: the model list could not be fetched, or it refuses the request. An earlier job of
   * the same request can be resumed nevertheless. `findVideos` and `upload` throw this error.
   */
  fault?: MgwError | undefined;
  /** Sentences about values that are sent, but may not have the effect that the user expects. */
  advice: string[];
  /** Whether a body field's value came from a file. Messages do not quote such a value. */
  isFromFile?: (field: string) => boolean;
}

/**
 * Composes a video from its parts and the configured defaults, completes it from the model list, and checks it.
 * @returns the video, and a note on the flags that are left to the model's defaults
 * @throws MgwError('usage') that lists every problem except those of the model list, which the video's `fault` reports.
 * A dry run throws those too.
 */
export async function composeVideo(
  session: Session,
  baseProtocol: Protocol,
  parts: BodyParts,
  listing: Listing = (use) => listedModels(session, use),
): Promise<{ video: ComposedVideo; defaults: string | undefined }> {
  const { body: rawBody, set, fromFiles, check: isChecked = true, endpoint } = parts;
  const { flags, files, labels, findVideos } = await filesOf(session, baseProtocol, parts);
  const input = { body: rawBody, flags, set, fromFiles };
  const isFromFile = fileFields(baseProtocol, parts);
  const modelField = baseProtocol.flags.find((flag) => longName(flag) === 'model')?.field ?? 'model';
  const isModelQuoted = !isFromFile(modelField);
  const settings = await session.settings();
  const protocol = withSettings(baseProtocol, settings);
  checkDefaultNames(settings);
  const userBody = protocol.normalise(compose(protocol, input));
  const configured = settings.defaultsFor(protocol.name, protocol.modelOf(userBody));
  const defaults = checkFlagNames(protocol, parts.defaults ?? configured);
  const composed = protocol.normalise(compose(protocol, { ...input, defaults }));
  const checks = await protocol.checks();
  const mayFill = protocol.needsListing?.(composed) === 'fill';
  const checkViolations = (violations: Violation[], checkedBody: JsonObject): void =>
    throwViolations(
      protocol,
      violations,
      isFromFile,
      isModelQuoted ? protocol.modelOf(checkedBody) : undefined,
    );
  if (isChecked) checkViolations(violationsBeforeListing(checks, composed, mayFill), composed);
  const list = { listing, isModelQuoted, unlisted: [] as string[] };
  const { body, fault } = await orFault(composed, parts.dryRun, async () => {
    const unchecked = await completeFromListing(session, protocol, composed, parts, list);
    if (isChecked && (mayFill || unchecked !== composed)) checkViolations(checks.check(unchecked), unchecked);
    return unchecked;
  });
  if (isChecked) checkFrames(protocol, body, files);
  const exchange = protocol.submission(body, { endpoint });
  const uploadOptions = { endpoint, checkAssets: parts.checkAssets, labels };
  const upload = uploadFor(session, protocol, body, files, uploadOptions);
  const advice = [...list.unlisted, ...checks.advise(body)];
  const video = {
    protocol,
    body,
    userBody,
    defaults,
    endpoint,
    exchange,
    findVideos,
    upload,
    advice,
    isFromFile,
  };
  if (fault !== undefined) return { video: resumableOnly(video, fault), defaults: undefined };
  return { video, defaults: defaultsNote(protocol, body, checks.unsetFlags(body)) };
}

/** Returns a video that can be resumed, but not paid for: if no earlier job is found, an attempt to pay throws `fault`. */
export function resumableOnly(video: ComposedVideo, fault: MgwError): ComposedVideo {
  const fail = (): Promise<never> => Promise.reject(fault);
  return { ...video, findVideos: fail, upload: fail, fault };
}

// Returns the completed body. If the model list does not allow that, returns `composed` with the error; a dry run
// throws it.
async function orFault(
  composed: JsonObject,
  isDryRun: boolean | undefined,
  complete: () => Promise<JsonObject>,
): Promise<{ body: JsonObject; fault?: MgwError }> {
  try {
    return { body: await complete() };
  } catch (error) {
    if (isDryRun || !(error instanceof MgwError)) throw error;
    return { body: composed, fault: error };
  }
}

async function filesOf(session: Session, protocol: Protocol, parts: BodyParts): Promise<NamedFiles> {
  const { flags, readLocalFile: read, inputs, dryRun } = parts;
  if (read === undefined) return { flags, files: new Map(), labels: new Map(), findVideos: async () => {} };
  return namedFiles(session, protocol, flags, read, inputs, modelIn(protocol, parts), dryRun !== true);
}

function modelIn(protocol: Protocol, { flags, body }: BodyParts): string | undefined {
  const { model } = flags;
  return typeof model === 'string' ? model : protocol.modelOf(body ?? {});
}

function defaultsNote(protocol: Protocol, body: JsonObject, flags: readonly string[]): string | undefined {
  const [first] = flags;
  if (first === undefined) return undefined;
  const setting = `defaults.video.${protocol.name}.${protocol.modelOf(body) ?? 'MODEL'}.${first}`;
  return (
    `Using the model's defaults, which may change, for: --${flags.join(', --')}. ` +
    `To pin one: mgw config set ${setting} VALUE`
  );
}

function throwViolations(
  protocol: Protocol,
  violations: Violation[],
  isFromFile: (field: string) => boolean,
  model: string | undefined,
): void {
  if (violations.length === 0) return;
  const quotedViolations = violations.map((violation) =>
    isFromFile(violation.field) && violation.value !== ''
      ? { ...violation, value: valueInFile, allowed: violation.allowedAnyway ?? violation.allowed }
      : violation,
  );
  const isOfModel = violations.some(({ flag }) => flag === '--model');
  throw usageError(
    violationMessage(quotedViolations, model),
    isOfModel ? ['mgw', 'models', '--protocol', protocol.name] : undefined,
  );
}

// Returns a function that determines whether a field's value came from a file. Flags override the `--body` file.
function fileFields(
  { flags: table }: Protocol,
  { flags, set = [], fromFiles = [] }: BodyParts,
): (field: string) => boolean {
  const usedFlags = table.filter((flag) => Object.hasOwn(flags, longName(flag)));
  const isRead = (flag: Flag): boolean => flag.kind === 'file' || fromFiles.includes(longName(flag));
  const isIn = (field: string, fields: readonly string[]): boolean =>
    fields.some((each) => field === each || field.startsWith(`${each}.`));
  const readFields = usedFlags.filter(isRead).map(({ field }) => field);
  const writtenFields = [
    ...usedFlags.filter((flag) => !isRead(flag)).map(({ field }) => field),
    ...set.map((entry) => dottedPath(entry.slice(0, Math.max(0, entry.indexOf('='))))),
  ];
  const containsRead = (field: string): boolean => readFields.some((each) => each.startsWith(`${field}.`));
  return (field) =>
    isIn(field, readFields) ||
    containsRead(field) ||
    (fromFiles.includes('body') && !isIn(field, writtenFields));
}

// Returns the violations to report before the model list is fetched: all except missing fields that the model list may
// fill in.
function violationsBeforeListing(checks: Checks, body: JsonObject, mayFill: boolean): Violation[] {
  return checks.check(body).filter(({ field }) => !mayFill || at(body, field) !== undefined);
}

// With --dry-run or --no-check, fetches the model list only if the body lacks a field. Adds advice to `unlisted` if the
// model list lacks the model, and the protocol accepts unlisted models or the model list is incomplete.
async function completeFromListing(
  session: Session,
  protocol: Protocol,
  body: JsonObject,
  { check = true, dryRun = false }: BodyParts,
  { listing, isModelQuoted, unlisted }: { listing: Listing; isModelQuoted: boolean; unlisted: string[] },
): Promise<JsonObject> {
  const model = protocol.modelOf(body);
  const use = await listingUse(session, protocol, body);
  const isFetched = use === 'fill' || (use === 'check' && check && !dryRun);
  const models = isFetched ? await listing(use) : undefined;
  if (check && model !== undefined)
    refuseOtherProtocol(protocol, model, models ?? recallModels(await session.settings()), isModelQuoted);
  if (models === undefined) return body;
  const isListed = models.some(({ id }) => id.replace(/^models\//, '') === model);
  if (!isListed && (protocol.complete === undefined || models.isIncomplete)) {
    const list = `${models.isIncomplete ? 'the fetched part of ' : ''}the gateway's model list`;
    unlisted.push(`--model: ${isModelQuoted ? shownValue(model) : valueInFile} is not in ${list}.`);
    return body;
  }
  try {
    return protocol.complete?.(body, models) ?? body;
  } catch (error) {
    if (check)
      throw isModelQuoted
        ? error
        : usageError(`--model: ${valueInFile} is not in the model list exactly as written.`);
    session.note(`Could not complete the request from the model list: ${messageOf(error)}`);
    return body;
  }
}

// Returns what the model list is used for; undefined if it is not used. Even for a protocol that needs no model list,
// the list is used to check the model, unless the protocol is known to serve the model.
async function listingUse(
  session: Session,
  protocol: Protocol,
  body: JsonObject,
): Promise<ListingUse | undefined> {
  const protocolUse = protocol.needsListing?.(body);
  const model = protocol.modelOf(body);
  if (protocolUse !== undefined || model === undefined) return protocolUse;
  return isKnownToServe(protocol, model, await session.settings()) ? undefined : 'check';
}

// Rejects a default under a misspelled protocol: it would be ignored, and the video could cost more than intended.
function checkDefaultNames({ videoDefaults = {}, profile }: Settings): void {
  const unknownName = Object.keys(videoDefaults).find((name) => findProtocol(name) === undefined);
  if (unknownName === undefined) return;
  const text = `Profile ${profile.value} has defaults.video.${unknownName}, but there is no protocol ${unknownName}. Available: ${protocolNames.join(', ')}. Nothing was sent. Correct the name in the config file.`;
  throw new MgwError('config', text, { next: ['mgw', 'config', 'path'] });
}

function checkFlagNames(protocol: Protocol, defaults: Record<string, unknown>): Record<string, unknown> {
  const names = new Set(protocol.flags.map(longName));
  const unknownFlag = Object.keys(defaults).find((name) => !names.has(name));
  if (unknownFlag !== undefined)
    throw usageError(`defaults.video.${protocol.name}: there is no flag --${unknownFlag}.`);
  return defaults;
}
