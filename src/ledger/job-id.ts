import { randomBytes } from 'node:crypto';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** The form of a job id: `job_`, nine characters of time, five random ones. Ids sort by time. */
export const jobIdForm = /^job_[0-9a-hjkmnp-tv-z]{14}$/;

/** An ordered list of ids, which may decode them only when they are read. */
export type Ids = Pick<readonly string[], 'at' | 'length' | 'slice'>;

/** Creates a job id for a time in ms since 1970, higher than `last`. */
export function newJobId(now: number, last?: string): string {
  let time = '';
  const at = last === undefined ? now : Math.max(now, timeOf(last) + 1);
  for (let rest = at, i = 0; i < 9; i += 1, rest = Math.floor(rest / 32))
    time = `${alphabet[rest % 32] ?? ''}${time}`;
  const randomPart = [...randomBytes(5)].map((byte) => alphabet[byte % 32]).join('');
  return `job_${time}${randomPart}`;
}

/** The time at which a job id was created, ms since 1970. */
export function timeOf(id: string): number {
  let time = 0;
  for (const letter of id.slice('job_'.length, -5)) time = time * 32 + alphabet.indexOf(letter);
  return time;
}
