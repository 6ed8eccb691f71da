import type { Job, JobEvent } from '../job.ts';

/**
 * Where jobs are kept. Every method that writes returns only when what it wrote is durable. The folder of plain
 * files is one such place (`openFileLedger`); a shared one can take its place for fleets (design 4).
 */
export interface Ledger {
  /** Creates a job with its first events. @throws MgwError('local_io') where it cannot be recorded. */
  create(id: string, events: readonly JobEvent[]): Promise<void>;
  /** Adds an event to a job. @throws MgwError('local_io') where it cannot be recorded. */
  append(id: string, event: JobEvent): Promise<void>;
  /** The job as the fold of its events, or undefined where there is none. A damaged record is `unknown`. */
  read(id: string): Promise<Job | undefined>;
  /** Ids of all jobs, newest first. */
  ids(): Promise<string[]>;
  /** Removes a job's record. */
  remove(id: string): Promise<void>;
  /**
   * Claims a name for ever: undefined where the claim is ours now, else the content of the claim that stands.
   * Of any number of processes exactly one gets undefined.
   */
  claim(name: string, content: string): Promise<string | undefined>;
  /** The content of a claim, or undefined where nobody holds it. */
  claimed(name: string): Promise<string | undefined>;
  /** Gives a claim up. */
  release(name: string): Promise<void>;
  /** Remembers that a job goes by a fingerprint or a handle. */
  index(kind: IndexKind, value: string, id: string): Promise<void>;
  /** The jobs that were indexed by a value, newest first; all jobs where the index is damaged. */
  lookup(kind: IndexKind, value: string): Promise<string[]>;
}

/** What jobs are looked up by. */
export type IndexKind = 'fingerprint' | 'handle';
