import { keyIn, partOf, type Part } from '../flows/earlier-job.ts';
import { printableLine } from '../printable.ts';
import { longName } from '../protocols/compose.ts';
import { isEarlierJob } from '../protocols/protocol.ts';
import { fieldName, kinds, rowFlags, rowId } from './manifest/fields.ts';
import type { Manifest } from './manifest/manifest.ts';
import type { ManifestRecord, WrittenField } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';

/** An asset of a row that is the video of another row, or one of its frames. */
export interface Input {
  /** The value of the field: `@intro:last`. */
  ref: string;
  /** The row that it names. */
  id: string;
  part: Part;
}

/** The dependencies between the rows of a manifest (design 17). */
export class RowGraph {
  readonly #name: string;
  readonly #ids: ReadonlySet<string>;
  readonly #needed = new Set<string>();
  /** The positions of the rows that wait for others, each after those that it waits for. */
  readonly #order: number[] = [];
  /** Rows that can never be carried out, by position. */
  readonly #cycles = new Map<number, string>();

  /**
   * Reads a manifest for the references of its rows. Invalid rows are left out.
   * @param name the name of the batch
   * @throws MgwError if the manifest cannot be read.
   */
  static async read(manifest: Manifest, name: string): Promise<RowGraph> {
    const ids = new Set<string>();
    const rows: Row[] = [];
    const isForAll = manifest.defaults.some(namesRow);
    const hasNone = (record: ManifestRecord): boolean => {
      const id = idOf(record);
      if (id !== undefined) ids.add(id);
      return !isForAll && !record.fields.some(namesRow);
    };
    for await (const item of manifest.items(hasNone)) if ('row' in item) rows.push(item.row);
    return new RowGraph(name, rows.length === 0 ? new Set() : ids, rows);
  }

  private constructor(name: string, ids: ReadonlySet<string>, rows: readonly Row[]) {
    this.#name = name;
    this.#ids = ids;
    const waiting = rows.filter((row) => this.waitsFor(row).length > 0);
    for (const row of waiting) for (const id of this.waitsFor(row)) this.#needed.add(id);
    this.#sort(waiting);
  }

  /** Whether another row waits for the row of this id. */
  isNeeded(id: string): boolean {
    return this.#needed.has(id);
  }

  /**
   * The positions of the rows that wait for others, in an order in which they can be carried out; rows of cycles come
   * last.
   */
  get order(): readonly number[] {
    return [...this.#order, ...this.#cycles.keys()];
  }

  /** Describes why the row at a position can never be carried out; undefined if it can. */
  cycleOf(index: number): string | undefined {
    return this.#cycles.get(index);
  }

  /** Describes what is wrong with the row that a row of speech is laid over; undefined if nothing is. */
  overFaultOf({ over }: Row): string | undefined {
    return over === undefined || this.#ids.has(over)
      ? undefined
      : `over: no row has the id ${printableLine(over, 100)}`;
  }

  /** The ids of the rows that a row waits for. */
  waitsFor(row: Row): string[] {
    return [...new Set(references(row).flatMap(({ ref }) => this.#idIn(ref) ?? []))];
  }

  /**
   * Returns the assets of a row that are other rows.
   * @throws MgwError('usage') if a field does not accept that part of a row.
   */
  inputsOf(row: Row): Input[] {
    return references(row).flatMap(({ ref, field }) => {
      const id = this.#idIn(ref);
      return id === undefined ? [] : [{ ref, id, part: partOf(ref, field) }];
    });
  }

  // A row takes precedence over a job of that name.
  #idIn(ref: string): string | undefined {
    if (this.#ids.size === 0) return undefined;
    const key = rowId(keyIn(ref));
    const own = key.startsWith(`${this.#name}/`) ? key.slice(this.#name.length + 1) : key;
    return this.#ids.has(own) ? own : undefined;
  }

  #sort(waiting: readonly Row[]): void {
    const byId = new Map(waiting.flatMap((row) => (row.id === undefined ? [] : [[row.id, row] as const])));
    const open = new Map(
      waiting.map((row) => [row, new Set(this.waitsFor(row).filter((id) => byId.has(id)))]),
    );
    const after = new Map<string, Row[]>();
    for (const [row, ids] of open) for (const id of ids) after.set(id, [...(after.get(id) ?? []), row]);
    const ready = waiting.filter((row) => open.get(row)?.size === 0);
    for (const row of ready) {
      this.#order.push(row.index);
      open.delete(row);
      if (row.id === undefined || byId.get(row.id) !== row) continue;
      for (const next of after.get(row.id) ?? []) {
        const left = open.get(next);
        left?.delete(row.id);
        if (left?.size === 0) ready.push(next);
      }
    }
    for (const [row, text] of cyclesOf(open, byId)) this.#cycles.set(row.index, text);
  }
}

const maxShown = 10;

// Each remaining row waits for another remaining row, so following them finds a cycle.
function cyclesOf(
  left: ReadonlyMap<Row, ReadonlySet<string>>,
  byId: ReadonlyMap<string, Row>,
): Map<Row, string> {
  const texts = new Map<Row, string>();
  for (const start of left.keys()) {
    const path = new Set<Row>();
    let row: Row | undefined = start;
    while (row !== undefined && !path.has(row) && !texts.has(row)) {
      path.add(row);
      const [id = ''] = left.get(row) ?? [];
      row = byId.get(id);
    }
    if (row === undefined) continue;
    const rows = [...path];
    const cycle = texts.has(row) ? [] : rows.slice(rows.indexOf(row));
    const ids = [...cycle, row].map(({ id = '' }) => id);
    const shown = ids.length > maxShown ? [...ids.slice(0, maxShown), '…'] : ids;
    const found = texts.get(row) ?? `rows that wait for each other: ${shown.join(' → ')}`;
    for (const each of rows) texts.set(each, found);
  }
  return texts;
}

function references({ kind, flags }: Row): { ref: string; field: string }[] {
  return rowFlags(kind)
    .filter((flag) => flag.isAsset)
    .flatMap((flag) => {
      const field = longName(flag);
      const values = [flags[field]].flat().filter((value) => typeof value === 'string');
      return values.filter(isEarlierJob).map((ref) => ({ ref, field }));
    });
}

const assetFields = new Set(
  kinds.flatMap((kind) =>
    rowFlags(kind)
      .filter((flag) => flag.isAsset)
      .map(longName),
  ),
);

/** Whether a field may name a job: an asset with an `@` at the beginning of a word. */
export function mayRefer({ name, value }: Pick<WrittenField, 'name' | 'value'>): boolean {
  const hasReference = [value].flat().some((each) => typeof each === 'string' && /(^|\s)@/.test(each));
  return hasReference && assetFields.has(fieldName(name));
}

function namesRow(field: WrittenField): boolean {
  return mayRefer(field) || fieldName(field.name) === 'over';
}

function idOf({ fields }: ManifestRecord): string | undefined {
  const value = fields.find(({ name }) => name === 'id' || fieldName(name) === 'id')?.value;
  return typeof value === 'string' || typeof value === 'number' ? rowId(String(value)) : undefined;
}
