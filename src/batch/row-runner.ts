import { exitCodes, messageOf, MgwError, toMgwError } from '../errors.ts';
import type { Job } from '../job.ts';
import type { FlowDeps } from '../flows/settings.ts';
import type { Delivered } from '../flows/deliver.ts';
import type { Signals } from '../payment/pay-once.ts';
import { isOwnOutputError, runRow, type RowOptions } from './run-row.ts';
import { rateLimitedError, Slot } from './paced-client.ts';
import type { Pace } from './pace.ts';
import type { Batch } from './plan.ts';
import type { PlannedRow, RowState } from './planned-row.ts';
import type { RowSelection } from './row-selection.ts';
import { isKeyRefused, type RowEnd } from './row-state.ts';

/** Callbacks for a run's rows. */
export interface RunWatcher {
  began(planned: PlannedRow): void;
  updated(planned: PlannedRow, job: Job): void;
  /** Called when the gateway accepts a submission of this run. */
  accepted?: () => void;
  /** Resolves when the outcome is recorded. Only then is the row treated as delivered. */
  ended(end: RowEnd): Promise<void>;
  note(text: string): void;
}

/** Callbacks for a worker. */
export interface WorkerWatcher {
  /** Called when a row has been claimed. */
  began(batch: Batch, planned: PlannedRow): void;
  updated: RunWatcher['updated'];
  /** Called when a row has ended on this worker. `isReturned` is true if the row went back to the queue for a retry. */
  ended(batch: Batch, end: RowEnd, state: RowState, isReturned: boolean): Promise<void>;
  /** Called for a row that needs no work, or that only the user can continue. */
  skipped(batch: Batch, planned: PlannedRow): void;
  /** Called if a row is invalid, or if it went back to the queue (`isReturned`) because this worker cannot run it. */
  bad(batch: Batch, id: string, why: string, isReturned: boolean): void;
  /** Called when a row was quarantined because too many workers died while running it. */
  quarantined(batch: string, id: string): void;
  /** `next` is the command that resolves the reported problem, if known. */
  note(text: string, next?: string[]): void;
  /** Called when the queue has responded. */
  alive(): void;
}

/** A run's options. */
export interface RunOptions extends RowOptions {
  pace: Pace;
  /**
   * Returns the next retry of a row that an earlier run paid for and whose result is gone, if the command allows one.
   */
  nextRetry?: RowSelection['nextRetry'];
  /** Whether one row in doubt or without a connection stops the run, unless a row of the run was accepted before. */
  stopsAtFirstFailure?: boolean;
}

/**
 * The maximum number of downloads and of rows that wait for a retry, in addition to tasks in progress at the gateway.
 */
const maxInParallel = 8;
/** The run stops after this number of consecutive rows in doubt or without a connection. */
const maxConsecutiveFailures = 5;

/**
 * Runs many rows concurrently. Starts each row as soon as a slot is free, and removes it from memory when it has ended.
 */
export class BatchRun {
  readonly #deps: FlowDeps;
  readonly #options: RunOptions;
  readonly #watcher: RunWatcher;
  readonly #onDone: (end: RowEnd) => Promise<void>;
  readonly #signals: RowSignals;
  /** The number of rows in progress. */
  #open = 0;
  #onEnd: (() => void) | undefined;
  /** The number of rows that have ended. A refused row may be retried after this number has increased. */
  #endedCount = 0;
  /** The numbers of rows that ended in doubt or without a connection since the gateway last answered a submission. */
  #doubts = 0;
  #disconnected = 0;
  #fatalError: MgwError | undefined;
  /** Whether the run still continues paid rows if it has stopped. */
  #continuesPaid = true;

  /** @param onDone called for each done row after its last event is recorded */
  constructor(
    deps: FlowDeps,
    options: RunOptions,
    watcher: RunWatcher,
    onDone: (end: RowEnd) => Promise<void>,
  ) {
    this.#deps = deps;
    this.#options = options;
    this.#watcher = watcher;
    this.#onDone = onDone;
    if (options.stopsAtFirstFailure) this.#doubts = maxConsecutiveFailures - 1;
    this.#signals = new RowSignals(deps.signals);
  }

