import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { Clock } from '../../clock.ts';
import type { Job, Life, Owner } from '../../job.ts';
import type { StateUrl } from '../../state-url.ts';
import { foldJob } from '../fold.ts';
import { damagedJob, decodeEvents } from '../event-log.ts';
import {
  jobIdPattern,
  newJobId,
  names as attemptNames,
  type ClaimState,
  claimFileName,
  firstName,
} from '../names.ts';
import type { Ledger } from '../ledger.ts';
import { Database } from './database.ts';
import { EventWriter, nameHash } from './event-writer.ts';
import { UnwrittenEvents } from '../kept-facts.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { identityOf, createTables } from './schema.ts';

/** Options for {@link openPostgresLedger}. */
export interface PostgresLedgerOptions {
  /** The local state folder, where facts are saved while the database is unreachable. */
  stateDir: string;
  clock: Clock;
  /** Whether to create the tables if they are missing. */
  create?: boolean;
}

/** A ledger on PostgreSQL, with the database behind it. */
export interface PostgresLedger extends Ledger {
  readonly database: Database;
}

/**
 * Opens a ledger on PostgreSQL, which any number of machines may share. docs/decisions/0014 lists its assumptions.
 * @throws MgwError('config') if the database contains no ledger, DatabaseLost if it does not respond.
 */
export async function openPostgresLedger(
  url: StateUrl,
  options: PostgresLedgerOptions,
): Promise<PostgresLedger> {
  const database = new Database(url, options.clock);
  try {
    const { ledger } = await (options.create === true ? createTables(database) : identityOf(database));
    const facts = new UnwrittenEvents(options.stateDir, ledger);
    const writer = new EventWriter(database, facts, () => options.clock.now());
    await writer.flush(true);
    return ledgerOn(database, writer, new LeaseKeeper(database, options.clock));
  } catch (error) {
    await database.close().catch(() => undefined);
    throw error;
  }
}

function ledgerOn(database: Database, writer: EventWriter, keeper: LeaseKeeper): PostgresLedger {
  const [jobs, events] = ['jobs', 'events'].map((name) => database.table(name));
  const linesOf = database.combine(async (ids: string[]) => {
    const rows = await database.query<{ job: string; line: string }>(
      `SELECT job, line FROM ${events} WHERE job = ANY($1) ORDER BY job, n`,
      [ids],
    );
    const lines = new Map(ids.map((id) => [id, [] as string[]]));
    for (const { job, line } of rows) lines.get(job)?.push(line);
    return lines;
  });
  // Reading one long string is faster than reading 100,000 rows.
  const idsOf = async (condition = 'true'): Promise<string[]> => {
    const [row] = await database.query<{ ids: string | null }>(
      `SELECT string_agg(id, ' ') AS ids FROM (SELECT id FROM ${jobs} WHERE state <> 'removed' AND (${condition}) ORDER BY id DESC) AS sorted`,
    );
    return row?.ids ? row.ids.split(' ') : [];
  };
  const claims = claimsIn(database);
  return {
    database,
    ...namesIn(database),
    create: (id, newEvents, restores) => writer.create(id, newEvents, restores),
    append: (id, event) => writer.append(id, event),
    read: (id) => readJob(id, linesOf, writer, keeper),
    events: async (id) => decodeEvents(((await linesOf(id)) ?? []).map((line) => `${line}\n`).join('')),
    version: async (id) => {
      const [row] = await database.query<{ n: number }>(
        `SELECT n FROM ${jobs} WHERE id = $1 AND state <> 'removed'`,
        [id],
      );
      return row && String(row.n);
    },
    ids: () => idsOf(),
    // The condition is written so that PostgreSQL can use the indexes.
    listed: ({ excludeSucceeded } = { excludeSucceeded: false }) =>
      idsOf(excludeSucceeded ? `state < 'succeeded' OR state > 'succeeded' OR folded < n` : 'true'),
    ...removalIn(database, writer, claims),
    ...claims,
    lease: () => keeper.lease(),
    flush: () => writer.flush(),
    lifeOf: async (owner) => (await keeper.livesOf([owner]))(owner),
    uncertainLease: (owner) => keeper.uncertainLease(owner),
    close: async () => {
      // This flush needs no lease. Facts that cannot be written remain on disk for the next command.
      await Promise.all([writer.flush().catch(() => undefined), keeper.close()]);
      await database.close();
    },
  };
}

// Returns the methods that create ids and look up jobs.
function namesIn(database: Database): Pick<Ledger, 'newId' | 'lookup'> {
  const [jobs, names] = ['jobs', 'names'].map((name) => database.table(name));
  const newIds = database.combine(async (requests: { time: number }[]) => {
    const [row] = await database.query<{ id: string | null }>(`SELECT max(id) AS id FROM ${jobs}`);
    let last = row?.id ?? undefined;
    return new Map(requests.map((each) => [each, (last = newJobId(each.time, last))]));
  });
  const jobsOf = database.combine(async (hashes: string[]) => {
    const rows = await database.query<{ hash: string; job: string }>(
      `SELECT hash, job FROM ${names} WHERE hash = ANY($1) ORDER BY made DESC`,
      [hashes],
    );
    const jobsByHash = new Map(hashes.map((hash) => [hash, [] as string[]]));
    for (const { hash, job } of rows) jobsByHash.get(hash)?.push(job);
    return jobsByHash;
  });
  return {
    newId: async (time) => (await newIds({ time })) ?? newJobId(time),
    lookup: async (kind, value) => (await jobsOf(nameHash({ kind, value }))) ?? [],
  };
}

