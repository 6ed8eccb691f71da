import { messageOf, usageError } from '../errors.ts';
import { variableName } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';
import type { Job, JobKind } from '../job.ts';
import type { Retry } from '../jobs/ref.ts';
import { printableLine } from '../printable.ts';
import { fillColumns, outputPath, slugOf, type OutputPlace } from '../jobs/output.ts';
import { hash } from 'node:crypto';
import type { ComposedVideo } from '../flows/compose-video.ts';
import type { ComposedSpeech } from '../speech/compose.ts';
import type { Order } from '../jobs/order.ts';
import { at, canonicalJson, type Json } from '../json.ts';
import { longName } from '../protocols/compose.ts';
import { videoCount } from '../protocols/protocol.ts';
import { speechModel } from '../speech/wire.ts';

/** A row's request for one paid submission, composed and checked as by the equivalent `submit` or `tts` command. */
export type Work = VideoWork | SpeechWork;

/** A request as `video X submit` would submit it. */
export type VideoWork = ComposedVideo;

/** A request as `tts` would submit it. */
export type SpeechWork = ComposedSpeech & { protocol: 'tts' } & Pick<
    VideoWork,
    'advice' | 'isFromFile' | 'fault'
  >;

/** Whether a request is for speech. */
export function isSpeech(work: Work): work is SpeechWork {
  return work.protocol === 'tts';
}

/** Returns the kind of job that a request creates. */
export function kindOf(work: Work): JobKind {
  return isSpeech(work) ? 'tts' : work.protocol.name;
}

/** Returns the values that identify a request's job. */
export function submissionOf(work: Work): Pick<Order, 'protocol' | 'body' | 'userBody' | 'variant'> {
  const { body, userBody } = work;
  return { protocol: kindOf(work), body, userBody, variant: isSpeech(work) ? work.variant : undefined };
}

/** Returns the hash of a request. The hash does not depend on the row's name. */
export function hashOf(work: Work): string {
  const { protocol, body, userBody = body, variant = '' } = submissionOf(work);
  return hash('sha256', [protocol, canonicalJson(userBody), variant].join('\n'));
}

/** Returns a request's model; undefined if it has none. */
export function modelOf(work: Work): string | undefined {
  return isSpeech(work) ? speechModel : work.protocol.modelOf(work.body);
}

/** Whether a frame must be extracted from a video before a request is sent. */
export function needsFrame(work: Work): boolean {
  return !isSpeech(work) && /"sha256:[\da-f]{64}\.mp4#/.test(JSON.stringify(work.body));
}

/** Whether a request refers to uploaded files by URL. */
export function needsUrls(work: Work): boolean {
  if (isSpeech(work) || work.protocol.inlineAssets) return false;
  return /"sha256:[\da-f]{64}[."]/.test(JSON.stringify(work.body));
}

/** Returns the number of files that a request creates. */
export function countOf(work: Work): number {
  return isSpeech(work) ? 1 : videoCount(work.protocol, work.body);
}

/** Returns the value of the field that a flag sets in a request, such as `prompt` or `seed`. */
export function fieldOf(work: Work, name: string): Json | undefined {
  if (isSpeech(work)) return name === 'prompt' ? at(work.body, 'req_params.text') : undefined;
  const flag = work.protocol.flags.find((each) => longName(each) === name);
  return flag === undefined ? undefined : at(work.body, flag.field);
}

const extensions: Record<string, string> = { ogg_opus: 'ogg' };

/** Returns the extension of a request's output file, without the dot. */
function extensionOf(work: Work): string {
  return isSpeech(work) ? (extensions[work.format.name] ?? work.format.name) : 'mp4';
}

/** Row states, in display order. */
export const rowStates = [
  'new',
  'running',
  'done',
  'failed',
  'rejected',
  'unknown',
  'changed',
  'blocked',
  'stale',
] as const;

/**
 * A row's state. A `new` row was never accepted. A `running` row was accepted, but no run has finished it. A `rejected`
 * row was refused at no cost, and is sent again. A `changed` row differs from the request that was paid for under its
 * id. A `blocked` row waits for a row that a run skips. A `stale` row was made from a video that has since been remade.
 */
export type RowState = (typeof rowStates)[number];

