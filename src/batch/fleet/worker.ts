import type { Clock } from '../../clock.ts';
import { exitCodes, messageOf, toMgwError, type MgwError } from '../../errors.ts';
import { everyRow } from '../row-selection.ts';
import { planRow, type Batch } from '../plan.ts';
import type { PlannedRow } from '../planned-row.ts';
import { BatchRun, type RunWatcher, type WorkerWatcher } from '../row-runner.ts';
import { isOwnOutputError } from '../run-row.ts';
import { sameFileName } from '../../jobs/output.ts';
import type { Slot } from '../paced-client.ts';
import { stateAfter, type RowEnd } from '../row-state.ts';
import { defaultRetryMs, IdleTime, retryDelayMs, RowLimit, stuckRetryMs } from './worker-limits.ts';
import { isValidElsewhere, parseRow, type OpenedBatch } from './queued-row.ts';
import type { ClaimedRow, QueuedBatch, RowQueue } from './row-queue.ts';

type Rows = Map<string, ClaimedRow>;

/** A worker's options. */
export interface WorkerOptions {
  queue: RowQueue;
  /** The value of `base_url` in job records. */
  gateway: string;
  /** The maximum number of rows in progress, for all batches together. */
  concurrency: number;
  /** The maximum idle time before the worker ends, in ms; absent for no limit. */
  maxIdleMs?: number;
  clock: Clock;
  /** Aborted when the worker must not claim any more rows. */
  signal: AbortSignal;
  open: (queued: QueuedBatch) => Promise<OpenedBatch>;
}

/** The minimum and maximum interval between two searches for rows, in ms. */
const [minPauseMs, maxPauseMs] = [200, 2000];