  /** The error that stopped the run, because every other row would fail too. */
  get stoppedBy(): MgwError | undefined {
    return this.#fatalError;
  }

  /** Whether the run has stopped starting rows. */
  get isOver(): boolean {
    return this.#fatalError !== undefined || this.#deps.signals.soft.aborted;
  }

  /**
   * Whether the run has stopped starting rows in the given state. Paid rows send nothing, so an error that only affects
   * submissions does not stop them.
   */
  isOverFor(state: RowState): boolean {
    const isResumed = state === 'running' && this.#continuesPaid && !this.#deps.signals.soft.aborted;
    return this.isOver && !isResumed;
  }

  /** Stops starting rows because of an error. An earlier error takes precedence. */
  stop(error: MgwError): void {
    this.#continuesPaid &&= ['balance', 'budget', 'rate_limited', 'submit_unknown'].includes(error.code);
    this.#fatalError ??= error;
  }

  /** Starts a row as soon as a slot is free. Does nothing if the run has stopped for its state. Never throws. */
  async begin(planned: PlannedRow): Promise<void> {
    const [slot] = await this.slots(1, planned.state);
    if (slot !== undefined) this.start(planned, slot);
  }

  /**
   * Waits for a free slot and takes up to `max` slots for rows in the given state. Takes none if the run has stopped
   * for that state. Never throws.
   */
  async slots(max: number, state: RowState = 'new'): Promise<Slot[]> {
    const { pace, timeoutMs } = this.#options;
    const capacity = (): number => pace.limit + maxInParallel - this.#open;
    while (capacity() <= 0 && !this.isOverFor(state)) await this.nextEnd();
    if (state !== 'running' && !this.isOver && pace.delayMs > timeoutMs)
      this.stop(rateLimitedError(pace.delayMs));
    if (this.isOverFor(state)) return [];
    const { soft } = this.#deps.signals;
    try {
      const count = await pace.enter(soft, Math.min(max, capacity()));
      const slots = Array.from({ length: count }, () => new Slot(pace, true));
      if (!this.isOverFor(state)) return slots;
      for (const slot of slots) slot.leave();
    } catch (error) {
      if (!soft.aborted) this.stop(toMgwError(error));
    }
    return [];
  }

