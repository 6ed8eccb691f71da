import type { Clock } from '../../clock.ts';
import { messageOf, toMgwError, type MgwError } from '../../errors.ts';
import type { FlowDeps } from '../../flows/settings.ts';
import { everyRow } from '../choice.ts';
import { planRow, type Batch, type PlanDeps } from '../plan.ts';
import type { PlannedRow } from '../planned-row.ts';
import { BatchRun, isOwnPath, type RunOptions, type RunWatcher, type WorkerWatcher } from '../row-runner.ts';
import { sameFileName } from '../../jobs/output.ts';
import type { Slot } from '../paced-client.ts';
import { stateAfter, type RowEnd } from '../row-state.ts';
import { isValidElsewhere, parseRow } from './queued-row.ts';
import { heldMs, retryDelayMs, shortDelayMs } from './row-queue.ts';
import type { ClaimedRow, QueuedBatch, RowQueue } from './row-queue.ts';

type Rows = Map<string, ClaimedRow>;

/** A batch of the queue, opened to be worked on. */
export interface OpenedBatch {
  batch: Batch;
  plan: PlanDeps;
  job: FlowDeps;
  options: RunOptions;
}

/** The options of a worker. */
export interface WorkerOptions {
  queue: RowQueue;
  /** The value of `base_url` in records. */
  gateway: string;
  /** The maximum number of rows in progress, over all batches. */
  concurrency: number;
  /** Ends after being idle for this long, ms. Never if absent. */
  maxIdleMs?: number;
  clock: Clock;
  /** Aborted when the worker must take no more rows. */
  signal: AbortSignal;
  open: (queued: QueuedBatch) => Promise<OpenedBatch>;
}

/** The minimum and maximum interval between two searches for rows, ms. */
const [minPauseMs, maxPauseMs] = [200, 2000];

