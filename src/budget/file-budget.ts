import { createHash } from 'node:crypto';
import { join, dirname } from 'node:path';
import type { Decimal } from '../decimal.ts';
import { MgwError, messageOf } from '../errors.ts';
import {
  type BudgetEvent,
  decodeBudgetLine,
  encodeBudgetEvent,
  type RecordedBudgetEvent,
  Reservations,
} from './reservations.ts';
import type { Budget, BudgetKind, Charge, Decision, Limit, OutcomeOf, BudgetState } from './budget.ts';
import { constants } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { StringDecoder } from 'node:string_decoder';
import { makeFolder } from '../files/make-folder.ts';
import { regularFileFlags } from '../files/whole-file.ts';

/** Dependencies of a {@link FileBudget}. */
interface FileBudgetOptions {
  log: BudgetLog;
  /** The file's path, for messages. */
  path?: string;
  /** Returns milliseconds since 1970. */
  now: () => number;
  /**
   * Returns a reservation's outcome as proved by the ledger; `none` only if the reservation's run can no longer send
   * anything under the reservation.
   */
  outcomeOf: OutcomeOf;
}

/**
 * A budget in an append-only file. The order of the lines determines which reservations are valid. To reserve an
 * amount, a process appends a line and reads everything before it. The reservation is valid only if it fits within the
 * limit at that position. Lines are never changed, so every process gets the same result, and no lock is needed.
 */
export class FileBudget implements Budget {
  readonly #options: FileBudgetOptions;
  readonly #reservations = new Reservations();
  /**
   * The decisions on this process's reservations. A decision is undefined until the reservation's line has been read
   * back.
   */
  readonly #pendingDecisions = new Map<string, Decision | undefined>();
  #reading: Promise<void> = Promise.resolve();
  #partialLine = '';
  /** The error that reports a damaged file. It is never cleared. */
  #damage: MgwError | undefined;

  constructor(options: FileBudgetOptions) {
    this.#options = options;
  }

  async reserve(charge: Charge, limit?: Limit): Promise<Decision> {
    const decision = await this.#tryToReserve(charge, limit);
    if (decision.fits || !(await this.#settleOpen())) return decision;
    return this.#tryToReserve(charge, limit);
  }

  // Synced only if there is a final amount. Otherwise, if the line is lost, the amount remains reserved
  // until the ledger proves the outcome.
  async keep(id: string, amount?: Decimal): Promise<void> {
    await this.#append([{ type: 'keep', id, amount }], amount !== undefined);
  }

  // Not synced. If the line is lost, the amount remains reserved until the ledger proves the outcome.
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
    return this.#reservations.state(this.#timestamp());
  }

  close(): Promise<void> {
    return this.#options.log.close();
  }

  async #tryToReserve(charge: Charge, limit: Limit | undefined): Promise<Decision> {
    const { id } = charge;
    this.#pendingDecisions.set(id, undefined);
    try {
      await this.#append([{ type: 'reserve', ...charge, limit }], true);
      await this.#read();
      const decision = this.#pendingDecisions.get(id);
      if (decision === undefined)
        throw unusableError(this.#options.path, 'a line that was just written cannot be read');
      return decision;
    } finally {
      this.#pendingDecisions.delete(id);
    }
  }

  // Returns whether an amount was released or replaced. Records the outcome first, so that
  // the lines alone determine the state.
  async #settleOpen(recoveredOutcomeOf?: OutcomeOf): Promise<boolean> {
    const outcomeOf = recoveredOutcomeOf ?? this.#options.outcomeOf;
    const settlements: BudgetEvent[] = [];
    for (const reservation of this.#reservations.open()) {
      const { id } = reservation;
      const outcome = await outcomeOf(reservation);
      if (outcome === 'accepted') settlements.push({ type: 'keep', id });
      if (outcome === 'none') settlements.push({ type: 'release', id });
      if (typeof outcome === 'object') settlements.push({ type: 'keep', id, amount: outcome });
    }
    if (settlements.length > 0) await this.#append(settlements, recoveredOutcomeOf !== undefined);
    return settlements.some((event) => event.type === 'release' || 'amount' in event);
  }

  #append(events: BudgetEvent[], sync = false): Promise<void> {
    const at = this.#timestamp();
    // The newline before the line ends another process's torn line.
    const text = events.map((event) => `\n${encodeBudgetEvent(event, at)}\n`).join('');
    return this.#options.log.append(text, sync);
  }

  // Runs one read at a time. Each read starts where the previous read ended.
  #read(): Promise<void> {
    this.#reading = this.#reading.catch(() => undefined).then(() => this.#readNext());
    return this.#reading;
  }

  async #readNext(): Promise<void> {
    if (this.#damage) throw this.#damage;
    for await (const text of this.#options.log.read()) {
      const lines = (this.#partialLine + text).split('\n');
      this.#partialLine = lines.pop() ?? '';
      for (const line of lines) this.#apply(decodeBudgetLine(line));
    }
  }

  #apply(event: RecordedBudgetEvent | 'torn' | 'damaged'): void {
    if (event === 'torn') return;
    if (event === 'damaged') {
      // The damaged line may have been a valid reservation.
      this.#damage = damagedError(this.#options.path);
      throw this.#damage;
    }
    const decision = this.#reservations.apply(event);
    if (event.type === 'reserve' && this.#pendingDecisions.has(event.id))
      this.#pendingDecisions.set(event.id, decision);
  }

  #timestamp(): string {
    return new Date(this.#options.now()).toISOString();
  }
}