// Returns the methods that remove jobs. A removed job's row is not deleted, so that no job with the same id is created
// again.
function removalIn(
  database: Database,
  writer: EventWriter,
  claims: Pick<Ledger, 'claimed'>,
): Pick<Ledger, 'remove' | 'forbid' | 'claimState'> {
  const [jobs, events, names] = ['jobs', 'events', 'names'].map((name) => database.table(name));
  const claimState = async (id: string): Promise<ClaimState> => {
    // Read the claim first, so that a job that is created and sent in between is found and not reported as lost.
    const isSent = (await claims.claimed(attemptNames.attempt(id, 1))) !== undefined;
    const [row] = await database.query<{ state: string; hasEvents: boolean }>(
      `SELECT state, EXISTS (SELECT FROM ${events} WHERE job = $1) AS "hasEvents" FROM ${jobs} WHERE id = $1`,
      [id],
    );
    if (row?.state === 'removed') return 'removed';
    if (row?.hasEvents === true) return 'exists';
    return isSent || row !== undefined ? 'lost' : 'not-created';
  };
  return {
    claimState,
    remove: async (id) => {
      writer.dropCached(id);
      // Each statement of a transaction sees what was committed before that statement. The DELETE therefore finds an
      // event whose transaction ended while the UPDATE waited for the job's row. The row is locked until the end.
      const job = pg.escapeLiteral(id);
      await database.query(
        `UPDATE ${jobs} SET state = 'removed', n = 0, folded = 0 WHERE id = ${job};
         DELETE FROM ${events} WHERE job = ${job};
         DELETE FROM ${names} WHERE job = ${job}`,
      );
    },
    forbid: async (id) => {
      await database.query(
        `INSERT INTO ${jobs} (id, n, folded, state) VALUES ($1, 0, 0, 'removed') ON CONFLICT (id) DO NOTHING`,
        [id],
      );
      return (await claimState(id)) === 'removed';
    },
  };
}

async function readJob(
  id: string,
  linesOf: (id: string) => Promise<string[] | undefined>,
  writer: EventWriter,
  keeper: LeaseKeeper,
): Promise<Job | undefined> {
  if (!jobIdPattern.test(id)) return undefined;
  for (;;) {
    const cached = writer.justWritten(id);
    const lines = cached ?? (await linesOf(id)) ?? [];
    if (lines.length === 0) return undefined;
    writer.cacheLines(id, lines);
    const lifeOf = await keeper.livesOf(ownersIn(foldLines(id, lines)));
    const job = foldLines(id, lines, lifeOf);
    const { sender } = job.record;
    // A dead process may have written its last event after these lines were read.
    const isDead = sender !== undefined && lifeOf(sender) === 'dead';
    if (!isDead || (await linesOf(id))?.length === lines.length) return job;
  }
}

function foldLines(id: string, lines: readonly string[], lifeOf?: (owner: Owner) => Life): Job {
  const text = lines.map((line) => `${line}\n`).join('');
  const events = decodeEvents(text);
  return foldJob(id, events, lifeOf) ?? damagedJob(id, text, events, lifeOf);
}

// Returns the processes whose liveness affects the job's state.
function ownersIn({ record: { sender, runs } }: Job): Owner[] {
  return [...(sender ? [sender] : []), ...runs.map(({ owner }) => owner)];
}

type ClaimMethods = Pick<Ledger, 'claim' | 'confirm' | 'isConfirmed' | 'claimed' | 'firstNames'>;

/** Stores claims as rows. If several processes try, exactly one inserts the row. */
function claimsIn(database: Database): ClaimMethods {
  const claims = database.table('claims');
  const contentOf = database.combine(async (claimNames: string[]) => {
    const rows = await database.query<{ name: string; content: string }>(
      `SELECT name, content FROM ${claims} WHERE name = ANY($1)`,
      [claimNames],
    );
    return new Map(rows.map(({ name, content }) => [name, content]));
  });
  // ORDER BY makes processes that claim the same names lock them in the same order.
  const claimAll = database.combine(async (requests: { name: string; content: string; token: string }[]) => {
    const rows = await database.query<{ name: string; content: string; token: string }>(
      `WITH made AS (INSERT INTO ${claims} (name, content, token, tentative)
         SELECT name, content, token, true FROM unnest($1::text[], $2::text[], $3::uuid[]) AS given (name, content, token) ORDER BY name
         ON CONFLICT (name) DO NOTHING RETURNING name, content, token)
       SELECT * FROM made UNION ALL SELECT name, content, token FROM ${claims} WHERE name = ANY($1)`,
      (['name', 'content', 'token'] as const).map((field) => requests.map((each) => each[field])),
    );
    const holders = new Map(rows.map((row) => [row.name, row]));
    return new Map(requests.map((each) => [each, holders.get(each.name)]));
  });
  return {
    claimed: (name) => contentOf(claimFileName(name)),
    claim: async (name, content) => {
      // If the response to the first attempt is lost, the second attempt finds its own token.
      const request = { name: claimFileName(name), content, token: randomUUID() };
      for (;;) {
        const holder = await claimAll(request);
        if (holder !== undefined) return holder.token === request.token ? undefined : holder.content;
        // The statement does not see rows that were inserted while it ran, so try again.
      }
    },
    firstNames: async () => {
      const rows = await database.query<{ name: string }>(`SELECT name FROM ${claims}`);
      return rows.flatMap(({ name }) => firstName(name) ?? []);
    },
    // The database refuses `sending` from a process that was declared dead, so without that event nothing was sent.
    confirm: async () => {},
    isConfirmed: () => Promise.resolve(false),
  };
}
