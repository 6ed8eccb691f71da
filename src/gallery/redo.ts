import { extname } from 'node:path';
import type { Job } from '../job.ts';
import { canonicalJson, isObject, type Json, type JsonObject } from '../json.ts';
import { compose, type FlagValue, longName, fieldSegments } from '../protocols/compose.ts';
import { type Flag, storedNamesIn } from '../protocols/protocol.ts';
import { requestedValue } from '../protocols/requested-value.ts';
import { findProtocol } from '../protocols/registry.ts';
import { speechFlags } from '../speech/flags.ts';

/** A manifest row, or the reason for its absence. */
type Redo = { row: JsonObject } | { why: string };

/**
 * Returns the manifest row that remakes a job's result. The row's id depends only on the job. The id is therefore the
 * same in every page, and a row that runs twice is paid for once.
 * @param redact removes secrets and signatures from a string. A request that contains any has no row.
 * @param frameRefs a map from the name of each frame of an earlier job to a reference, such as `@JOB:last`
 */
export function redoRow(
  job: Job,
  redact: (text: string) => string,
  frameRefs: ReadonlyMap<string, string> = new Map(),
): Redo {
  const { request } = job;
  if (!isObject(request) || job.record.elided) return { why: 'its record lacks part of the body' };
  const text = JSON.stringify(request);
  if (redact(text) !== text) return { why: 'its body contains a URL that may be signed' };
  const fields = job.protocol === 'tts' ? speechFields(job, request) : videoFields(job, request, frameRefs);
  if (fields === undefined) return { why: 'its body cannot be expressed as a row' };
  if (frameNamesIn(fields).length > 0) return { why: 'it uses a frame of a job that a row cannot refer to' };
  // These fields of a row are templates, in which a literal brace is doubled.
  for (const name of ['prompt', 'text']) {
    const value = fields[name];
    if (typeof value === 'string') fields[name] = value.replace(/[{}]/g, '$&$&');
  }
  const tags = job.tags === undefined ? {} : { tags: job.tags };
  return { row: { id: redoId(job), protocol: job.protocol, ...fields, ...tags } };
}

/** Returns the names of the frames of earlier jobs in a request. */
export function frameNamesIn(request: unknown): string[] {
  return [...storedNamesIn(request)].filter((name) => name.includes('#'));
}

const maxNameLength = 96;

// Replaces the suffix of a row that was itself remade, so that ids do not grow.
function redoId({ id, key }: Job): string {
  const name = key?.split('/')[1] ?? key;
  const bare = name?.replace(/-again-[0-9a-z]{8}$/, '').slice(0, maxNameLength);
  return `${bare === undefined ? '' : `${bare}-`}again-${id.slice(-8)}`;
}

// Converts a body's values to flags if the flags set exactly the same values. The rest remains in the body.
function videoFields(
  job: Job,
  request: JsonObject,
  frameRefs: ReadonlyMap<string, string>,
): JsonObject | undefined {
  const protocol = findProtocol(job.protocol);
  if (protocol === undefined) return undefined;
  const body = structuredClone(request);
  const frames = frameNamesIn(request);
  const flags: Record<string, FlagValue> = {};
  for (const flag of protocol.flags) {
    const value = takenFrom(body, flag, frames);
    if (value !== undefined) flags[longName(flag)] = value;
  }
  const rest = withoutEmpty(body);
  const hasRest = isObject(rest) && Object.keys(rest).length > 0;
  const again = compose(protocol, { flags, ...(hasRest && { body: rest }) });
  if (canonicalJson(again) !== canonicalJson(request)) return { body: request };
  for (const [name, value] of Object.entries(flags))
    if (typeof value === 'string') flags[name] = frameRefs.get(value) ?? value;
  return { ...(flags as JsonObject), ...(hasRest && { body: rest }) };
}

