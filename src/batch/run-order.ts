import type { Row } from './manifest/row.ts';
import type { RowGraph } from './row-graph.ts';
import type { RowState } from './row-state.ts';

/** A row to carry out, with its state in the plan. */
export interface ChosenRow {
  id: string;
  take: number;
  state: RowState;
}

/** A chosen row, as read. */
export interface WaitingRow {
  row: Row;
  found: ChosenRow;
  mark: string | undefined;
}

/** Holds back rows of a run until the rows that they wait for have ended. */
export class RunOrder {
  readonly #graph: RowGraph;
  /** Ids of unfinished rows that others wait for. */
  readonly #awaited: Set<string>;
  readonly #waiting = new Map<string, WaitingRow[]>();
  readonly #ready: WaitingRow[] = [];
  #count = 0;

  constructor(graph: RowGraph, chosen: Iterable<ChosenRow>) {
    this.#graph = graph;
    this.#awaited = new Set([...chosen].map(({ id }) => id).filter((id) => graph.isNeeded(id)));
  }

  /** Whether any rows are still held back. */
  get isOpen(): boolean {
    return this.#count > 0;
  }

  /** Holds back a row that must wait for another. A paid row does not wait. */
  hasToWait(row: WaitingRow): boolean {
    const id = row.found.state === 'running' ? undefined : this.#awaitedBy(row);
    if (id === undefined) return false;
    this.#count += 1;
    this.#keep(id, row);
    return true;
  }

  /** Reports that a row has ended: rows that waited only for it are next. */
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

  /** Returns a row that no longer waits; undefined if there is none. */
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