/** States that `batch retry` selects by a flag of the same name. */
export const retriedByKind: readonly RowState[] = ['failed', 'changed', 'stale'];

/** A row's status according to the ledger. */
export interface RowStatus {
  state: RowState;
  /** The latest take that was, or may have been, accepted; if there is none, the take to submit. */
  take: Retry;
  /** The take that a retry submits, if it is not the take after `take`: a later take was refused or never sent. */
  next?: Retry | undefined;
  /**
   * The differences from the job's request, if the row was changed. The state is then `changed`, or, for a job in doubt
   * or in progress, `unknown` or `running`.
   */
  changes?: string[];
  /** The path of the retry's file, if it differs from `rowPath`, the path of the row's own file. */
  path?: string;
  rowPath?: string;
  /** The row's state before the retry, if the retry's job has no record yet. */
  before?: RowState;
}

/** Whether a row was changed while its task is in progress. */
export function isChangedInProgress({ state, changes }: Pick<RowStatus, 'state' | 'changes'>): boolean {
  return state === 'running' && changes !== undefined;
}

/** A row with its name, request and output path. */
export interface NamedRow {
  row: Row;
  work: Work;
  id: string;
  /** The key of the row's jobs: `NAME/ID`. */
  key: string;
  /** The hash of the row's request, with rows that it waits for represented by their ids. */
  hash: string;
  /** The absolute path of the row's file. May contain `{job}` and `{n}`, whose values are not known yet. */
  path: string;
  /** The folder that must contain the row's files. */
  root: string;
  /** The row's key in the cache of done rows. */
  cacheKey?: string | undefined;
  /** The ids of the rows whose videos this row uses. */
  waitsFor?: readonly string[];
  /** The row that blocks this row or made it stale. */
  because?: Root;
}

/** A row that blocks another row or made it stale. */
export interface Root {
  id: string;
  /** The row's state; undefined if the row is invalid. */
  state?: RowState;
  job?: Job | undefined;
  /** The reason why a row that is done blocks another row. */
  problem?: string;
}

/** A row with its name, request and state. */
export type PlannedRow = NamedRow & RowStatus;

/** Returns a row's display name: its id, or its prompt if it has no id. */
export function labelOf({ row, id, work }: Pick<NamedRow, 'row' | 'id' | 'work'>): string {
  if (row.id !== undefined) return id;
  const text = fieldOf(work, 'prompt');
  return typeof text === 'string' ? `"${printableLine(text, 40)}"` : id;
}

/** The problem if a file that does not belong to the row already exists at the row's output path. */
export const existsText = 'already exists; --force replaces it';

/** The number of hash digits in the name of a row without an id. */
const hashDigits = 16;

/**
 * Determines a row's name and the path of its file.
 * @throws MgwError('usage') that names the problem with its output.
 */
export function nameRow(row: Row, work: Work, name: string, place: OutputPlace): NamedRow {
  const requestHash = hashOf(work);
  const id = row.id ?? requestHash.slice(0, hashDigits);
  const prompt = fieldOf(work, 'prompt');
  const seed = fieldOf(work, 'seed');
  const values = {
    id,
    key: `${name}/${id}`,
    name,
    ext: extensionOf(work),
    index: String(row.index),
    model: modelOf(work),
    protocol: kindOf(work),
    seed: seed === undefined ? undefined : JSON.stringify(seed),
    slug: typeof prompt === 'string' ? slugOf(prompt) : undefined,
    job: undefined,
    n: undefined,
  };
  const { columns = {} } = row;
  const template = fillColumns(place.template, (column) => columns[variableName(column)]);
  const path = pathOf({ ...place, template }, values, row.output);
  if (work.protocol === 'tts' && /\{job\}/.test(path))
    throw usageError('{job} is not known before speech is sent; remove it');
  const root = place.root ?? place.folder;
  const finalPath = countOf(work) === 1 ? path.replaceAll('{n}', '1') : path;
  return { row, work, id, key: `${name}/${id}`, hash: requestHash, path: finalPath, root };
}

function pathOf(...args: Parameters<typeof outputPath>): string {
  try {
    return outputPath(...args);
  } catch (error) {
    throw usageError(messageOf(error));
  }
}
