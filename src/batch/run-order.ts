import type { Row } from './manifest/row.ts';
import type { RowGraph } from './row-graph.ts';
import type { RowState } from './row-state.ts';

/** A row that is to be carried out, as the plan has found it. */
export interface ChosenRow {
  id: string;
  take: number;
  state: RowState;
}

/** A row that is chosen, as it was read. */
export interface WaitingRow {
  row: Row;
  found: ChosenRow;
  mark: string | undefined;
}

/** Keeps the rows that wait for others of a run until those have ended. */
export class RunOrder {
  readonly #graph: RowGraph;
  /** Ids of rows that others wait for, and that have not ended. */
  readonly #awaited: Set<string>;
  readonly #waiting = new Map<string, WaitingRow[]>();
  readonly #ready: WaitingRow[] = [];
  #count = 0;

  constructor(graph: RowGraph, chosen: Iterable<ChosenRow>) {
    this.#graph = graph;
    this.#awaited = new Set([...chosen].map(({ id }) => id).filter((id) => graph.isNeeded(id)));
  }

  /** Whether there are rows that were kept and not given out. */
  get isOpen(): boolean {
    return this.#count > 0;
  }

  /** Keeps a row if it has to wait for another one. What was paid for already does not wait. */
  hasToWait(row: WaitingRow): boolean {
    const id = row.found.state === 'running' ? undefined : this.#awaitedBy(row);
    if (id === undefined) return false;
    this.#count += 1;
    this.#keep(id, row);
    return true;
  }

  /** A row has ended: those that waited for it alone are next. */
  settle(id: string): void {
    this.#awaited.delete(id);
    const rows = this.#waiting.get(id) ?? [];
    this.#waiting.delete(id);
    for (const row of rows) {
      const other = this.#awaitedBy(row);
      if (other === undefined) this.#ready.push(row);
      else this.#keep(other, row);
    }
  }

  /** Gives out a row that no longer waits; undefined if there is none. */
  next(): WaitingRow | undefined {
    const next = this.#ready.shift();
    if (next !== undefined) this.#count -= 1;
    return next;
  }

  #awaitedBy({ row }: WaitingRow): string | undefined {
    return this.#graph.waitsFor(row).find((id) => this.#awaited.has(id));
  }

  #keep(id: string, row: WaitingRow): void {
    const rows = this.#waiting.get(id);
    if (rows === undefined) this.#waiting.set(id, [row]);
    else rows.push(row);
  }
}