/** Takes rows of any batch in the queue, and carries out each as `batch run` does. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #watcher: WorkerWatcher;
  readonly #working = new Map<string, Promise<void>>();
  /** Batches without an available row. Each waits for a new row, or for the end of one of its own. */
  readonly #awaiting = new Map<string, () => void>();
  /** Batches to skip until a time, monotonic ms. */
  readonly #held = new Map<string, number>();
  /**
   * Batches with a row that another try alone does not help. Trying one again counts as idle until a row of it makes
   * progress.
   */
  readonly #stuck = new Set<string>();
  readonly #outputs = new Map<ClaimedRow, string>();
  #inHand = 0;
  /** Batches that wait until this worker has fewer rows in progress. */
  readonly #waiting: (() => void)[] = [];
  #lookMs = minPauseMs;
  #idleSince: number;
  #wake: () => void = () => undefined;
  #stop: MgwError | undefined;

  constructor(options: WorkerOptions, watcher: WorkerWatcher) {
    this.#options = options;
    this.#watcher = watcher;
    this.#idleSince = options.clock.monotonic();
  }

  /** Works until its signal is aborted or it has been idle for `maxIdleMs`. Returns any error that stopped it. */
  async run(): Promise<MgwError | undefined> {
    this.#options.signal.addEventListener('abort', () => this.#wake(), { once: true });
    while (!this.#isOver && !this.#isIdle()) await this.#look();
    while (this.#working.size > 0) await Promise.race(this.#working.values());
    return this.#stop;
  }

  get #isOver(): boolean {
    return this.#options.signal.aborted || this.#stop !== undefined;
  }

  #isIdle(): boolean {
    const { clock, maxIdleMs = Infinity } = this.#options;
    for (const name of this.#working.keys()) this.#stayFor(0, name);
    return clock.monotonic() - this.#idleSince >= maxIdleMs;
  }

  async #look(): Promise<void> {
    const { queue, gateway, clock, signal } = this.#options;
    let begun = 0;
    try {
      for (const { batch, id } of await queue.recover()) this.#watcher.quarantined(batch, id);
      for (const queued of await queue.waiting(gateway)) begun += this.#begin(queued) ? 1 : 0;
      this.#watcher.alive();
    } catch (thrown) {
      const error = toMgwError(thrown);
      if (error.code === 'config') this.#stop ??= error;
      // A database that does not respond may hold rows: this is not idle time.
      this.#stayFor(0);
      this.#watcher.note(`${error.message} Asking again.`);
    }
    if (this.#isOver) return;
    this.#lookMs = begun > 0 ? minPauseMs : Math.min(maxPauseMs, 1.5 * this.#lookMs);
    // One signal for each pause, so that listeners of ended rows do not accumulate on one signal.
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    if (signal.aborted) this.#wake();
    await clock.sleep(this.#lookMs * (0.5 + Math.random() / 2), woken.signal).catch(() => undefined);
  }

  #begin(queued: QueuedBatch): boolean {
    const { name, retryMs } = queued;
    if (retryMs !== undefined) this.#stayFor(retryMs, name);
    if (retryMs !== undefined || (this.#held.get(name) ?? 0) > this.#options.clock.monotonic()) return false;
    this.#awaiting.get(name)?.();
    if (this.#working.has(name)) return this.#awaiting.delete(name);
    const working = this.#work(queued)
      .catch((error: unknown) => this.#judge(name, toMgwError(error)))
      .finally(() => {
        this.#working.delete(name);
        this.#wake();
      });
    this.#working.set(name, working);
    return true;
  }

  async #work(queued: QueuedBatch): Promise<void> {
    const opened = await this.#options.open(queued);
    const { batch, job, options } = opened;
    const rows = new Map<string, ClaimedRow>();
    // Called after the end of the job is recorded, because no other worker looks at a row that has ended.
    const onDone = ({ planned }: RowEnd): Promise<void> =>
      this.#release(planned.id, rows, (row) => this.#options.queue.end(row, 'done'));
    const run = new BatchRun(job, options, this.#watcherOf(batch, rows), onDone);
    try {
      while (!this.#isOver && !run.isOver) {
        if (this.#inHand >= this.#options.concurrency) {
          await new Promise<void>((resolve) => this.#waiting.push(resolve));
          continue;
        }
        // Take one row, and wait for a slot. Take more rows only when there are slots for them.
        const taken = await this.#take(queued.name, 1);
        if (taken.length === 0 && run.isIdle) break;
        if (taken.length === 0) {
          const rowsCame = new Promise<void>((resolve) => this.#awaiting.set(queued.name, resolve));
          await Promise.race([rowsCame, run.nextEnd()]);
          this.#awaiting.delete(queued.name);
          continue;
        }
        const slots = await run.slots(1 + this.#options.concurrency - this.#inHand);
        const room = Math.min(slots.length - 1, this.#options.concurrency - this.#inHand);
        try {
          if (room > 0) taken.push(...(await this.#take(queued.name, room)));
        } catch (error) {
          // The rows that were taken despite the error are under this worker's lease, and the next call finds them.
          this.#watcher.note(`${messageOf(error)} Asking again.`);
        }
        for (const slot of slots.slice(taken.length)) slot.leave();
        for (const row of taken) rows.set(row.id, row);
        const started = await Promise.allSettled(
          taken.map((row, at) => this.#start(row, slots[at], opened, run, rows)),
        );
        for (const each of started) if (each.status === 'rejected') throw each.reason;
      }
    } finally {
      await run.end();
      // The outcomes of the remaining rows could not be recorded.
      for (const row of rows.values()) {
        this.#outputs.delete(row);
        this.#options.queue.drop(row);
      }
      this.#makeRoom(rows.size);
      await options.pace.close();
    }
    if (run.stoppedBy !== undefined) this.#judge(queued.name, run.stoppedBy);
  }

  async #take(batch: string, max: number): Promise<ClaimedRow[]> {
    this.#inHand += max;
    let taken: ClaimedRow[] = [];
    try {
      taken = await this.#options.queue.take(batch, max);
      return taken;
    } finally {
      this.#makeRoom(max - taken.length);
    }
  }

  // Plans a row and starts it, unless there is nothing to be done for it or the run is over.
  async #start(
    taken: ClaimedRow,
    slot: Slot | undefined,
    { batch, plan }: OpenedBatch,
    run: BatchRun,
    rows: Rows,
  ): Promise<void> {
    const { queue } = this.#options;
    const release = (tell: (row: ClaimedRow) => Promise<void>): Promise<void> => {
      slot?.leave();
      return this.#release(taken.id, rows, tell);
    };
    const refuse = (why: string, isGivenBack: boolean): Promise<void> => {
      if (isGivenBack) this.#stuck.add(batch.name);
      this.#watcher.bad(batch, taken.id, why, isGivenBack);
      return release(() => (isGivenBack ? queue.giveBack(taken, heldMs, why) : queue.end(taken, 'bad', why)));
    };
    let planned: PlannedRow;
    try {
      planned = await planRow(parseRow(taken.id, taken.content), batch, plan);
    } catch (thrown) {
      const error = toMgwError(thrown);
      if (error.code === 'usage') return refuse(error.message, await isValidElsewhere(taken, batch, plan));
      await release(() => queue.giveBack(taken, 0));
      throw error;
    }
    const own = everyRow.toCarryOut(planned, planned.take.number);
    if (own === undefined) {
      this.#watcher.left(batch, planned);
      return release(() => queue.end(taken, planned.state, planned.take.job?.error?.message));
    }
    if (slot === undefined || run.isOver) return release(() => queue.giveBack(taken, 0));
    const path = sameFileName(own.path);
    if (!path.includes('{job}') && [...this.#outputs.values()].includes(path))
      return refuse(`${own.path} is also the output of another row in progress.`, true);
    this.#outputs.set(taken, path);
    run.start(own, slot);
  }

  #watcherOf(batch: Batch, rows: Rows): RunWatcher {
    return {
      began: (planned) => this.#watcher.began(batch, planned),
      updated: (planned, job) => {
        if (job.state !== 'succeeded') this.#stuck.delete(batch.name);
        this.#watcher.updated(planned, job);
      },
      note: (text) => this.#watcher.note(text),
      ended: async (end) => {
        const { planned, error } = end;
        const state = stateAfter(end);
        if (error !== undefined && isOwnPath(planned, error)) {
          this.#watcher.bad(batch, planned.id, error.message, false);
          return this.#release(planned.id, rows, (row) => this.#options.queue.end(row, 'bad', error.message));
        }
        const rest = error === undefined ? undefined : retryDelayMs(error);
        if (rest === heldMs) this.#stuck.add(batch.name);
        else this.#stayFor(rest ?? 0);
        await this.#watcher.ended(batch, end, state, rest !== undefined);
        if (error === undefined) return;
        await this.#release(planned.id, rows, (row) =>
          rest === undefined
            ? this.#options.queue.end(row, state, error.message)
            : this.#options.queue.giveBack(row, rest, error.message),
        );
      },
    };
  }

  // If the outcome of a row cannot be recorded in the queue, the next worker that takes it reads it from the ledger.
  async #release(id: string, rows: Rows, tell: (row: ClaimedRow) => Promise<void>): Promise<void> {
    const row = rows.get(id);
    if (row === undefined) return;
    rows.delete(id);
    this.#outputs.delete(row);
    this.#makeRoom(1);
    this.#stayFor(0, row.batch);
    try {
      await tell(row);
    } catch (error) {
      this.#options.queue.drop(row);
      this.#watcher.note(messageOf(error));
    }
  }

  // A worker with rows that wait for a retry is not idle.
  #stayFor(ms: number, name?: string): void {
    if (name === undefined || !this.#stuck.has(name))
      this.#idleSince = Math.max(this.#idleSince, this.#options.clock.monotonic() + ms);
  }

  #makeRoom(count: number): void {
    this.#inHand -= count;
    for (const wake of this.#waiting.splice(0)) wake();
  }

  // A budget belongs to one batch. Any other error that ends a run would end the runs of all batches.
  #judge(name: string, error: MgwError): void {
    if (this.#isOver) return;
    const isSpent = error.code === 'budget';
    if (!isSpent && error.code !== 'unreachable') return void (this.#stop = error);
    const delayMs = isSpent ? heldMs : shortDelayMs;
    this.#held.set(name, this.#options.clock.monotonic() + delayMs);
    if (isSpent) this.#stuck.add(name);
    else this.#stayFor(delayMs);
    this.#watcher.note(`${name}: ${error.message} Trying again in ${delayMs / 1000} s.`);
  }
}