function takenFrom(body: JsonObject, flag: Flag, frames: readonly string[]): string | boolean | undefined {
  if ((flag.kind === 'file' && frames.length === 0) || flag.kind === 'list' || flag.atFile === true)
    return undefined;
  const segments = fieldSegments(flag.field);
  const holder = segments.slice(0, -1).reduce<Json | undefined>(memberOf, body);
  const last = segments.at(-1) ?? '';
  const value = memberOf(holder, last);
  const text = typeof value === 'string' ? value : JSON.stringify(value ?? null);
  const flagValue = [true, false, text, ...frames].find((each) => setsExactly(flag, each, value));
  if (flagValue === undefined) return undefined;
  Reflect.deleteProperty(holder as JsonObject, last);
  return flagValue;
}

function memberOf(holder: Json | undefined, step: string): Json | undefined {
  if (typeof holder !== 'object' || holder === null || !Object.hasOwn(holder, step)) return undefined;
  return (holder as JsonObject)[step];
}

function setsExactly(flag: Flag, given: string | boolean, value: Json | undefined): boolean {
  if (value === undefined || (flag.kind === 'switch') !== (typeof given === 'boolean')) return false;
  // Blank text cannot be a flag: in a table, a blank field is absent, and a flag refuses a blank value.
  if (typeof given === 'string' && given.trim() === '') return false;
  try {
    const parsed = typeof given === 'string' ? flag.fromFrame?.(given) : undefined;
    return canonicalJson(parsed ?? flag.parse?.(given) ?? given) === canonicalJson(value);
  } catch {
    return false;
  }
}

// Omits objects and lists whose whole content became flags, because the flags recreate them.
function withoutEmpty(value: Json): Json | undefined {
  if (Array.isArray(value)) {
    const members = value.map(withoutEmpty);
    return members.every((each) => each === undefined) && value.length > 0 ? undefined : value;
  }
  if (!isObject(value)) return value;
  const members = Object.entries(value).map(([name, each]) => [name, withoutEmpty(each ?? null)] as const);
  const definedMembers = members.filter(([, each]) => each !== undefined);
  return definedMembers.length === 0 ? undefined : Object.fromEntries(definedMembers);
}

const speechParams = new Set(['text', 'speaker', 'audio_params']);

function speechFields(job: Job, request: JsonObject): JsonObject | undefined {
  const params = request['req_params'];
  if (!isObject(params) || typeof params['text'] !== 'string') return undefined;
  const audio = isObject(params['audio_params']) ? params['audio_params'] : {};
  const fields: JsonObject = { text: params['text'] };
  for (const flag of speechFlags) {
    const name = longName(flag);
    const value = name === 'speaker' ? params['speaker'] : audio[name.replaceAll('-', '_')];
    if (value !== undefined) fields[name] = name === 'format' ? formatOf(job, value) : value;
  }
  const others: [string, Json | undefined][] = [
    ...Object.entries(request).filter(([name]) => name !== 'req_params'),
    ...prefixed('req_params', params, (name) => !speechParams.has(name)),
    ...prefixed('req_params.audio_params', audio, (name) => name !== 'format' && name !== 'sample_rate'),
  ];
  for (const [path, value] of others) fields[`set.${path}`] = value;
  return fields;
}

function prefixed(
  path: string,
  members: JsonObject,
  isTaken: (name: string) => boolean,
): [string, Json | undefined][] {
  return Object.entries(members)
    .filter(([name]) => isTaken(name))
    .map(([name, value]) => [`${path}.${name}`, value]);
}

// A WAV file is requested as PCM. Only the file's name distinguishes it from raw PCM.
function formatOf({ files, record }: Job, format: Json): Json {
  const path = files[0]?.path ?? record.goals.find(({ output }) => output !== undefined)?.output ?? '';
  return format === 'pcm' && extname(path).toLowerCase() === '.wav' ? 'wav' : format;
}

/**
 * Returns a flag's value in a job's request, as text. Returns undefined if the value is an object or
 * a list, or was too long to record.
 */
export function requestedText(job: Job, name: string): string | undefined {
  const value = requestedValue(job, name);
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}
