import { readFile } from 'node:fs/promises';
import { tryParseJson } from '../json.ts';
import type { Database } from '../ledger/postgres/database.ts';
import { compare, formatDecimal, parseDecimal } from '../decimal.ts';
import {
  type BudgetEntries,
  decodeBudgetLine,
  encodeBudgetEvent,
  parseOwner,
  Reservations,
} from './reservations.ts';
import { damagedError, openBudgetLog } from './file-budget.ts';
import type { BudgetKind, Per } from './budget.ts';

/** Reads a budget's file. @throws MgwError('local_io') if one of its lines is damaged. */
export async function readBudgetFile(path: string): Promise<BudgetEntries> {
  const reservations = new Reservations();
  const events = (await readFile(path, 'utf8')).split('\n').map(decodeBudgetLine);
  for (const event of events.filter((each) => each !== 'torn')) {
    if (event === 'damaged') throw damagedError(path);
    reservations.apply(event);
  }
  return reservations.countedEntries();
}

/**
 * Adds missing entries to a budget's file.
 * @returns whether anything was added
 * @throws MgwError('local_io') if the file cannot be written.
 */
export async function writeBudgetFile(path: string, { limit, entries }: BudgetEntries): Promise<boolean> {
  const log = await openBudgetLog(path);
  try {
    const existing = await readBudgetFile(path);
    const known = new Map(existing.entries.map((entry) => [entry.id, entry]));
    const lines = entries.flatMap(({ id, amount, at, owner, state }) => {
      const recorded = known.get(id);
      const isSettled = recorded?.state === 'kept' && compare(recorded.amount, amount) >= 0;
      return [
        ...(recorded !== undefined
          ? []
          : [
              encodeBudgetEvent(
                { type: 'reserve', id, amount, owner, limit: { amount: boundlessAmount } },
                at,
              ),
            ]),
        ...(state === 'kept' && !isSettled ? [encodeBudgetEvent({ type: 'keep', id, amount }, at)] : []),
      ];
    });
    const epoch = new Date(0).toISOString();
    if (limit !== undefined && existing.limit === undefined)
      lines.push(encodeBudgetEvent({ type: 'limit', ...limit }, epoch));
    await log.append(lines.map((line) => `\n${line}\n`).join(''), true);
    return lines.length > 0;
  } finally {
    await log.close();
  }
}

const boundlessAmount = { digits: 10n ** 30n, scale: 0 };

/** Reads all budgets in a database. */
export async function readBudgetRows(
  database: Database,
): Promise<{ kind: BudgetKind; name: string; budget: BudgetEntries }[]> {
  const [budgets, reservations] = await Promise.all([
    database.query<{ kind: BudgetKind; name: string; amount: string | null; per: Per | null }>(
      `SELECT kind, name, amount::text, per FROM ${database.table('budgets')} ORDER BY kind, name`,
    ),
    database.query<{
      kind: string;
      budget: string;
      id: string;
      amount: string;
      at: string;
      owner: string;
      state: 'reserved' | 'kept';
    }>(
      `SELECT kind, budget, id, amount::text, at, owner, state FROM ${database.table('reservations')}
       WHERE state <> 'released' ORDER BY at, id`,
    ),
  ]);
  return budgets.map(({ kind, name, amount, per }) => {
    const budgetReservations = reservations.filter((each) => each.kind === kind && each.budget === name);
    const entries = budgetReservations.map(({ id, at, state, ...each }) => ({
      ...{ id, at, state, amount: parseDecimal(each.amount) },
      owner: parseOwner(tryParseJson(each.owner)),
    }));
    const limit = amount === null ? undefined : { amount: parseDecimal(amount), ...(per && { per }) };
    return { kind, name, budget: { limit, entries } };
  });
}

/**
 * Adds missing entries to a budget in a database. Creates the budget if it does not exist.
 * Does not change an existing limit.
 * @returns whether anything was added
 */
