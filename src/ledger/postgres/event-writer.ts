import { hash, randomUUID } from 'node:crypto';
import { MgwError, toMgwError } from '../../errors.ts';
import { lostFingerprint, type Job, type JobEvent, type Owner, type RecordedEvent } from '../../job.ts';
import { decodeEvents, encodeEvent } from '../event-log.ts';
import { foldJob } from '../fold.ts';
import type { IndexEntry } from '../index-lines.ts';
import { DatabaseLost, isDuplicate, type Commit, type Database } from './database.ts';
import type { UnwrittenEvent, UnwrittenEvents } from './kept-facts.ts';
import { leaseLost } from './lease-keeper.ts';

type GivenEvent = JobEvent | RecordedEvent | undefined;

/** The lines of a job when they were last read or written, from which the state after a new event is computed. */
interface CachedLines {
  n: number;
  lines: string;
}

/** The maximum number of jobs whose lines are cached. */
const maxCachedJobs = 512;

/**
 * Writes events. An event that names an owner announces an action of that process. It is refused, in the same
 * statement, unless the process holds its lease. Any other event is a fact, and needs no lease. If the database is
 * gone, a fact is saved in a local file and written later.
 */
export class EventWriter {
  readonly #database: Database;
  readonly #facts: UnwrittenEvents;
  readonly #now: () => number;
  readonly #seen = new Map<string, CachedLines>();
  /** Jobs to which this process has written in this turn of the event loop, so that their cached lines are current. */
  readonly #justWritten = new Set<string>();
  /** Whether facts of this process may be waiting in local files. */
  #hasKept = false;

  constructor(database: Database, facts: UnwrittenEvents, now: () => number) {
    this.#database = database;
    this.#facts = facts;
    this.#now = now;
  }

  /** Returns the lines of a job that this process has written to in this turn of the event loop, else undefined. */
  justWritten(id: string): string[] | undefined {
    return this.#justWritten.has(id) ? this.#seen.get(id)?.lines.trimEnd().split('\n') : undefined;
  }