/** Claims rows from any batch in the queue, and runs each as `batch run` does. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #watcher: WorkerWatcher;
  readonly #idle: IdleTime;
  readonly #activeBatches = new Map<string, Promise<void>>();
  /** Wakes batches that have no available row. They wait for a new row, or for one of their rows in progress to end. */
  readonly #wakeBatch = new Map<string, () => void>();
  /** The batches that stopped because of rows in doubt, until the gateway accepts a submission of them. */
  readonly #inDoubt = new Set<string>();
  /** The options of each batch, as JSON, that the last search found. */
  readonly #latestHeads = new Map<string, string>();
  /** The output path of each row in progress. */
  readonly #outputs = new Map<ClaimedRow, string>();
  readonly #limit: RowLimit;
  #searchMs = minPauseMs;
  #wake: () => void = () => undefined;
  #fatalError: MgwError | undefined;

  constructor(options: WorkerOptions, watcher: WorkerWatcher) {
    this.#options = options;
    this.#watcher = watcher;
    this.#idle = new IdleTime(options.clock, options.maxIdleMs);
    this.#limit = new RowLimit(options.concurrency);
  }

  /** Runs rows until its signal is aborted or it has been idle for `maxIdleMs`. Returns any error that stopped it. */
  async run(): Promise<MgwError | undefined> {
    this.#options.signal.addEventListener('abort', () => this.#wake(), { once: true });
    while (!this.#isOver && !this.#idle.isOver(this.#activeBatches.keys())) await this.#search();
    while (this.#activeBatches.size > 0) await Promise.race(this.#activeBatches.values());
    return this.#fatalError;
  }

  get #isOver(): boolean {
    return this.#options.signal.aborted || this.#fatalError !== undefined;
  }

  async #search(): Promise<void> {
    const { queue, gateway, clock, signal } = this.#options;
    let starts = 0;
    try {
      for (const { batch, id } of await queue.recover()) this.#watcher.quarantined(batch, id);
      for (const queued of await queue.availableBatches(gateway)) starts += this.#startBatch(queued) ? 1 : 0;
      this.#watcher.alive();
    } catch (thrown) {
      const error = toMgwError(thrown);
      if (error.code === 'config') this.#fatalError ??= error;
      // A database that does not respond may contain rows, so waiting for the database is not idle time.
      this.#idle.postpone(0);
      this.#watcher.note(`${error.message} Retrying.`);
    }
    if (this.#isOver) return;
    this.#searchMs = starts > 0 ? minPauseMs : Math.min(maxPauseMs, 1.5 * this.#searchMs);
    // Creates a signal for each pause, so that listeners do not accumulate on a single signal.
    const wakeUp = new AbortController();
    this.#wake = () => wakeUp.abort();
    if (signal.aborted) this.#wake();
    await clock.sleep(this.#searchMs * (0.5 + Math.random() / 2), wakeUp.signal).catch(() => undefined);
  }

  #startBatch(queued: QueuedBatch): boolean {
    const { name, retryMs } = queued;
    this.#latestHeads.set(name, JSON.stringify(queued.head));
    // A worker with rows that wait for a retry is not idle.
    if (retryMs !== undefined) this.#idle.postpone(retryMs, name);
    if (retryMs !== undefined || this.#idle.isPaused(name)) return false;
    this.#wakeBatch.get(name)?.();
    if (this.#activeBatches.has(name)) return this.#wakeBatch.delete(name);
    const batchWork = this.#work(queued)
      .catch((error: unknown) => this.#handleError(name, toMgwError(error)))
      .finally(() => {
        this.#activeBatches.delete(name);
        this.#wake();
      });
    this.#activeBatches.set(name, batchWork);
    return true;
  }

  async #work(queued: QueuedBatch): Promise<void> {
    const openBatch = { ...(await this.#options.open(queued)), queued };
    const options = { ...openBatch.options, stopsAtFirstFailure: this.#inDoubt.has(queued.name) };
    const rows = new Map<string, ClaimedRow>();
    // Called after the ledger has recorded the job's end, because no worker claims a row that has ended.
    const onDone = ({ planned }: RowEnd): Promise<void> =>
      this.#release(planned.id, rows, (row) => this.#options.queue.recordEnd(row, 'done'));
    const run = new BatchRun(openBatch.job, options, this.#watcherOf(openBatch.batch, rows), onDone);
    let withJob: string[] | undefined;
    try {
      while (!this.#isOver && !run.isOverFor('running') && !this.#isOutdated(queued)) {
        // If the run submits nothing more, it claims only rows that may have been paid for.
        if (run.isOver) withJob ??= await this.#options.queue.idsWithJob(queued.name);
        // Runs one row at a time until the gateway accepts one.
        const isInDoubt = this.#inDoubt.has(queued.name);
        if (isInDoubt && !run.isIdle) await run.nextEnd();
        if (this.#limit.free <= 0) {
          await this.#limit.nextRelease();
          continue;
        }
        // Claims one row and waits for a slot. Claims more rows only if there are slots for them.
        const claimedRows = await this.#take(queued.name, 1, withJob);
        if (claimedRows.length === 0 && (withJob !== undefined || run.isIdle)) break;
        if (claimedRows.length === 0) {
          const newRows = new Promise<void>((resolve) => this.#wakeBatch.set(queued.name, resolve));
          await Promise.race([newRows, run.nextEnd()]);
          this.#wakeBatch.delete(queued.name);
          continue;
        }
        const slots = await run.slots(isInDoubt ? 1 : 1 + this.#limit.free, withJob && 'running');
        const capacity = Math.min(slots.length - 1, this.#limit.free);
        try {
          if (capacity > 0) claimedRows.push(...(await this.#take(queued.name, capacity, withJob)));
        } catch (error) {
          // Rows that were claimed despite the error are under this worker's lease, and the next claim returns them.
          this.#watcher.note(`${messageOf(error)} Retrying.`);
        }
        for (const slot of slots.slice(claimedRows.length)) slot.leave();
        for (const row of claimedRows) rows.set(row.id, row);
        const started = await Promise.allSettled(
          claimedRows.map((row, index) => this.#start(row, slots[index], openBatch, run, rows)),
        );
        for (const each of started) if (each.status === 'rejected') throw each.reason;
      }
    } finally {
      await run.end();
      // Drops the remaining rows, whose outcomes were not recorded.
      for (const id of rows.keys()) await this.#release(id, rows, (row) => this.#options.queue.drop(row));
      await options.pace.close();
    }
    if (run.stoppedBy === undefined) return;
    this.#handleError(queued.name, await openBatch.withNeededLimit(run.stoppedBy), options.pace.delayMs);
  }

  async #take(batch: string, max: number, ids?: string[]): Promise<ClaimedRow[]> {
    this.#limit.claim(max);
    let claimedRows: ClaimedRow[] = [];
    try {
      return (claimedRows = await this.#options.queue.claim(batch, max, ids));
    } finally {
      this.#limit.release(max - claimedRows.length);
    }
  }

  // Plans a row and starts it, unless the row needs no work or the run is over.
  async #start(
    row: ClaimedRow,
    slot: Slot | undefined,
    { batch, plan, queued }: OpenedBatch & { queued: QueuedBatch },
    run: BatchRun,
    rows: Rows,
  ): Promise<void> {
    const { queue } = this.#options;
    const release = (record: (row: ClaimedRow) => Promise<void>): Promise<void> => {
      slot?.leave();
      return this.#release(row.id, rows, record);
    };
    const refuse = (why: string, isReturned: boolean): Promise<void> => {
      if (isReturned) this.#idle.setStuck(batch.name, true);
      this.#watcher.bad(batch, row.id, why, isReturned);
      return release(() =>
        isReturned ? queue.returnToQueue(row, stuckRetryMs, why) : queue.recordEnd(row, 'bad', why),
      );
    };
    let planned: PlannedRow;
    try {
      planned = await planRow(parseRow(row.id, row.content), batch, plan);
    } catch (thrown) {
      const error = toMgwError(thrown);
      if (error.code === 'usage') return refuse(error.message, await isValidElsewhere(row, batch, plan));
      await release(() => queue.returnToQueue(row, 0));
      throw error;
    }
    const rowToRun = everyRow.rowToRun(planned, planned.take.number);
    if (rowToRun === undefined) {
      this.#watcher.skipped(batch, planned);
      return release(() => queue.recordEnd(row, planned.state, planned.take.job?.error?.message));
    }
    // While the row waited for its slot, its lease may have ended, so that another worker can claim the row.
    const { state } = rowToRun;
    if (slot === undefined || run.isOverFor(state) || this.#isOutdated(queued) || !(await queue.isOwn(row))) {
      const isUnpaid = state !== 'running' && run.isOver && !run.isOverFor('running');
      return release(() => queue.returnToQueue(row, isUnpaid ? stuckRetryMs : 0));
    }
    const path = sameFileName(rowToRun.path);
    if (!path.includes('{job}') && [...this.#outputs.values()].includes(path))
      return refuse(`${rowToRun.path} is also the output of another row in progress.`, true);
    this.#outputs.set(row, path);
    run.start(rowToRun, slot);
  }

  #watcherOf(batch: Batch, rows: Rows): RunWatcher {
    const { queue } = this.#options;
    return {
      began: (planned) => this.#watcher.began(batch, planned),
      updated: (planned, job) => {
        if (job.state !== 'succeeded') this.#idle.setStuck(batch.name, false);
        this.#watcher.updated(planned, job);
      },
      accepted: () => {
        this.#inDoubt.delete(batch.name);
        this.#idle.setStuck(batch.name, false);
      },
      note: (text) => this.#watcher.note(text),
      ended: async (end) => {
        const { planned, error } = end;
        const state = stateAfter(end);
        if (error !== undefined && isOwnOutputError(planned, error)) {
          this.#watcher.bad(batch, planned.id, error.message, false);
          return this.#release(planned.id, rows, (row) => queue.recordEnd(row, 'bad', error.message));
        }
        const delayMs = error === undefined ? undefined : retryDelayMs(error);
        if (delayMs === stuckRetryMs) this.#idle.setStuck(batch.name, true);
        else this.#idle.postpone(delayMs ?? 0);
        await this.#watcher.ended(batch, end, state, delayMs !== undefined);
        if (error === undefined) return;
        await this.#release(planned.id, rows, (row) =>
          delayMs === undefined
            ? queue.recordEnd(row, state, error.message)
            : queue.returnToQueue(row, delayMs, error.message),
        );
      },
    };
  }

  // If a row's outcome cannot be recorded in the queue, the next worker that claims the row reads it from the ledger.
  async #release(id: string, rows: Rows, record: (row: ClaimedRow) => Promise<void> | void): Promise<void> {
    const row = rows.get(id);
    if (row === undefined) return;
    rows.delete(id);
    this.#outputs.delete(row);
    this.#limit.release(1);
    this.#idle.postpone(0, row.batch);
    try {
      await record(row);
    } catch (error) {
      this.#options.queue.drop(row);
      this.#watcher.note(messageOf(error));
    }
  }

  // A batch whose options have changed is opened again, once its rows in progress have ended.
  #isOutdated({ name, head }: QueuedBatch): boolean {
    return this.#latestHeads.get(name) !== JSON.stringify(head);
  }

  // A spent budget, an unreachable server, a long `Retry-After` or many rows in doubt only pause the batch. Any other
  // error that ends a run stops the worker.
  #handleError(name: string, error: MgwError, retryAfterMs = 0): void {
    if (this.#isOver) return;
    const isInDoubt = error.exitCode === exitCodes.unknown;
    if (isInDoubt) this.#inDoubt.add(name);
    const isStuck = isInDoubt || error.code === 'budget';
    const isTemporary = ['unreachable', 'rate_limited'].includes(error.code);
    if (!isStuck && !isTemporary) return void (this.#fatalError = error);
    const delayMs = isStuck ? stuckRetryMs : Math.max(defaultRetryMs, retryAfterMs);
    this.#idle.pause(name, delayMs, isStuck);
    this.#watcher.note(`${name}: ${error.message} Retrying in ${Math.ceil(delayMs / 1000)} s.`, error.next);
  }
}