export async function writeBudgetRows(
  database: Database,
  kind: BudgetKind,
  name: string,
  { limit, entries }: BudgetEntries,
): Promise<boolean> {
  const [budgets, reservations] = [database.table('budgets'), database.table('reservations')];
  await database.query(`INSERT INTO ${budgets} (kind, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`, [
    kind,
    name,
  ]);
  const window = (of: 'day' | 'month'): string => {
    const isIn = `left(at, length(own.${of})) = own.${of}`;
    const sum = (what: string): string => `coalesce(sum(${what}) FILTER (WHERE ${isIn}), 0) AS ${of}_${what}`;
    return `own.${of} AS ${of}, ${sum('held')}, ${sum('kept')}`;
  };
  // Adjusts the sums by the differences that the entries make. The first entry of a new day or month resets the sums of
  // the earlier day or month.
  const raised = (of: 'day' | 'month'): string => {
    const sum = (what: string): string =>
      `${of}_${what} = CASE WHEN b.${of} = total.${of} THEN b.${of}_${what} ELSE 0 END + total.${of}_${what}`;
    return `${of} = total.${of}, ${sum('held')}, ${sum('kept')}`;
  };
  // A charge from a machine whose clock is ahead counts today, because a later day would replace today's sums.
  const now = `to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
  const [row] = await database.query<{ is_changed: boolean }>(
    `WITH locked AS MATERIALIZED (SELECT day, month, amount FROM ${budgets} WHERE kind = $1 AND name = $2 FOR UPDATE),
       given AS MATERIALIZED (SELECT id, each.amount::numeric AS amount, least(at, ${now}) AS at, owner, state
         FROM locked, jsonb_to_recordset($5::jsonb) AS each (id text, amount text, at text, owner text, state text)),
       added AS (INSERT INTO ${reservations} (id, kind, budget, amount, at, owner, state)
         SELECT id, $1, $2, amount, at, owner, state FROM given ON CONFLICT DO NOTHING
         RETURNING at, amount AS held, CASE WHEN state = 'kept' THEN amount ELSE 0 END AS kept),
       old AS MATERIALIZED (SELECT r.id, r.state AS was, r.amount AS was_amount, given.amount AS now_amount
         FROM ${reservations} r JOIN given USING (id)
         WHERE r.kind = $1 AND r.budget = $2 AND given.state = 'kept'
           AND (r.state <> 'kept' OR r.amount < given.amount) FOR UPDATE OF r),
       settled AS (UPDATE ${reservations} r SET state = 'kept', amount = now_amount FROM old
         WHERE r.kind = $1 AND r.budget = $2 AND r.id = old.id
         RETURNING r.at, now_amount - CASE WHEN was = 'released' THEN 0 ELSE was_amount END AS held,
           now_amount - CASE WHEN was = 'kept' THEN was_amount ELSE 0 END AS kept),
       changed AS MATERIALIZED (SELECT * FROM added UNION ALL SELECT * FROM settled),
       own AS MATERIALIZED (SELECT greatest(locked.day, left(last.at, 10)) AS day, greatest(locked.month, left(last.at, 7)) AS month
         FROM locked, (SELECT coalesce(max(at), '') AS at FROM changed) AS last),
       total AS MATERIALIZED (SELECT count(at) AS changes, coalesce(sum(held), 0) AS held, coalesce(sum(kept), 0) AS kept,
           ${window('day')}, ${window('month')}
         FROM own LEFT JOIN changed ON true GROUP BY own.day, own.month)
     UPDATE ${budgets} b SET amount = coalesce(b.amount, $3::numeric), per = CASE WHEN b.amount IS NULL THEN $4 ELSE b.per END,
       held = b.held + total.held, kept = b.kept + total.kept, ${raised('day')}, ${raised('month')}
     FROM total, locked WHERE b.kind = $1 AND b.name = $2
     RETURNING total.changes > 0 OR (locked.amount IS NULL AND b.amount IS NOT NULL) AS is_changed`,
    [kind, name, limit ? formatDecimal(limit.amount) : null, limit?.per ?? null, jsonOf(entries)],
  );
  return row?.is_changed === true;
}

function jsonOf(entries: BudgetEntries['entries']): string {
  return JSON.stringify(
    entries.map(({ id, amount, at, owner, state }) => ({
      ...{ id, at, state, amount: formatDecimal(amount) },
      owner: JSON.stringify(owner),
    })),
  );
}