  /** Starts a row in a slot. */
  start(planned: PlannedRow, slot: Slot): void {
    this.#watcher.began(planned);
    this.#open += 1;
    void this.#runRow(planned, slot).finally(() => {
      this.#open -= 1;
      this.#onEnd?.();
    });
  }

  /** Waits for all rows in progress. */
  async end(): Promise<void> {
    while (this.#open > 0) await this.nextEnd();
    this.#signals.close();
  }

  /** Whether no row is in progress. */
  get isIdle(): boolean {
    return this.#open === 0;
  }

  /** Waits until a row has ended. Must not be called during {@link slots} or {@link end}. */
  nextEnd(): Promise<void> {
    return new Promise((resolve) => (this.#onEnd = resolve));
  }

  async #runRow(planned: PlannedRow, slot: Slot): Promise<void> {
    const end = await this.#attempts(planned, slot);
    slot.leave();
    this.#endedCount += 1;
    this.#checkFatal(end);
    try {
      await this.#watcher.ended(end);
      await end.delivered?.();
      if (end.error === undefined) await this.#onDone(end);
    } catch (error) {
      this.stop(error instanceof MgwError ? error : new MgwError('local_io', messageOf(error)));
    }
  }

  async #attempts(
    firstTake: PlannedRow,
    slot: Slot,
  ): Promise<RowEnd & Partial<Pick<Delivered, 'delivered'>>> {
    const { pace, nextRetry } = this.#options;
    let planned = firstTake;
    let isPaid = false;
    const onPaid = (): void => {
      isPaid = true;
      this.#doubts = 0;
      this.#disconnected = 0;
      this.#watcher.accepted?.();
    };
    for (;;) {
      const endedBefore = this.#endedCount;
      const rowSignals = this.#signals.open();
      const note = (text: string): void => this.#watcher.note(`${planned.id}: ${text}`);
      const onUpdate = (job: Job): void => this.#watcher.updated(planned, job);
      try {
        const deps = { ...this.#deps, signals: rowSignals.signals, note };
        const result = await runRow(planned, deps, this.#options, { pace, slot, onPaid, onUpdate });
        const { job, files, delivered } = result;
        return { planned, job, files, isPaid, delivered };
      } catch (thrown) {
        const error = toMgwError(thrown);
        // Nothing was sent for the row. If other rows make progress, the gateway has capacity again.
        if (
          error.code === 'rate_limited' &&
          error.charged === 'no' &&
          this.#endedCount > endedBefore &&
          !this.isOver
        )
          continue;
        const isGone = error.exitCode === exitCodes.incomplete;
        const nextTake = isGone && !isPaid && !this.isOver ? nextRetry?.(planned) : undefined;
        if (nextTake === undefined) return { planned, job: error.job, files: [], isPaid, error };
        planned = nextTake;
      } finally {
        rowSignals.close();
      }
    }
  }

  #checkFatal({ planned, error }: RowEnd): void {
    const isUnreachable = error?.exitCode === exitCodes.unavailable && error.code === 'unreachable';
    const isInDoubt = error?.exitCode === exitCodes.unknown && error.charged === 'maybe';
    if (error?.exitCode === exitCodes.rejected) this.#doubts = 0;
    // A row that only resumes a task shows that the gateway responds, but not that it answers submissions.
    if (isInDoubt) this.#doubts += 1;
    else this.#disconnected = isUnreachable ? this.#disconnected + 1 : 0;
    if (error === undefined) return;
    const isFatal =
      isKeyRefused(error) ||
      ['balance', 'budget', 'internal'].includes(error.code) ||
      (error.code === 'local_io' &&
        error.job === undefined &&
        !error.isOfInput &&
        !isOwnOutputError(planned, error)) ||
      // The store would refuse the other rows' videos too, after they were paid for.
      (error.code === 'store' && error.exitCode !== exitCodes.unavailable);
    if (isFatal) this.stop(error);
    if (this.#doubts + this.#disconnected < maxConsecutiveFailures) return;
    const text = `The run stopped after ${maxConsecutiveFailures} consecutive failures. The last one: ${error.message}`;
    this.stop(error.with({}, text));
  }
}

/**
 * Creates separate signals for each row of a run. There may be thousands of rows, and the more listeners a signal has,
 * the slower it is to add or remove one.
 */
class RowSignals {
  readonly #source: Signals;
  readonly #open = new Set<{ soft: AbortController; hard: AbortController }>();
  readonly #forward = (): void => {
    for (const controllers of this.#open) this.#forwardTo(controllers);
  };

  constructor(source: Signals) {
    this.#source = source;
    source.soft.addEventListener('abort', this.#forward);
    source.hard.addEventListener('abort', this.#forward);
  }

  /** Returns a row's signals, and a function that removes them when the row has ended. */
  open(): { signals: Signals; close: () => void } {
    const controllers = { soft: new AbortController(), hard: new AbortController() };
    this.#open.add(controllers);
    this.#forwardTo(controllers);
    return {
      signals: { soft: controllers.soft.signal, hard: controllers.hard.signal },
      close: () => this.#open.delete(controllers),
    };
  }

  close(): void {
    this.#source.soft.removeEventListener('abort', this.#forward);
    this.#source.hard.removeEventListener('abort', this.#forward);
  }

  #forwardTo(controllers: { soft: AbortController; hard: AbortController }): void {
    const { soft, hard } = this.#source;
    if (soft.aborted) controllers.soft.abort(soft.reason);
    if (hard.aborted) controllers.hard.abort(hard.reason);
  }
}
