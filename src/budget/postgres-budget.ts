import { type Decimal, formatDecimal, parseDecimal, subtract } from '../decimal.ts';
import { tryParseJson } from '../json.ts';
import { isDuplicate, type Database } from '../ledger/postgres/database.ts';
import { leaseLostError } from '../ledger/postgres/lease-keeper.ts';
import type {
  Budget,
  BudgetKind,
  BudgetState,
  Charge,
  Decision,
  Limit,
  OutcomeOf,
  Per,
  Reservation,
} from './budget.ts';
import { parseOwner } from './reservations.ts';

/** Dependencies of a {@link PostgresBudget}. */
export interface PostgresBudgetOptions {
  database: Database;
  kind: BudgetKind;
  name: string;
  /**
   * Returns a reservation's outcome as proved by the ledger; `none` only if the reservation's run can no longer send
   * anything under the reservation.
   */
  outcomeOf: OutcomeOf;
  /**
   * Returns milliseconds since 1970. The default is the database's clock, so that a day
   * begins at the same time on all machines.
   */
  now?: () => number;
}

/**
 * A budget stored as one database row with its sums. A reservation increases the sums in one statement, up to the
 * limit, under the row lock. The first reservation of a new day or month resets the sums of the earlier day or month.
 */
export class PostgresBudget implements Budget {
  readonly #options: PostgresBudgetOptions;
  readonly #budgets: string;
  readonly #reservations: string;
  readonly #moment: string;
  #isCreated = false;

  constructor(options: PostgresBudgetOptions) {
    const { database, now } = options;
    this.#options = options;
    this.#budgets = database.table('budgets');
    this.#reservations = database.table('reservations');
    const time = now === undefined ? 'clock_timestamp()' : 'to_timestamp($3::float8 / 1000)';
    this.#moment = `moment AS MATERIALIZED (SELECT to_char(${time} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at)`;
  }

  async reserve(charge: Charge, limit?: Limit): Promise<Decision> {
    const decision = await this.#tryToReserve(charge, limit);
    if (decision.fits || !(await this.#settleOpen())) return decision;
    return this.#tryToReserve(charge, limit);
  }

  async keep(id: string, amount?: Decimal): Promise<void> {
    // Applies even after a release, because the amount of an accepted submission is always spent.
    await this.#settleOne(id, 'kept', ['reserved', 'released', 'kept'], amount);
  }

  async release(id: string): Promise<void> {
    await this.#settleOne(id, 'released', ['reserved']);
  }

  async settle(outcomeOf?: OutcomeOf): Promise<void> {
    await this.#settleOpen(outcomeOf);
  }

  async setLimit({ amount, per }: Limit): Promise<void> {
    await this.#create();
    await this.#run(
      `UPDATE ${this.#budgets} SET amount = $4::numeric, per = $5 WHERE kind = $1 AND name = $2`,
      [formatDecimal(amount), per ?? null],
    );
  }

  async remove(): Promise<void> {
    await this.#run(
      `WITH gone AS (DELETE FROM ${this.#reservations} WHERE kind = $1 AND budget = $2)
       DELETE FROM ${this.#budgets} WHERE kind = $1 AND name = $2`,
    );
    this.#isCreated = false;
  }

  async close(): Promise<void> {}

