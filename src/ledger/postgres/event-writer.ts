import { hash, randomUUID } from 'node:crypto';
import { messageOf, MgwError, toMgwError } from '../../errors.ts';
import { lostFingerprint, type Job, type JobEvent, type Owner, type RecordedEvent } from '../../job.ts';
import { decodeEvents, encodeEvent } from '../event-log.ts';
import { foldJob } from '../fold.ts';
import type { IndexEntry } from '../index-lines.ts';
import { isDuplicate, type Database } from './database.ts';
import { isFact, type UnwrittenEvent, type UnwrittenEvents } from '../kept-facts.ts';
import { leaseLostError } from './lease-keeper.ts';
import { createJobs, heldLeases, leaseCondition, type Created, type NewJob } from './new-jobs.ts';

type GivenEvent = JobEvent | RecordedEvent | undefined;

/** A job's lines when they were last read or written. The state after a new event is computed from these lines. */
interface CachedLines {
  n: number;
  lines: string;
}

/** An event to add to a job. */
interface NewEvent extends UnwrittenEvent {
  event: GivenEvent;
  /** The process that announces the event; undefined for a fact. */
  owner: Owner | undefined;
}

/** Maximum number of jobs whose lines are cached. */
const maxCachedJobs = 512;

/**
 * Writes events. An event with an owner announces an action of that process, and is written only if the process still
 * holds its lease. The same statement checks the lease. Any other event is a fact and needs no lease. If the database
 * is unreachable, a fact is saved in a local file and written later.
 */
export class EventWriter {
  readonly #database: Database;
  readonly #facts: UnwrittenEvents;
  readonly #now: () => number;
  readonly #cachedLines = new Map<string, CachedLines>();
  /** Jobs that this process has written to in this turn of the event loop. Their cached lines are current. */
  readonly #justWritten = new Set<string>();
  /**
   * The number of facts that this process saved in local files, and how many of these facts are known to be in the
   * database.
   */
  #savedFacts = 0;
  #writtenFacts = 0;
  readonly #createAll: (job: NewJob) => Promise<Created | undefined>;
  readonly #writeAll: (event: NewEvent) => Promise<true | undefined>;

  constructor(database: Database, facts: UnwrittenEvents, now: () => number) {
    this.#database = database;
    this.#facts = facts;
    this.#now = now;
    this.#createAll = database.combine((jobs: NewJob[]) => createJobs(database, jobs));
    this.#writeAll = database.combine((events: NewEvent[]) => this.#writeTogether(events));
  }

  /** Returns a job's lines if this process has written to the job in this turn of the event loop, else undefined. */
  justWritten(id: string): string[] | undefined {
    return this.#justWritten.has(id) ? this.#cachedLines.get(id)?.lines.trimEnd().split('\n') : undefined;
  }

