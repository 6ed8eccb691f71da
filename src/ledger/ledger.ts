import type { Job, JobEvent, Life, Owner, RecordedEvent } from '../job.ts';
import type { Ids } from './job-id.ts';
import type { Fate } from './names.ts';

/** As whom a process writes, and for how long: to others it is alive while it holds this. */
export interface Lease {
  owner: Owner;
  /**
   * Asked directly before what cannot be taken back, and without a pause after it.
   * @throws MgwError('unreachable') if other processes may have found this one dead by now, as after it was stopped.
   */
  assertHeld(): void;
}

/** The lease of a process on another machine, as it is now. */
export interface UncertainLease {
  /** When it ends, by the ledger's clock. A renewal changes it. */
  until: string;
  leftMs: number;
}

/**
 * Where jobs are kept. Every method that writes returns only when what it wrote is durable. The folder of plain
 * files is one such place (`openFileLedger`), PostgreSQL the other (design 4, 15).
 */
export interface Ledger {
  /** Makes an id for a new job, higher than those before it, whatever the clock says. `now` in ms since 1970. */
  newId(now: number): Promise<string>;
  /**
   * Creates a job with its first events. An event that has a time keeps it; `undefined` is a line that could not be read
   * where the job comes from. Of any number of processes one gets true; false if there is a job of this id or was one,
   * unless `restores`: then one that was removed comes back.
   * @throws MgwError('local_io') if it cannot be recorded.
   */
  create(
    id: string,
    events: readonly (JobEvent | RecordedEvent | undefined)[],
    restores?: boolean,
  ): Promise<boolean>;
  /**
   * Adds an event to a job; `delivered` alone may be lost in a power cut, which does no harm.
   * @throws MgwError('local_io') if it cannot be recorded, or the job was removed: then it is not recorded.
   */
  append(id: string, event: JobEvent): Promise<void>;
  /** Reads a job as the fold of its events; undefined if there is none. A damaged record is `unknown`. */
  read(id: string): Promise<Job | undefined>;
  /** Reads the events of a job in their order, `undefined` for a line that cannot be read. */
  events(id: string): Promise<(RecordedEvent | undefined)[]>;
  /** A text that differs after whatever becomes of a job's record; undefined if there is none. Quicker than {@link read}. */
  version(id: string): Promise<string | undefined>;
  /** Ids of all jobs, newest first. */
  ids(): Promise<string[]>;
  /**
   * The same, quicker if there are many. A job whose record is gone may be among them, and those that are known to have
   * succeeded may be left out.
   */
  listed(which?: { leaveOutSucceeded: boolean }): Promise<Ids>;
  /** Removes a job's record for good, as one step: no job of this id is created again, except by `restores`. */
  remove(id: string): Promise<void>;
  /** Keeps a job from being created; false if there is one. */
  forbid(id: string): Promise<boolean>;
  /** Tells what became of an id that a claim names. `lost` if its job may have been paid for. */
  fateOf(id: string): Promise<Fate>;
  /**
   * Claims a name permanently: undefined if the claim is ours now, else the content of the claim that is there, '' if it
   * is damaged. Of any number of processes exactly one gets undefined.
   */
  claim(name: string, content: string): Promise<string | undefined>;
  /** The content of a claim, '' if it is damaged; undefined if the name is free. */
  claimed(name: string): Promise<string | undefined>;
  /** Records that something is about to be done under a claim. @throws MgwError('local_io') if it must not be. */
  confirm(name: string): Promise<void>;
  /** Whether something may have been done under a claim although no event says so. */
  isConfirmed(name: string): Promise<boolean>;
  /**
   * The jobs of a fingerprint or a handle, the last one first. It may miss one, and name one whose record is gone: nothing
   * is paid for by what it says.
   */
  lookup(kind: 'fingerprint' | 'handle', value: string): Promise<string[]>;
  /**
   * This process, as the others know it. What rests on several steps takes one lease for all of them: an event that names
   * an owner is recorded only while that owner's lease is held.
   */
  lease(): Promise<Lease>;
  /** What can be shown of a process that an event, a claim or a reservation names. */
  lifeOf(owner: Owner): Promise<Life>;
  /**
   * The lease of a process that cannot be seen from this machine: until it is renewed or ends, the process may be alive or
   * dead. undefined if it has ended, or if {@link lifeOf} is certain.
   */
  uncertainLease(owner: Owner): Promise<UncertainLease | undefined>;
  /** Ends the lease, and closes all connections and files. */
  close(): Promise<void>;
}
