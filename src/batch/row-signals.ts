import type { Signals } from '../payment/pay-once.ts';

/** The signals of one row. */
interface Own {
  signals: Signals;
  /** The row has ended. */
  close(): void;
}

/**
 * The signals of a run for each of its rows: Node walks all listeners of a signal for each that comes or goes, so that
 * thousands of rows must not share one, and nothing of a row may stay behind when it has ended.
 */
export class RowSignals {
  readonly #from: Signals;
  readonly #open = new Set<{ soft: AbortController; hard: AbortController }>();
  readonly #pass = (): void => {
    for (const own of this.#open) this.#passTo(own);
  };

  constructor(from: Signals) {
    this.#from = from;
    from.soft.addEventListener('abort', this.#pass);
    from.hard.addEventListener('abort', this.#pass);
  }

  open(): Own {
    const own = { soft: new AbortController(), hard: new AbortController() };
    this.#open.add(own);
    this.#passTo(own);
    return {
      signals: { soft: own.soft.signal, hard: own.hard.signal },
      close: () => this.#open.delete(own),
    };
  }

  close(): void {
    this.#from.soft.removeEventListener('abort', this.#pass);
    this.#from.hard.removeEventListener('abort', this.#pass);
  }

  #passTo(own: { soft: AbortController; hard: AbortController }): void {
    const { soft, hard } = this.#from;
    if (soft.aborted) own.soft.abort(soft.reason);
    if (hard.aborted) own.hard.abort(hard.reason);
  }
}
