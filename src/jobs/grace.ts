import type { Job } from '../job.ts';

/** A handle may be unknown to a query for so long after its submission, ms (design 6). */
const notFoundGraceMs = 60_000;

/** True where a job was submitted so lately that "not found" proves nothing yet; `now` in ms since 1970. */
export function isTooNew(job: Job, now: number): boolean {
  const since = Date.parse(job.submitted_at ?? '');
  return !Number.isNaN(since) && now - since <= notFoundGraceMs;
}

/** True where a wait has gone on for so short a time, ms, that "not found" of a new job proves nothing yet. */
export function isInGrace(waitedMs: number): boolean {
  return waitedMs <= notFoundGraceMs;
}
