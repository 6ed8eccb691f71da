import type { Owner } from '../../job.ts';
import type { Database } from './database.ts';

/** A job to create. */
export interface NewJob {
  id: string;
  lines: readonly string[];
  /** The unique id of each line. */
  uids: readonly string[];
  state: string;
  /** The hashes of the job's lookup values. */
  hashes: readonly string[];
  /**
   * The process that creates the job. The job is not created unless this process holds its lease. Undefined if no lease
   * is needed.
   */
  owner: Owner | undefined;
}

/**
 * The result for one job: whether it was created, whether its process holds a valid lease, and whether its id already
 * existed.
 */
export interface Created extends Record<string, unknown> {
  created: boolean;
  held: boolean;
  there: boolean;
}

/**
 * Creates jobs in one statement. Jobs whose id exists or was removed are unchanged.
 * @param restores whether to create removed jobs again
 */
export async function createJobs(
  database: Database,
  newJobs: readonly NewJob[],
  restores = false,
): Promise<Map<NewJob, Created>> {
  const [jobs, events, names] = ['jobs', 'events', 'names'].map((name) => database.table(name));
  const firstById = new Map(newJobs.toReversed().map((job) => [job.id, job]));
  const unique = [...firstById.values()];
  const flatten = <T>(of: (job: NewJob) => readonly T[]): T[] => unique.flatMap(of);
  // ORDER BY makes processes that create the same jobs lock them in the same order.
  const rows = await database.query<Created & { id: string }>(
    `WITH given AS (SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::bigint[], $5::text[])
       AS given (id, n, state, lease, instance)),
     ${heldLeases(database)},
     job AS (INSERT INTO ${jobs} (id, n, folded, state)
       SELECT id, n, n, state FROM given WHERE ${leaseCondition} ORDER BY id
       ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, folded = EXCLUDED.folded, state = EXCLUDED.state
         WHERE $6::boolean AND jobs.state = 'removed' RETURNING id),
     event AS (INSERT INTO ${events} (job, n, uid, line)
       SELECT id, n, uid, line FROM job
         JOIN unnest($7::text[], $8::int[], $9::uuid[], $10::text[]) AS event (id, n, uid, line) USING (id)),
     name AS (INSERT INTO ${names} (hash, job)
       SELECT hash, id FROM job JOIN unnest($11::text[], $12::text[]) AS name (id, hash) USING (id)
       ON CONFLICT DO NOTHING)
     SELECT id, EXISTS (SELECT FROM job WHERE job.id = given.id) AS created, ${leaseCondition} AS held,
       EXISTS (SELECT FROM ${jobs} WHERE id = given.id) AS there FROM given`,
    [
      unique.map(({ id }) => id),
      unique.map(({ lines }) => lines.length),
      unique.map(({ state }) => state),
      unique.map(({ owner }) => owner?.lease ?? null),
      unique.map(({ owner }) => owner?.instance ?? null),
      restores,
      flatten(({ id, lines }) => lines.map(() => id)),
      flatten(({ lines }) => lines.map((_, at) => at + 1)),
      flatten(({ uids }) => uids),
      flatten(({ lines }) => lines),
      flatten(({ id, hashes }) => hashes.map(() => id)),
      flatten(({ hashes }) => hashes),
    ],
    'durable',
  );
  const results = new Map(rows.map((row) => [firstById.get(row.id), row]));
  // If two jobs have the same id, only the first is inserted. The second is reported as existing.
  const duplicate = { created: false, held: false, there: true };
  return new Map(newJobs.map((job) => [job, results.get(job) ?? duplicate]));
}

/**
 * Returns the common table expression `held`: the leases in `given` that have not ended. It locks their rows: a process
 * that declares another process dead must delete that process's row, and waits until this statement has ended.
 */
export function heldLeases(database: Database): string {
  return `held AS MATERIALIZED (SELECT id, instance FROM ${database.table('leases')}
    WHERE (id, instance) IN (SELECT lease, instance FROM given) AND until > clock_timestamp() FOR KEY SHARE)`;
}

/** The condition that the row `given` has no lease, or one that is {@link heldLeases held}. */
export const leaseCondition =
  '(given.lease IS NULL OR EXISTS (SELECT FROM held WHERE held.id = given.lease AND held.instance = given.instance))';