  /** Caches a job's lines, and drops the job that was cached first if there are too many. */
  cacheLines(id: string, lines: readonly string[]): void {
    this.#cachedLines.delete(id);
    this.#cachedLines.set(id, { n: lines.length, lines: lines.map((line) => `${line}\n`).join('') });
    const [oldest = ''] = this.#cachedLines.keys();
    if (this.#cachedLines.size > maxCachedJobs) this.#cachedLines.delete(oldest);
  }

  dropCached(id: string): void {
    this.#cachedLines.delete(id);
  }

  // Removes the job from the set after all promises that wait for this write have continued, before any new input is
  // processed.
  #noteWritten(id: string): void {
    this.#justWritten.add(id);
    process.nextTick(() => this.#justWritten.delete(id));
  }

  /**
   * Creates a job with its first events. Returns false if a job with this id exists, or was removed and `restores` is
   * false.
   */
  async create(id: string, events: readonly GivenEvent[], restores = false): Promise<boolean> {
    const lines = events.map((event) => encodeEvent(event, this.#now()).trimEnd());
    const job = foldJob(id, decodeEvents(lines.map((line) => `${line}\n`).join('')));
    const newJob: NewJob = {
      ...{ id, lines, state: job?.state ?? 'unknown' },
      uids: lines.map(() => randomUUID()),
      hashes: lookupValues(job).map(nameHash),
      owner: events.map(announcingOwner).find((owner) => owner !== undefined),
    };
    const row = restores
      ? (await createJobs(this.#database, [newJob], true)).get(newJob)
      : await this.#createAll(newJob);
    if (row?.created !== true && !(await this.#isRecorded(newJob.uids[0] ?? ''))) {
      if (newJob.owner !== undefined && row?.held !== true && row?.there !== true) throw leaseLostError();
      return false;
    }
    this.cacheLines(id, lines);
    if (row?.created === true) this.#noteWritten(id);
    return true;
  }

  /**
   * Adds an event to a job. If the database is unreachable, a fact is saved in a local file.
   * @throws MgwError('local_io') if there is no such job; MgwError('unreachable') if the event's process has lost its
   * lease or the database is unreachable; or the errors of {@link Database.query}.
   */
  async append(id: string, event: JobEvent): Promise<void> {
    const line = encodeEvent(event, this.#now()).trimEnd();
    const fact = { job: id, uid: randomUUID(), line };
    let exists: boolean;
    try {
      await this.flush();
      exists = await this.#write(fact, event, announcingOwner(event));
    } catch (error) {
      if (!isFact(event)) throw error;
      const cause = toMgwError(error);
      throw cause.with({}, `${cause.message} ${await this.#saveFact(fact)}`);
    }
    if (!exists) throw new MgwError('local_io', `No such job: ${id}.`);
    // Workers skip the row of a job in doubt. The job has just been resolved, so requeue its row.
    if (event.type === 'resolved') await this.#requeueRow(id);
  }

  /** Writes the facts that were saved while the database was unreachable. @throws the errors of {@link append} */
  async flush(isFirst = false): Promise<void> {
    if (!isFirst && this.#writtenFacts === this.#savedFacts) return;
    const savedCount = this.#savedFacts;
    await this.#facts.flush(async (fact) => {
      const [event] = decodeEvents(`${fact.line}\n`);
      // If the job was removed, nothing is written, and the fact is dropped.
      if (await this.#write(fact, event, undefined)) await this.#requeueRow(fact.job);
    });
    // Facts that were saved in the meantime may not have been written.
    this.#writtenFacts = savedCount;
  }

  // Requeues a job's row, because a worker may have skipped it while the job was in doubt, or may be about to skip it.
  async #requeueRow(job: string): Promise<void> {
    const [events, rows] = ['events', 'batch_rows'].map((name) => this.#database.table(name));
    const first = `SELECT line FROM ${events} WHERE job = $1 ORDER BY n LIMIT 1`;
    const [firstEvent] = await this.#database.query<{ line: string }>(first, [job]);
    const [event] = decodeEvents(`${firstEvent?.line ?? ''}\n`);
    const [, batch, id] = (event?.type === 'prepared' && /^([^/]+)\/(.*)$/s.exec(event.key ?? '')) || [];
    if (id === undefined) return;
    await this.#database.query(
      `UPDATE ${rows} SET outcome = 'again', state = CASE state WHEN 'taken' THEN state ELSE 'waiting' END
       WHERE batch = $1 AND id = ANY($2::text[]) AND (state = 'taken' OR (state = 'ended' AND outcome = 'unknown'))`,
      [batch, [id, id.replace(/\/\d+$/, '')]],
    );
  }

  // Saves a fact in a local file. Returns a sentence for the user. Never throws.
  async #saveFact(fact: UnwrittenEvent): Promise<string> {
    const { folder } = this.#facts;
    this.#savedFacts += 1;
    return this.#facts.keep(fact).then(
      () =>
        `The event was saved in ${folder}. The next mgw command on this machine will write it to the ledger.`,
      (error: unknown) => `The event could not be saved in ${folder} either: ${messageOf(error)}`,
    );
  }

  // Returns false if there is no such job.
  async #write(fact: UnwrittenEvent, event: GivenEvent, owner: Owner | undefined): Promise<boolean> {
    const { job: id, uid } = fact;
    if ((await this.#writeAll({ ...fact, event, owner })) === true) return true;
    this.dropCached(id);
    if (await this.#isRecorded(uid)) return true;
    const existing = `SELECT FROM ${this.#database.table('jobs')} WHERE id = $1 AND state <> 'removed'`;
    if ((await this.#database.query(existing, [id])).length > 0) throw leaseLostError();
    return false;
  }

  // The returned map has no entry for an event that was not written.
  async #writeTogether(events: NewEvent[]): Promise<Map<NewEvent, true>> {
    // A statement can change a job's row only once.
    const firstByJob = new Map(events.toReversed().map((each) => [each.job, each]));
    const batch = [...firstByJob.values()].sort((one, other) => (one.job < other.job ? -1 : 1));
    const later = events.filter((each) => firstByJob.get(each.job) !== each);
    const written = await this.#writeOnce(batch);
    return later.length === 0 ? written : new Map([...written, ...(await this.#writeTogether(later))]);
  }

  // If two attempts to write one event overlap, the event's uid makes the second attempt fail. Several events are then
  // written one by one.
  async #writeOnce(events: NewEvent[]): Promise<Map<NewEvent, true>> {
    try {
      return await this.#insert(events);
    } catch (error) {
      if (events.length > 1 || !isDuplicate(error)) throw error;
      return new Map();
    }
  }

  async #insert(events: NewEvent[]): Promise<Map<NewEvent, true>> {
    const values = events.map((newEvent) => {
      const { job, uid, line, event, owner } = newEvent;
      const cached = this.#cachedLines.get(job);
      const lines = `${cached?.lines ?? ''}${line}\n`;
      const state = (cached && foldJob(job, decodeEvents(lines))?.state) ?? 'unknown';
      const hash = event?.type === 'accepted' ? nameHash({ kind: 'handle', value: event.handle }) : null;
      const { lease = null, instance = null } = owner ?? {};
      return { newEvent, job, uid, line, n: cached?.n ?? -1, state, lease, instance, hash, lines };
    });
    const [jobs, eventTable, names] = ['jobs', 'events', 'names'].map((name) => this.#database.table(name));
    // Planning this statement takes longer than executing it, so include only the parts that the events need.
    const [isLeased, isNamed] = [events.some(({ owner }) => owner?.lease), values.some(({ hash }) => hash)];
    const text = `WITH given AS (
        SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::text[], $8::text[])
          AS given (job, uid, line, seen, state, lease, instance, hash)),
      ${isLeased ? `${heldLeases(this.#database)},` : ''}
      job AS (UPDATE ${jobs} jobs SET n = n + 1,
          folded = CASE WHEN n = seen THEN n + 1 ELSE folded END,
          state = CASE WHEN n = seen THEN given.state ELSE jobs.state END
        FROM given WHERE jobs.id = given.job AND jobs.state <> 'removed'
          ${isLeased ? `AND ${leaseCondition}` : ''}
          AND NOT EXISTS (SELECT FROM ${eventTable} event WHERE event.uid = given.uid) RETURNING id, n, given.uid, line, hash)
      ${isNamed ? `, name AS (INSERT INTO ${names} (hash, job) SELECT hash, id FROM job WHERE hash IS NOT NULL ON CONFLICT DO NOTHING)` : ''}
      INSERT INTO ${eventTable} (job, n, uid, line) SELECT id, n, uid, line FROM job RETURNING uid, n`;
    const columns = ['job', 'uid', 'line', 'n', 'state', 'lease', 'instance', 'hash'] as const;
    const rows = await this.#database.query<{ uid: string; n: number }>(
      text,
      columns.map((column) => values.map((each) => each[column])),
      events.every(({ event }) => event?.type === 'delivered') ? 'soon' : 'durable',
    );
    const numbers = new Map(rows.map(({ uid, n }) => [uid, n]));
    const written = new Map<NewEvent, true>();
    for (const { newEvent, job, uid, n: cachedCount, lines } of values) {
      const n = numbers.get(uid);
      if (n === undefined) continue;
      written.set(newEvent, true);
      if (n - 1 === cachedCount) {
        this.#cachedLines.set(job, { n, lines });
        this.#noteWritten(job);
      } else this.dropCached(job);
    }
    return written;
  }

  async #isRecorded(uid: string): Promise<boolean> {
    const events = this.#database.table('events');
    return (await this.#database.query(`SELECT FROM ${events} WHERE uid = $1`, [uid])).length > 0;
  }
}

// Returns a job's lookup values: its fingerprint and its handle.
function lookupValues(job: Job | undefined): { kind: 'fingerprint' | 'handle'; value: string }[] {
  const { handle, record } = job ?? {};
  const fingerprint = record?.fingerprint === lostFingerprint ? undefined : record?.fingerprint;
  return [
    ...(fingerprint ? [{ kind: 'fingerprint', value: fingerprint } as const] : []),
    ...(handle === undefined ? [] : [{ kind: 'handle', value: handle } as const]),
  ];
}

// Returns the process that announces an event; undefined for a fact. An event with a time was imported, so it is a
// fact.
function announcingOwner(event: GivenEvent): Owner | undefined {
  if (event === undefined || 'at' in event) return undefined;
  return event.type === 'began' || event.type === 'sending' ? event.owner : undefined;
}

/** Returns the hash used to look up jobs by a fingerprint or handle. The value may have any length. */
export function nameHash({ kind, value }: Pick<IndexEntry, 'kind' | 'value'>): string {
  return hash('sha256', `${kind}\n${value}`).slice(0, 32);
}
