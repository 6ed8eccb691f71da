import { hash } from 'node:crypto';
import type { Owner } from '../job.ts';
import { isObject, tryParseJson } from '../json.ts';

/**
 * The names under which jobs and attempts are claimed. The first process to claim a name has it, and no claim is ever given
 * up: claims decide about payments.
 */
export const names = {
  /** The first job of a submission: by its `--key`, or by what it asks for. */
  first: ({ key, fingerprint }: { key?: string | undefined; fingerprint: string }): string =>
    key === undefined ? `take.${fingerprint}` : `key.${key}`,
  /** The job that follows another one under the same name: a second take, or the next job after a removed one. */
  after: (id: string): string => `take.${id}`,
  /** One attempt to send a job, from 1. */
  attempt: (id: string, attempt: number): string => `send.${id}.${attempt}`,
};

/** What the claim of a job's name says. */
export interface Holder {
  /** The id that was chosen before the job was created. */
  job: string;
  fingerprint: string;
  owner: Owner;
}

/** The content of a claim that gives a name to a job. */
export function holderText({ job, fingerprint, owner }: Holder): string {
  return JSON.stringify({ job, fingerprint, owner });
}

/** Reads {@link holderText}; undefined if it is damaged. */
export function readHolder(text: string): Holder | undefined {
  const value = tryParseJson(text);
  if (!isObject(value)) return undefined;
  const { job, fingerprint } = value;
  const owner = ownerIn(value['owner']);
  if (typeof job !== 'string' || typeof fingerprint !== 'string' || owner === undefined) return undefined;
  return { job, fingerprint, owner };
}

/** The process that made an attempt's claim, whose content is the owner as JSON; undefined if the claim is damaged. */
export function readOwner(text: string): Owner | undefined {
  return ownerIn(tryParseJson(text));
}

function ownerIn(value: unknown): Owner | undefined {
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

/** What became of the id that a claim names: `unmade` if no job of it was ever created. */
export type Fate = 'there' | 'removed' | 'lost' | 'unmade';

/** Encodes a claim's name as it is stored: any text may be one, and every file system takes its characters and its length. */
export function claimName(name: string): string {
  const encoded = encodeURIComponent(name);
  // A file's name has 255 bytes at most, and a draft's is longer by 41.
  return encoded.length <= 200 ? encoded : `long-${hash('sha256', name)}`;
}