  /** Returns the budget's state, with `requestedLimit` or else with the recorded limit. */
  async state(requestedLimit?: Limit): Promise<BudgetState> {
    const window = (of: 'held' | 'kept'): string =>
      `trim_scale(${sumInWindow(of, 'coalesce($4, per)')})::text`;
    const [row] = await this.#run<{ amount: string | null; per: Per | null; held: string; kept: string }>(
      `WITH ${this.#moment} SELECT trim_scale(amount)::text AS amount, per, ${window('held')} AS held, ${window('kept')} AS kept
       FROM ${this.#budgets} b, moment WHERE kind = $1 AND name = $2`,
      [requestedLimit === undefined ? null : (requestedLimit.per ?? 'ever')],
    );
    const recordedLimit = row?.amount
      ? { amount: parseDecimal(row.amount), ...(row.per && { per: row.per }) }
      : undefined;
    const limit = requestedLimit ?? recordedLimit;
    const spent = parseDecimal(row?.kept ?? '0');
    return { limit, spent, reserved: subtract(parseDecimal(row?.held ?? '0'), spent) };
  }

  async #tryToReserve({ id, amount, owner }: Charge, limit: Limit | undefined): Promise<Decision> {
    await this.#create();
    const values = [formatDecimal(amount), limit && formatDecimal(limit.amount), limit?.per ?? 'ever'];
    const { lease = null, instance = null } = owner;
    try {
      const [row] = await this.#run<{ made: boolean; held: boolean }>(this.#reservation(), [
        ...values,
        id,
        JSON.stringify(owner),
        lease,
        instance,
      ]);
      // An earlier attempt may have been committed although its response was lost. The amount is then already
      // reserved and included in the sums.
      if (row?.made === true || (await this.#isReserved(id))) return { fits: true };
      if (row?.held !== true && lease !== null) throw leaseLostError();
    } catch (error) {
      if (isDuplicate(error)) return { fits: true };
      throw error;
    }
    return { fits: false, state: await this.state(limit) };
  }

  // The statement locks the lease. A process that considers this one dead waits for the lock before it releases this
  // one's reservations.
  #reservation(): string {
    const per = `CASE WHEN $5::numeric IS NULL THEN b.per ELSE $6 END`;
    const raisedSums = (window: 'day' | 'month'): string =>
      `${window}_held = ${currentSum(window, 'held')} + $4::numeric, ${window}_kept = ${currentSum(window, 'kept')},
       ${window} = greatest(b.${window}, ${windowNow(window)})`;
    return `WITH ${this.#moment},
      lease AS MATERIALIZED (SELECT FROM ${this.#options.database.table('leases')}
        WHERE id = $9::bigint AND instance = $10 AND until > clock_timestamp() FOR KEY SHARE),
      fitted AS (UPDATE ${this.#budgets} b SET held = b.held + $4::numeric, ${raisedSums('day')}, ${raisedSums('month')}
        FROM moment WHERE b.kind = $1 AND b.name = $2 AND ($9::bigint IS NULL OR EXISTS (SELECT FROM lease))
          AND ${sumInWindow('held', per)} + $4::numeric <= coalesce($5::numeric, b.amount)
        RETURNING greatest(moment.at, b.day) AS at),
      made AS (INSERT INTO ${this.#reservations} (id, kind, budget, amount, at, owner, state)
        SELECT $7, $1, $2, $4::numeric, fitted.at, $8, 'reserved' FROM fitted RETURNING id)
      SELECT EXISTS (SELECT FROM made) AS made, EXISTS (SELECT FROM lease) AS held`;
  }

  async #isReserved(id: string): Promise<boolean> {
    const text = `SELECT FROM ${this.#reservations} WHERE kind = $1 AND budget = $2 AND id = $4 AND state = 'reserved'`;
    return (await this.#run(text, [id])).length > 0;
  }

  // Adjusts each sum by the difference from the amount's earlier value, so that the statement may be repeated.
  async #settleOne(
    id: string,
    to: 'kept' | 'released',
    from: readonly string[],
    amount?: Decimal,
  ): Promise<void> {
    const held = `${to === 'kept' ? 'r.amount' : '0'} - CASE WHEN was = 'released' THEN 0 ELSE was_amount END`;
    const kept = to === 'kept' ? `r.amount - CASE WHEN was = 'kept' THEN was_amount ELSE 0 END` : '0';
    const window = (name: 'day' | 'month'): string => {
      const isIn = `left(changed.at, length(b.${name})) = b.${name}`;
      return `${name}_held = b.${name}_held + CASE WHEN ${isIn} THEN changed.held ELSE 0 END,
        ${name}_kept = b.${name}_kept + CASE WHEN ${isIn} THEN changed.kept ELSE 0 END`;
    };
    await this.#run(
      `WITH old AS (SELECT id, state AS was, amount AS was_amount FROM ${this.#reservations}
          WHERE kind = $1 AND budget = $2 AND id = $4 AND state = ANY($5) FOR UPDATE),
        changed AS (UPDATE ${this.#reservations} r SET state = $6, amount = coalesce($7::numeric, r.amount) FROM old
          WHERE r.kind = $1 AND r.budget = $2 AND r.id = old.id RETURNING r.at, ${held} AS held, ${kept} AS kept)
       UPDATE ${this.#budgets} b SET held = b.held + changed.held, kept = b.kept + changed.kept,
         ${window('day')}, ${window('month')} FROM changed WHERE b.kind = $1 AND b.name = $2`,
      [id, from, to, amount && formatDecimal(amount)],
    );
  }

  // Returns whether an amount was released or replaced.
  async #settleOpen(outcomeOf = this.#options.outcomeOf): Promise<boolean> {
    const outcomes = [];
    for (const reservation of await this.#open()) {
      const outcome = await outcomeOf(reservation);
      if (outcome === 'accepted') await this.keep(reservation.id);
      if (outcome === 'none') await this.release(reservation.id);
      if (typeof outcome === 'object') await this.keep(reservation.id, outcome);
      outcomes.push(outcome);
    }
    return outcomes.some((outcome) => outcome === 'none' || typeof outcome === 'object');
  }

  async #open(): Promise<Reservation[]> {
    const rows = await this.#run<{ id: string; amount: string; at: string; owner: string }>(
      `SELECT id, amount::text, at, owner FROM ${this.#reservations}
       WHERE kind = $1 AND budget = $2 AND state = 'reserved' ORDER BY at, id`,
    );
    return rows.map(({ id, amount, at, owner }) => ({
      ...{ id, at, amount: parseDecimal(amount) },
      owner: parseOwner(tryParseJson(owner)),
    }));
  }

  async #create(): Promise<void> {
    if (this.#isCreated) return;
    await this.#run(`INSERT INTO ${this.#budgets} (kind, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`);
    this.#isCreated = true;
  }

  // $1 is the budget's kind, $2 its name, and $3 the time, if set.
  #run<T extends Record<string, unknown>>(text: string, values: readonly unknown[] = []): Promise<T[]> {
    const { database, kind, name, now } = this.#options;
    const allValues = [kind, name, now?.() ?? null, ...values];
    // PostgreSQL cannot infer the type of an unused parameter, so the used parameters are renumbered.
    const usedParameters = [...new Set(text.match(/\$\d+/g))];
    const renumbered = text.replace(/\$\d+/g, (each) => `$${usedParameters.indexOf(each) + 1}`);
    return database.query<T>(
      renumbered,
      usedParameters.map((each) => allValues[Number(each.slice(1)) - 1]),
    );
  }
}

/** Returns the names of the standing budgets in a database. */
export async function configuredNames(database: Database): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    `SELECT name FROM ${database.table('budgets')} WHERE kind = 'standing' ORDER BY name`,
  );
  return rows.map(({ name }) => name);
}

/** Lists the open reservations of all budgets in a database. */
export function openReservations(
  database: Database,
): Promise<{ kind: BudgetKind; name: string; id: string }[]> {
  return database.query(
    `SELECT kind, budget AS name, id FROM ${database.table('reservations')} WHERE state = 'reserved'`,
  );
}

// Returns the SQL for the current day or month. A budget's recorded day or month is never earlier than that of its
// reservations.
function windowNow(window: 'day' | 'month'): string {
  return `left(moment.at, ${window === 'day' ? 10 : 7})`;
}

function currentSum(window: 'day' | 'month', of: 'held' | 'kept'): string {
  return `CASE WHEN b.${window} >= ${windowNow(window)} THEN b.${window}_${of} ELSE 0 END`;
}

function sumInWindow(of: 'held' | 'kept', per: string): string {
  return `CASE ${per} WHEN 'day' THEN ${currentSum('day', of)} WHEN 'month' THEN ${currentSum('month', of)} ELSE b.${of} END`;
}