/** Returns the error for a budget file with a damaged line. */
export function damagedError(path?: string): MgwError {
  return unusableError(path, 'one of its lines is damaged, or was written by a later version of mgw');
}

function unusableError(path = 'memory', reason: string): MgwError {
  const text = `The budget file ${path} cannot be used: ${reason}. Nothing can be sent under this budget until the file is moved away. The budget then starts at 0, and a standing budget must be set again. "mgw spend --by budget" reports what was spent.`;
  return new MgwError('local_io', text, { retry: 'never', next: ['mv', path, `${path}.damaged`] });
}

/** Returns the folder of all budgets of a kind, below the ledger's folder. */
export function budgetFolder(ledgerFolder: string, kind: BudgetKind): string {
  return join(ledgerFolder, 'budgets', kind);
}

/** Returns the path of a budget's file. The budget's name may be any string. */
export function budgetPath(ledgerFolder: string, kind: BudgetKind, name: string): string {
  const encoded = encodeURIComponent(name);
  // A file name can have at most 255 bytes.
  const fileName =
    encoded.length <= 200 ? encoded : `long-${createHash('sha256').update(name).digest('hex')}`;
  return join(budgetFolder(ledgerFolder, kind), `${fileName}.jsonl`);
}

/** Returns the names of the budgets in the given files, except names that were too long for a file name. */
export function budgetNames(files: readonly string[]): string[] {
  return files
    .filter((file) => file.endsWith('.jsonl'))
    .map((file) => decodeURIComponent(file.slice(0, -6)))
    .sort();
}

/** Opens a budget, and creates it if it does not exist. @throws MgwError('local_io') if it cannot be opened. */
export async function openBudget(
  path: string,
  options: Omit<FileBudgetOptions, 'log' | 'path'>,
): Promise<Budget> {
  return new FileBudget({ ...options, path, log: await openBudgetLog(path) });
}

/** An append-only log that every process reads in the same order. */
export interface BudgetLog {
  /**
   * Appends text atomically. With `sync`, this text and all text before it are durable when the call returns.
   * @throws MgwError('local_io') if the text cannot be written.
   */
  append(text: string, sync: boolean): Promise<void>;
  /** Returns the text that any process appended since the last call, up to the current end. */
  read(): AsyncIterable<string>;
  close(): Promise<void>;
}

const { O_APPEND, O_CREAT, O_RDWR } = constants;
const blockBytes = 64 * 1024;

/**
 * Opens a log in a regular file, and creates it if it does not exist.
 * @throws MgwError('local_io') if it cannot be opened.
 */
export async function openBudgetLog(path: string): Promise<BudgetLog> {
  return withLocalErrors(path, async () => {
    await makeFolder(dirname(path));
    const file = await open(path, O_RDWR | O_CREAT | O_APPEND | regularFileFlags, 0o600);
    try {
      if (!(await file.stat()).isFile()) throw new Error('it is not a regular file');
      // The file's name must survive a crash, like its content.
      const folder = await open(dirname(path));
      await folder.sync().finally(() => folder.close());
      return new FileLog(path, file);
    } catch (error) {
      await file.close();
      throw error;
    }
  });
}

class FileLog implements BudgetLog {
  readonly #path: string;
  readonly #file: FileHandle;
  readonly #decoder = new StringDecoder('utf8');
  readonly #block = Buffer.allocUnsafe(blockBytes);
  #offset = 0;

  constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  append(text: string, sync: boolean): Promise<void> {
    return withLocalErrors(this.#path, async () => {
      await this.#checkNotReplaced();
      const bytes = Buffer.from(text);
      const { bytesWritten } = await this.#file.write(bytes);
      if (bytesWritten < bytes.length) throw new Error('no space left on device');
      if (sync) await this.#file.sync();
    });
  }

  async *read(): AsyncIterable<string> {
    const block = this.#block;
    for (;;) {
      const { bytesRead } = await withLocalErrors(this.#path, () =>
        this.#file.read(block, 0, block.length, this.#offset),
      );
      if (bytesRead === 0) return;
      this.#offset += bytesRead;
      yield this.#decoder.write(block.subarray(0, bytesRead));
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  // If the file was replaced, the new file is a second budget that this process has not read.
  async #checkNotReplaced(): Promise<void> {
    // Read the offset before the file's size, because a concurrent read may advance the offset beyond that size.
    const readOffset = this.#offset;
    const [openFile, current] = await Promise.all([this.#file.stat(), stat(this.#path)]);
    if (openFile.ino !== current.ino || openFile.dev !== current.dev || openFile.size < readOffset)
      throw new Error('the file was replaced or truncated while in use');
  }
}

async function withLocalErrors<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    const reason = messageOf(error);
    throw new MgwError('local_io', `The budget file ${path} cannot be used: ${reason}.`, {
      retry: 'safe',
      cause: error,
    });
  }
}
