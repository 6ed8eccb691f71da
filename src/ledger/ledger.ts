import type { Job, JobEvent, Life, Owner, RecordedEvent } from '../job.ts';
import type { IndexKind } from './index-lines.ts';
import type { Ids } from './job-id.ts';

/** As whom a process writes, and for how long: to others it is alive while it holds this. */
export interface Lease {
  owner: Owner;
  /**
   * Asked directly before what cannot be taken back, and without a pause after it.
   * @throws MgwError('unreachable') where others may have found this process dead by now, as after it was stopped.
   */
  assertHeld(): void;
}

/**
 * Where jobs are kept. Every method that writes returns only when what it wrote is durable. The folder of plain
 * files is one such place (`openFileLedger`); a shared one can take its place for fleets (design 4).
 */
export interface Ledger {
  /** An id for a new job, higher than those before it, whatever the clock says. `now` in ms since 1970. */
  newId(now: number): Promise<string>;
  /**
   * Creates a job with its first events, and makes it found by its fingerprint, its key and its handle. An event that
   * bears a time keeps it; `undefined` stands for a line that could not be read where the job comes from.
   * @throws MgwError('local_io') where it cannot be recorded.
   */
  create(id: string, events: readonly (JobEvent | RecordedEvent | undefined)[]): Promise<void>;
  /** Adds an event to a job; `delivered` alone may be lost in a power cut, which does no harm. @throws MgwError('local_io') where it cannot be recorded. */
  append(id: string, event: JobEvent): Promise<void>;
  /** The job as the fold of its events, or undefined where there is none. A damaged record is `unknown`. */
  read(id: string): Promise<Job | undefined>;
  /** The events of a job in their order, `undefined` for a line that cannot be read. */
  events(id: string): Promise<(RecordedEvent | undefined)[]>;
  /**
   * What tells a job's record from what it was before: a text that is another one after each event, and whatever else
   * becomes of the record; undefined where there is none. Quicker than {@link read}, for whoever kept what that gave.
   */
  version(id: string): Promise<string | undefined>;
  /** Ids of all jobs, newest first. */
  ids(): Promise<string[]>;
  /**
   * The same for a list of them, which is quicker where there are many: one whose record was lost may be among them, and those
   * that are known to have succeeded, which nothing takes back, may be left out.
   */
  listed(which?: { leaveOutSucceeded: boolean }): Promise<Ids>;
  /** Removes a job's record, and remembers that it was taken away on purpose. */
  remove(id: string): Promise<void>;
  /**
   * Claims a name for ever: undefined where the claim is ours now, else the content of the claim that stands.
   * Of any number of processes exactly one gets undefined. A tentative claim is one that nothing is done under before
   * {@link confirm} has returned.
   */
  claim(name: string, content: string, isTentative?: boolean): Promise<string | undefined>;
  /** Something is about to be done under a tentative claim of this process. @throws MgwError('local_io') where it must not be. */
  confirm(name: string): Promise<void>;
  /** True where a claim is shown to be tentative still; while this machine runs, that stays true of a dead process. */
  isTentative(name: string): Promise<boolean>;
  /** The content of a claim, or undefined where nobody holds it; empty where the claim is damaged. */
  claimed(name: string): Promise<string | undefined>;
  /** Gives a claim up. */
  release(name: string): Promise<void>;
  /**
   * The jobs that go by a value, newest first, without those that were removed. {@link read} gives undefined for
   * one whose record was lost.
   */
  lookup(kind: Exclude<IndexKind, 'id' | 'removed'>, value: string): Promise<string[]>;
  /**
   * This process, as the others know it. What rests on several steps takes one lease for all of them: an event that names
   * an owner is recorded only while that owner's lease is held.
   */
  lease(): Promise<Lease>;
  /** What can be shown of a process that an event, a claim or a reservation names. */
  lifeOf(owner: Owner): Promise<Life>;
  /** Ends the lease, and what is open. */
  close(): Promise<void>;
}
