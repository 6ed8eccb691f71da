import type { Job, JobFile } from '../job.ts';

/** A video that was accepted, and as much more as was asked for. */
export interface Submitted {
  job: Job;
  /** What was saved by this call. */
  files: JobFile[];
  /** True where an earlier run had paid for it, and nothing was submitted. */
  resumed: boolean;
}

/** The result of a job, saved. */
export interface Fetched {
  job: Job;
  files: JobFile[];
}

/** Speech, saved. */
export interface Spoken {
  job: Job;
  file: JobFile;
  /** True where an earlier run had paid for it, and nothing was sent. */
  resumed: boolean;
}
