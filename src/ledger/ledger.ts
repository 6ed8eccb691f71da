import type { Job, JobEvent, Life, Owner, RecordedEvent } from '../job.ts';
import type { Ids, ClaimState } from './names.ts';

/** The identity under which a process writes. Other processes consider the process alive while it holds the lease. */
export interface Lease {
  owner: Owner;
  /**
   * Checks the lease. Call this immediately before an action that cannot be undone.
   * @throws MgwError('unreachable') if other processes may consider this process dead, for example after it was
   * suspended.
   */
  assertLease(): void;
}

/** The current lease of a process on another machine. */
export interface UncertainLease {
  /** The end of the lease, by the ledger's clock. A renewal changes this value. */
  until: string;
  leftMs: number;
}

/**
 * The storage of jobs. Every method that writes returns only when its data is durable, except `confirm`, and `append`
 * for a `delivered` event. There are two implementations: a folder of plain files (`openFileLedger`), and PostgreSQL
 * (design 4, 15).
 */
export interface Ledger {
  /**
   * Creates an id for a new job, higher than all earlier ids even if the clock was set back. `now` is in ms since 1970.
   */
  newId(now: number): Promise<string>;
  /**
   * Creates a job with its first events. An event without a time gets the current time; `undefined` is a line that was
   * unreadable in an imported job. If several processes try, exactly one call returns true. Returns false if a job with
   * this id exists or was removed. With `restores`, a removed job is created again.
   * @throws MgwError('local_io') if the job cannot be recorded.
   */
  create(
    id: string,
    events: readonly (JobEvent | RecordedEvent | undefined)[],
    restores?: boolean,
  ): Promise<boolean>;
  /**
   * Adds an event to a job. A power failure may lose only a `delivered` event, and that loss is harmless.
   * @throws MgwError('local_io') if the event was not recorded, for example because the job was removed. If the event
   * is a fact, it is kept, and {@link flush} and later calls try to record it again.
   */
  append(id: string, event: JobEvent): Promise<void>;
  /**
   * Tries to record the facts that could not be recorded before, for example because the disk was full. A process that
   * waits for another process calls this, because the other process may be waiting for these facts. Facts that still
   * cannot be recorded are kept.
   * @throws MgwError('unreachable') if the ledger's database is unreachable.
   */
  flush(): Promise<void>;
  /** Computes a job from its events; undefined if there is no such job. A job with a damaged record is `unknown`. */
  read(id: string): Promise<Job | undefined>;
  /** Returns a job's events in order, with `undefined` for each line that cannot be read. */
  events(id: string): Promise<(RecordedEvent | undefined)[]>;
  /** Returns a string that changes with the job's record; undefined if there is no record. Faster than {@link read}. */
  version(id: string): Promise<string | undefined>;
  /** Returns the ids of all jobs, newest first. */
  ids(): Promise<string[]>;
  /**
   * Like {@link ids}, but faster. The result may include jobs whose records no longer exist, and can exclude jobs that
   * are known to have succeeded.
   */
  listed(filter?: { excludeSucceeded: boolean }): Promise<Ids>;
  /** Removes a job's record atomically and permanently. Only `restores` can create a job with this id again. */
  remove(id: string): Promise<void>;
  /** Prevents a job from being created. Returns false if the job exists. */
  forbid(id: string): Promise<boolean>;
  /** Returns whether a claim's job exists; `lost` if it does not exist but may have been paid for. */
  claimState(id: string): Promise<ClaimState>;
  /**
   * Claims a name permanently. Returns undefined if this process now holds the claim. Otherwise, returns the content of
   * the existing claim, or '' if that is damaged. If several processes try, exactly one call returns undefined.
   */
  claim(name: string, content: string): Promise<string | undefined>;
  /** Returns a claim's content: '' if the claim is damaged, undefined if the name is free. */
  claimed(name: string): Promise<string | undefined>;
  /** Returns the claimed names with which chains of jobs begin, except names that are too long for a file name. */
  firstNames(): Promise<string[]>;
  /**
   * Records that the work under a claim is about to begin. A power failure may lose this record. Callers must record
   * beforehand everything that must survive a power failure.
   * @throws MgwError('local_io') if the work must not begin.
   */
  confirm(name: string): Promise<void>;
  /** Whether the work under a claim may have begun, even if there is no event for it. */
  isConfirmed(name: string): Promise<boolean>;
  /**
   * Returns the ids of jobs with the given fingerprint or handle, newest first. The result may miss a job, or include
   * one whose record no longer exists, so no payment depends on it.
   */
  lookup(kind: 'fingerprint' | 'handle', value: string): Promise<string[]>;
  /**
   * Returns this process's lease. An operation of several steps uses one lease throughout: an event with an owner is
   * recorded only while that owner holds its lease.
   */
  lease(): Promise<Lease>;
  /** Whether the process that wrote an event, a claim or a reservation is alive or dead, if that can be determined. */
  lifeOf(owner: Owner): Promise<Life>;
  /**
   * Returns the lease of a process that cannot be observed from this machine and may be alive or dead until the lease
   * ends. Undefined if the lease has ended or {@link lifeOf} is certain.
   */
  uncertainLease(owner: Owner): Promise<UncertainLease | undefined>;
  /** Ends the lease and closes all connections and files. */
  close(): Promise<void>;
}