  /** Caches the lines of a job. */
  remember(id: string, lines: readonly string[]): void {
    this.#seen.delete(id);
    this.#seen.set(id, { n: lines.length, lines: lines.map((line) => `${line}\n`).join('') });
    const [oldest] = this.#seen.keys();
    if (this.#seen.size > maxCachedJobs && oldest !== undefined) this.#seen.delete(oldest);
  }

  forget(id: string): void {
    this.#seen.delete(id);
    this.#justWritten.delete(id);
  }

  // Removes the job from the set after all promises that wait for this write have continued, before any new input is
  // processed.
  #noteWritten(id: string): void {
    this.#justWritten.add(id);
    process.nextTick(() => this.#justWritten.delete(id));
  }

  /**
   * Creates a job with its first events. Returns false if a job of this id exists, or was removed and `restores` is
   * false.
   */
  async create(id: string, events: readonly GivenEvent[], restores = false): Promise<boolean> {
    const lines = events.map((event) => encodeEvent(event, this.#now()).trimEnd());
    const job = foldJob(id, decodeEvents(lines.map((line) => `${line}\n`).join('')));
    const hashes = namesOf(job).map(nameHash);
    const owner = events.map(ownerIn).find((found) => found !== undefined);
    const [jobs, all, names] = ['jobs', 'events', 'names'].map((name) => this.#database.table(name));
    const uids = lines.map(() => randomUUID());
    const [row] = await this.#database.query<{ created: boolean; held: boolean; there: boolean }>(
      `WITH ${this.#held(6)},
       job AS (INSERT INTO ${jobs} (id, n, folded, state)
         SELECT $1, cardinality($2::uuid[]), cardinality($2::uuid[]), $4
         WHERE ($6::bigint IS NULL OR EXISTS (SELECT FROM held))
         ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, folded = EXCLUDED.folded, state = EXCLUDED.state
           WHERE $8::boolean AND jobs.state = 'removed' RETURNING id),
       event AS (INSERT INTO ${all} (job, n, uid, line)
         SELECT job.id, given.n, given.uid, given.line
         FROM job, unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS given (uid, line, n)),
       name AS (INSERT INTO ${names} (hash, job) SELECT given, job.id FROM job, unnest($5::text[]) AS given
         ON CONFLICT DO NOTHING)
       SELECT EXISTS (SELECT FROM job) AS created, EXISTS (SELECT FROM held) AS held,
         EXISTS (SELECT FROM ${jobs} WHERE id = $1) AS there`,
      [
        id,
        uids,
        lines,
        job?.state ?? 'unknown',
        hashes,
        owner?.lease ?? null,
        owner?.instance ?? null,
        restores,
      ],
      'durable',
    );
    if (row?.created !== true && !(await this.#isThere(uids[0] ?? ''))) {
      if (owner !== undefined && row?.held !== true && row?.there !== true) throw leaseLost();
      return false;
    }
    this.remember(id, lines);
    if (row?.created === true) this.#noteWritten(id);
    return true;
  }

  /**
   * Adds an event to a job. If the database is gone, a fact is saved in a local file. If the event is `sending`, the
   * fact that nothing was sent is saved.
   * @throws MgwError('local_io') if there is no such job; MgwError('unreachable') if its process has lost its lease or
   * the database is gone; or the errors of {@link Database.query}.
   */
  async append(id: string, event: JobEvent): Promise<void> {
    const line = encodeEvent(event, this.#now()).trimEnd();
    const fact = { job: id, uid: randomUUID(), line };
    const owner = ownerIn(event);
    let exists: boolean;
    try {
      await this.flush();
      exists = await this.#write(fact, event, owner);
    } catch (error) {
      // A refused event is not saved.
      if (owner !== undefined && !(error instanceof DatabaseLost)) throw error;
      if (event.type === 'sending') await this.#keepUnsent(id, event.attempt);
      if (!isFact(event)) throw error;
      await this.#keep(fact);
      const cause = toMgwError(error);
      const text = `${cause.message} The event was saved in ${this.#facts.folder}. The next mgw command on this machine writes it to the ledger.`;
      throw cause.with({}, text);
    }
    if (!exists) throw new MgwError('local_io', `There is no job ${id}.`);
  }

  /** Writes the facts that were saved while the database was gone. @throws the errors of {@link append} */
  async flush(isFirst = false): Promise<void> {
    if (!isFirst && !this.#hasKept) return;
    await this.#facts.flush(async (fact) => {
      const [event] = decodeEvents(`${fact.line}\n`);
      // If the job was removed, the fact is dropped.
      await this.#write(fact, event, undefined);
    });
    this.#hasKept = false;
  }

  // Records that nothing was sent, since `sending` may have been written although the database did not answer.
  async #keepUnsent(id: string, attempt: number): Promise<void> {
    const message = 'The ledger did not answer, and nothing was sent';
    const event: JobEvent = { type: 'unavailable', attempt, error: { code: 'unreachable', message } };
    await this.#keep({ job: id, uid: randomUUID(), line: encodeEvent(event, this.#now()).trimEnd() });
  }

  async #keep(fact: UnwrittenEvent): Promise<void> {
    await this.#facts.keep(fact);
    this.#hasKept = true;
  }

  // Returns false if there is no such job.
  async #write(
    { job: id, uid, line }: UnwrittenEvent,
    event: GivenEvent,
    owner: Owner | undefined,
  ): Promise<boolean> {
    const seen = this.#seen.get(id);
    const lines = `${seen?.lines ?? ''}${line}\n`;
    const state = seen && foldJob(id, decodeEvents(lines))?.state;
    const hash = event?.type === 'accepted' ? nameHash({ kind: 'handle', value: event.handle }) : undefined;
    const lease = owner?.lease;
    const [jobs, events, names] = ['jobs', 'events', 'names'].map((name) => this.#database.table(name));
    // Planning this statement takes longer than executing it, so it contains only the parts that the event needs.
    const text = `WITH ${lease === undefined ? '' : `${this.#held(6)},`}
      job AS (UPDATE ${jobs} SET n = n + 1,
          folded = CASE WHEN n = $4 AND folded = n THEN n + 1 ELSE folded END,
          state = CASE WHEN n = $4 THEN $5 ELSE state END
        WHERE id = $1 AND state <> 'removed'
          ${lease === undefined ? '' : 'AND EXISTS (SELECT FROM held)'}
          AND NOT EXISTS (SELECT FROM ${events} WHERE uid = $2) RETURNING n)
      ${hash === undefined ? '' : `, name AS (INSERT INTO ${names} (hash, job) SELECT $6, $1 FROM job ON CONFLICT DO NOTHING)`}
      INSERT INTO ${events} (job, n, uid, line) SELECT $1, n, $2, $3 FROM job RETURNING n`;
    const more = lease === undefined ? (hash ?? []) : [lease, owner?.instance ?? null];
    const values = [id, uid, line, seen?.n ?? -1, state ?? 'unknown', more].flat();
    const n = await this.#once(text, values, event?.type === 'delivered' ? 'soon' : 'durable');
    if (n === undefined) {
      this.forget(id);
      if (await this.#isThere(uid)) return true;
      const known = `SELECT FROM ${jobs} WHERE id = $1 AND state <> 'removed'`;
      if ((await this.#database.query(known, [id])).length > 0) throw leaseLost();
      return false;
    }
    if (n - 1 === seen?.n) {
      this.#seen.set(id, { n, lines });
      this.#noteWritten(id);
    } else this.forget(id);
    return true;
  }

  // Returns undefined if the event was not written. If two attempts to write one event overlap, its uid makes the
  // second one fail.
  async #once(text: string, values: unknown[], commit: Commit): Promise<number | undefined> {
    try {
      return (await this.#database.query<{ n: number }>(text, values, commit))[0]?.n;
    } catch (error) {
      if (isDuplicate(error)) return undefined;
      throw error;
    }
  }

  async #isThere(uid: string): Promise<boolean> {
    const events = this.#database.table('events');
    return (await this.#database.query(`SELECT FROM ${events} WHERE uid = $1`, [uid])).length > 0;
  }

  // Locks the lease row: a process that declares this one dead must delete the row, and waits until this statement has
  // ended.
  #held(first: number): string {
    return `held AS MATERIALIZED (SELECT id FROM ${this.#database.table('leases')}
      WHERE id = $${first}::bigint AND instance = $${first + 1} AND until > clock_timestamp() FOR KEY SHARE)`;
  }
}

// The values by which a job can be looked up.
function namesOf(job: Job | undefined): { kind: 'fingerprint' | 'handle'; value: string }[] {
  const { handle, record } = job ?? {};
  const fingerprint = record?.fingerprint === lostFingerprint ? undefined : record?.fingerprint;
  return [
    ...(fingerprint ? [{ kind: 'fingerprint', value: fingerprint } as const] : []),
    ...(handle === undefined ? [] : [{ kind: 'handle', value: handle } as const]),
  ];
}

// An event that already has a time is imported, and therefore a fact.
function ownerIn(event: GivenEvent): Owner | undefined {
  if (event === undefined || 'at' in event) return undefined;
  return event.type === 'began' || event.type === 'sending' ? event.owner : undefined;
}

const factTypes = new Set([
  'reply',
  'accepted',
  'rejected',
  'unavailable',
  'unknown',
  'finished',
  'file',
  'delivered',
  'detached',
]);

// Decisions of a person are not saved: the person sees the error, and can decide again.
function isFact({ type }: JobEvent): boolean {
  return factTypes.has(type);
}

/** Returns the hash by which jobs with a fingerprint or a handle are looked up. Values may have any length. */
export function nameHash({ kind, value }: Pick<IndexEntry, 'kind' | 'value'>): string {
  return hash('sha256', `${kind}\n${value}`).slice(0, 32);
}
