import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { MgwError } from '../errors.ts';
import { type BudgetEvent, decodeBudgetLine, encodeBudgetEvent, Reservations } from './reservations.ts';
import { type BudgetLog, openBudgetLog } from './budget-log.ts';
import type { Budget, Charge, Decision, Limit, OutcomeOf, BudgetState } from './budget.ts';

/** Dependencies of a budget in a file. */
interface FileBudgetOptions {
  log: BudgetLog;
  /** The path of the file, for messages. */
  path?: string;
  /** Milliseconds since 1970. */
  now: () => number;
  /**
   * Returns what the ledger proves about a reservation; `none` only if its run can no longer send anything under it.
   */
  outcomeOf: OutcomeOf;
}

/**
 * A budget in an append-only file whose order decides. To reserve, a process appends a line and reads everything before
 * it. It has the amount only if the line fits at its place. Lines are never changed, so every process gets the same
 * result, and no lock is needed.
 */
export class FileBudget implements Budget {
  readonly #options: FileBudgetOptions;
  readonly #reservations = new Reservations();
  /** Reservations of this process: undefined until their line was read back, then the decision. */
  readonly #awaited = new Map<string, Decision | undefined>();
  #reading: Promise<void> = Promise.resolve();
  #rest = '';
  /** Set once the file is damaged, and never cleared. */
  #broken: MgwError | undefined;

  constructor(options: FileBudgetOptions) {
    this.#options = options;
  }

  async reserve(charge: Charge, limit?: Limit): Promise<Decision> {
    const decision = await this.#tryToReserve(charge, limit);
    if (decision.fits || !(await this.#settleOpen())) return decision;
    return this.#tryToReserve(charge, limit);
  }

  async keep(id: string): Promise<void> {
    await this.#append([{ type: 'keep', id }]);
  }

  // Not synced: if the line is lost, the amount stays reserved until the ledger proves the outcome.
  async release(id: string): Promise<void> {
    await this.#append([{ type: 'release', id }]);
  }

  async settle(outcomeOf?: OutcomeOf): Promise<void> {
    await this.#read();
    await this.#settleOpen(outcomeOf);
  }

  async setLimit(limit: Limit): Promise<void> {
    await this.#append([{ type: 'limit', ...limit }], true);
  }

  async remove(): Promise<void> {
    await this.#append([{ type: 'removed' }], true);
  }

  async state(): Promise<BudgetState> {
    await this.#read();
    return this.#reservations.state(this.#at());
  }

  close(): Promise<void> {
    return this.#options.log.close();
  }

  async #tryToReserve(charge: Charge, limit: Limit | undefined): Promise<Decision> {
    const { id } = charge;
    this.#awaited.set(id, undefined);
    try {
      await this.#append([{ type: 'reserve', ...charge, limit }], true);
      await this.#read();
      const decision = this.#awaited.get(id);
      if (decision === undefined) throw this.#unusable('a line that was just written cannot be read');
      return decision;
    } finally {
      this.#awaited.delete(id);
    }
  }

  // Returns true if an amount was released. The outcome is recorded first, so that the lines alone decide.
  async #settleOpen(given?: OutcomeOf): Promise<boolean> {
    const outcomeOf = given ?? this.#options.outcomeOf;
    const settled: BudgetEvent[] = [];
    for (const reservation of this.#reservations.open()) {
      const { id } = reservation;
      const outcome = await outcomeOf(reservation);
      if (outcome === 'accepted') settled.push({ type: 'keep', id });
      if (outcome === 'none') settled.push({ type: 'release', id });
    }
    if (settled.length > 0) await this.#append(settled, given !== undefined);
    return settled.some(({ type }) => type === 'release');
  }

  #append(events: BudgetEvent[], sync = false): Promise<void> {
    const at = this.#at();
    // The newline before the line ends a torn line of another process.
    const text = events.map((event) => `\n${encodeBudgetEvent(event, at)}\n`).join('');
    return this.#options.log.append(text, sync);
  }

  // One read at a time, each starting at the end of the last one.
  #read(): Promise<void> {
    this.#reading = this.#reading.catch(() => undefined).then(() => this.#readOn());
    return this.#reading;
  }

  async #readOn(): Promise<void> {
    if (this.#broken) throw this.#broken;
    for await (const text of this.#options.log.read()) {
      const lines = (this.#rest + text).split('\n');
      this.#rest = lines.pop() ?? '';
      for (const line of lines) if (line !== '') this.#take(line);
    }
  }

  #take(line: string): void {
    const event = decodeBudgetLine(line);
    if (event === 'torn') return;
    if (event === 'damaged') {
      // The line may have been a reservation that counts.
      this.#broken = this.#unusable('a line of it is damaged, or was written by a later version of mgw');
      throw this.#broken;
    }
    const decision = this.#reservations.apply(event);
    if (event.type !== 'reserve' || decision === undefined) return;
    if (this.#awaited.has(event.id)) this.#awaited.set(event.id, decision);
  }

  #at(): string {
    return new Date(this.#options.now()).toISOString();
  }

  #unusable(why: string): MgwError {
    const { path = 'memory' } = this.#options;
    const text = `The record of the budget in ${path} cannot be used: ${why}. Nothing is sent under it. Move the file away and set the budget anew; "mgw spend --by budget" says what was spent.`;
    return new MgwError('local_io', text, { retry: 'never', next: ['mgw', 'spend', '--by', 'budget'] });
  }
}

/**
 * The scope of a budget. A standing budget has a name that the user chose, and its own limit. The budget of a command
 * or batch counts everything that was ever paid for it, against the limit that each run sets.
 */
export type BudgetKind = 'standing' | 'command' | 'batch';

/** The folder of the budgets of a kind, below the ledger's folder. */
export function budgetFolder(ledgerFolder: string, kind: BudgetKind): string {
  return join(ledgerFolder, 'budgets', kind);
}

/** Returns the file of a budget. The name may be any text. */
export function budgetPath(ledgerFolder: string, kind: BudgetKind, name: string): string {
  const encoded = encodeURIComponent(name);
  // A file name has at most 255 bytes.
  const short = encoded.length <= 200 ? encoded : `long-${createHash('sha256').update(name).digest('hex')}`;
  return join(budgetFolder(ledgerFolder, kind), `${short}.jsonl`);
}

/** Returns the names of the budgets of these files, except names that were too long for a file name. */
export function budgetNames(files: readonly string[]): string[] {
  return files
    .filter((file) => file.endsWith('.jsonl'))
    .map((file) => decodeURIComponent(file.slice(0, -6)))
    .sort();
}

/** Opens a budget, and creates it if it is missing. @throws MgwError('local_io') if it cannot be opened. */
export async function openBudget(
  path: string,
  options: Omit<FileBudgetOptions, 'log' | 'path'>,
): Promise<Budget> {
  return new FileBudget({ ...options, path, log: await openBudgetLog(path) });
}
