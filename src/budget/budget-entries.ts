import { readFile } from 'node:fs/promises';
import { MgwError } from '../errors.ts';
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
import { openBudgetLog } from './file-budget.ts';
import type { Per } from './budget.ts';
import type { BudgetKind } from './file-budget.ts';

/** Reads a budget's file. @throws MgwError('local_io') if a line of it is damaged. */
export async function readBudgetFile(path: string): Promise<BudgetEntries> {
  const reservations = new Reservations();
  for (const line of (await readFile(path, 'utf8')).split('\n')) {
    const event = decodeBudgetLine(line);
    if (event === 'torn') continue;
    if (event === 'damaged') throw new MgwError('local_io', `A line of the budget in ${path} is damaged.`);
    reservations.apply(event);
  }
  return reservations.countedEntries();
}

/**
 * Writes the missing entries to a budget's file.
 * @returns whether anything was added
 * @throws MgwError('local_io') if it cannot be written
 */
export async function writeBudgetFile(path: string, { limit, entries }: BudgetEntries): Promise<boolean> {
  const log = await openBudgetLog(path);
  try {
    const existing = await readBudgetFile(path);
    const known = new Map(existing.entries.map((entry) => [entry.id, entry]));
    const lines = entries.flatMap(({ id, amount, at, owner, state }) => {
      const recorded = known.get(id);
      const isSettled = recorded?.state === 'kept' && compare(recorded.amount, amount) === 0;
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

/** Reads all budgets of a database. */
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

/** Adds a budget to a database. @returns false if the database already has a budget of that name. */
export async function writeBudgetRows(
  database: Database,
  kind: BudgetKind,
  name: string,
  { limit, entries }: BudgetEntries,
): Promise<boolean> {
  const [budgets, reservations] = [database.table('budgets'), database.table('reservations')];
  const sum = (of: 'held' | 'kept', window: string): string =>
    `(SELECT coalesce(sum(amount), 0) FROM given WHERE left(at, length(${window})) = ${window}${of === 'kept' ? " AND state = 'kept'" : ''})`;
  const rows = await database.query(
    `WITH given AS MATERIALIZED (SELECT id, amount::numeric AS amount, at, owner, state
         FROM jsonb_to_recordset($5::jsonb) AS each (id text, amount text, at text, owner text, state text)),
       last AS MATERIALIZED (SELECT coalesce(left(max(at), 10), '') AS day, coalesce(left(max(at), 7), '') AS month FROM given),
       made AS (INSERT INTO ${budgets} (kind, name, amount, per, held, kept, day, day_held, day_kept, month, month_held, month_kept)
         SELECT $1, $2, $3::numeric, $4, ${sum('held', "''")}, ${sum('kept', "''")},
           day, ${sum('held', 'day')}, ${sum('kept', 'day')}, month, ${sum('held', 'month')}, ${sum('kept', 'month')} FROM last
         ON CONFLICT DO NOTHING RETURNING kind),
       all_entries AS (INSERT INTO ${reservations} (id, kind, budget, amount, at, owner, state)
         SELECT id, $1, $2, amount, at, owner, state FROM given, made)
     SELECT FROM made`,
    [
      kind,
      name,
      limit ? formatDecimal(limit.amount) : null,
      limit?.per ?? null,
      JSON.stringify(
        entries.map(({ id, amount, at, owner, state }) => ({
          ...{ id, at, state, amount: formatDecimal(amount) },
          owner: JSON.stringify(owner),
        })),
      ),
    ],
  );
  return rows.length > 0;
}
