import { hash, randomBytes } from 'node:crypto';
import type { Owner } from '../job.ts';
import { isObject, tryParseJson } from '../json.ts';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** Matches a job id: `job_`, nine characters for the time, and five random characters. Ids sort by time. */
export const jobIdPattern = /^job_[0-9a-hjkmnp-tv-z]{14}$/;

/** An ordered list of ids. An implementation may decode each id only when it is read. */
export type Ids = Pick<readonly string[], 'at' | 'length' | 'slice'>;

/** Creates a job id from a time, in ms since 1970. The id sorts after `last`. */
export function newJobId(now: number, last?: string): string {
  let time = '';
  const timestamp = last === undefined ? now : Math.max(now, timeOf(last) + 1);
  for (let remaining = timestamp, i = 0; i < 9; i += 1, remaining = Math.floor(remaining / 32))
    time = `${alphabet[remaining % 32] ?? ''}${time}`;
  const randomPart = [...randomBytes(5)].map((byte) => alphabet[byte % 32]).join('');
  return `job_${time}${randomPart}`;
}

/** Returns the time at which a job id was created, in ms since 1970. */
export function timeOf(id: string): number {
  let time = 0;
  for (const letter of id.slice('job_'.length, -5)) time = time * 32 + alphabet.indexOf(letter);
  return time;
}

/**
 * The names under which jobs and attempts are claimed. The first process to claim a name holds it permanently, so
 * claims decide which process pays.
 */
export const names = {
  /** A submission's first job, by its `--key` or else its fingerprint. */
  first: ({ key, fingerprint }: { key?: string | undefined; fingerprint: string }): string =>
    key === undefined ? `take.${fingerprint}` : `key.${key}`,
  /** The next job under the same name after the given job: a second take, or the successor of a removed job. */
  after: (id: string): string => `take.${id}`,
  /** An attempt to send a job, numbered from 1. */
  attempt: (id: string, attempt: number): string => `send.${id}.${attempt}`,
};

/** Whether a claimed name belongs to an attempt to send a job. */
export function isAttempt(name: string): boolean {
  return name.startsWith('send.');
}

/** The content of a claim on a job's name. */
export interface Holder {
  /** The job's id, chosen before the job was created. */
  job: string;
  fingerprint: string;
  owner: Owner;
}

/** Encodes the content of a claim on a job's name. */
export function holderText({ job, fingerprint, owner }: Holder): string {
  return JSON.stringify({ job, fingerprint, owner });
}

/** Decodes text from {@link holderText}; undefined if the text is damaged. */
export function readHolder(text: string): Holder | undefined {
  const value = tryParseJson(text);
  if (!isObject(value)) return undefined;
  const { job, fingerprint } = value;
  const owner = parseOwner(value['owner']);
  if (typeof job !== 'string' || typeof fingerprint !== 'string' || owner === undefined) return undefined;
  return { job, fingerprint, owner };
}

/** Decodes the content of an attempt's claim: the process that made it. Undefined if the claim is damaged. */
export function readOwner(text: string): Owner | undefined {
  return parseOwner(tryParseJson(text));
}

function parseOwner(value: unknown): Owner | undefined {
  if (!isObject(value)) return undefined;
  const { pid, start, host, instance, lease } = value;
  if (typeof pid !== 'number' || typeof start !== 'string' || typeof host !== 'string') return undefined;
  return {
    pid,
    start,
    host,
    ...(typeof instance === 'string' && { instance }),
    ...(typeof lease === 'string' && { lease }),
  };
}

/**
 * Whether the job with a claimed id exists: `not-created` if it was never created, `lost` if it may have been paid for.
 */
export type ClaimState = 'exists' | 'removed' | 'lost' | 'not-created';

const draftName = /\.[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\.tmp$/;

/** Returns the name in a claim's file name if a chain of jobs begins with that name. Does not return a long name. */
export function firstName(fileName: string): string | undefined {
  if (!/^(key\.|take\.(?!job_))/.test(fileName) || draftName.test(fileName)) return undefined;
  try {
    return decodeURIComponent(fileName);
  } catch {
    return undefined;
  }
}

/** Encodes a claim's name, which may be any string, as a file name that is valid in every file system. */
export function claimFileName(name: string): string {
  const encoded = encodeURIComponent(name);
  // A file name has at most 255 bytes, and a draft's name is 41 bytes longer.
  return encoded.length <= 200 ? encoded : `long-${hash('sha256', name)}`;
}
