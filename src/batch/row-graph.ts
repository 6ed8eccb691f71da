import { keyIn, partOf, type Part } from '../flows/earlier-job.ts';
import { printableLine } from '../printable.ts';
import { longName } from '../protocols/compose.ts';
import { isEarlierJob } from '../protocols/protocol.ts';
import { assetFields, fieldName, rowFlags, rowId } from './manifest/fields.ts';
import type { Manifest } from './manifest/manifest.ts';
import type { ManifestRecord, WrittenField } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';

/** An asset that is another row's video, or a frame of that video. */
export interface Input {
  /** The field's value, such as `@intro:last`. */
  ref: string;
  /** The other row's id. */
  id: string;
  part: Part;
}

/** The dependencies between a manifest's rows (design 17). */
export class RowGraph {
  readonly #name: string;
  readonly #ids: ReadonlySet<string>;
  readonly #needed = new Set<string>();
  /** The positions of rows that wait for others, each after the rows that it waits for. */
  readonly #order: number[] = [];
  /** The rows that can never run, by position, with the reasons. */
  readonly #cycles = new Map<number, string>();

  /**
   * Reads the references between a manifest's rows. Skips invalid rows.
   * @param name the batch's name
   * @throws MgwError if the manifest cannot be read.
   */
  static async read(manifest: Manifest, name: string): Promise<RowGraph> {
    const ids = new Set<string>();
    const rows: Row[] = [];
    const hasDefaultReference = manifest.defaults.some(namesRow);
    const hasNoReference = (record: ManifestRecord): boolean => {
      const id = idOf(record);
      if (id !== undefined) ids.add(id);
      return !hasDefaultReference && !record.fields.some(namesRow);
    };
    for await (const item of manifest.items(hasNoReference)) if ('row' in item) rows.push(item.row);
    return new RowGraph(name, rows.length === 0 ? new Set() : ids, rows);
  }

  private constructor(name: string, ids: ReadonlySet<string>, rows: readonly Row[]) {
    this.#name = name;
    this.#ids = ids;
    const waiting = rows.filter((row) => this.waitsFor(row).length > 0);
    for (const row of waiting) for (const id of this.waitsFor(row)) this.#needed.add(id);
    this.#sort(waiting);
  }

  /** Whether another row waits for the row with this id. */
  isNeeded(id: string): boolean {
    return this.#needed.has(id);
  }

  /** The positions of rows that wait for other rows, in dependency order. Rows in cycles come last. */
  get order(): readonly number[] {
    return [...this.#order, ...this.#cycles.keys()];
  }

  /** Returns the reason why the row at the given position can never run; undefined if the row can run. */
  cycleOf(index: number): string | undefined {
    return this.#cycles.get(index);
  }

  /** Returns the problem with the target of a speech row's `over` field; undefined if the target is valid. */
  overFaultOf({ over }: Row): string | undefined {
    return over === undefined || this.#ids.has(over)
      ? undefined
      : `over: no row has the id ${printableLine(over, 100)}`;
  }

  /** Returns the ids of the rows that a row waits for. */
  waitsFor(row: Row): string[] {
    return [...new Set(references(row).flatMap(({ ref }) => this.#idIn(ref) ?? []))];
  }

  /**
   * Returns a row's assets that are other rows' videos.
   * @throws MgwError('usage') if a field does not accept the video or frame that it refers to.
   */
  inputsOf(row: Row): Input[] {
    return references(row).flatMap(({ ref, field }) => {
      const id = this.#idIn(ref);
      return id === undefined ? [] : [{ ref, id, part: partOf(ref, field) }];
    });
  }

  // A row takes precedence over a job with the same name.
  #idIn(ref: string): string | undefined {
    if (this.#ids.size === 0) return undefined;
    const key = rowId(keyIn(ref));
    const id = key.startsWith(`${this.#name}/`) ? key.slice(this.#name.length + 1) : key;
    return this.#ids.has(id) ? id : undefined;
  }

  #sort(waiting: readonly Row[]): void {
    const byId = new Map(waiting.flatMap((row) => (row.id === undefined ? [] : [[row.id, row] as const])));
    const unmet = new Map(
      waiting.map((row) => [row, new Set(this.waitsFor(row).filter((id) => byId.has(id)))]),
    );
    const dependents = new Map<string, Row[]>();
    for (const [row, ids] of unmet)
      for (const id of ids) dependents.set(id, [...(dependents.get(id) ?? []), row]);
    const ready = waiting.filter((row) => unmet.get(row)?.size === 0);
    for (const row of ready) {
      this.#order.push(row.index);
      unmet.delete(row);
      if (row.id === undefined || byId.get(row.id) !== row) continue;
      for (const dependent of dependents.get(row.id) ?? []) {
        const remaining = unmet.get(dependent);
        remaining?.delete(row.id);
        if (remaining?.size === 0) ready.push(dependent);
      }
    }
    for (const [row, text] of cyclesOf(unmet, byId)) this.#cycles.set(row.index, text);
  }
}

const maxDisplayed = 10;

// Each remaining row waits for another remaining row, so following the references finds a cycle.
function cyclesOf(
  unmet: ReadonlyMap<Row, ReadonlySet<string>>,
  byId: ReadonlyMap<string, Row>,
): Map<Row, string> {
  const texts = new Map<Row, string>();
  for (const start of unmet.keys()) {
    const path = new Set<Row>();
    let row: Row | undefined = start;
    while (row !== undefined && !path.has(row) && !texts.has(row)) {
      path.add(row);
      const [id = ''] = unmet.get(row) ?? [];
      row = byId.get(id);
    }
    if (row === undefined) continue;
    const rows = [...path];
    const cycle = texts.has(row) ? [] : rows.slice(rows.indexOf(row));
    const ids = [...cycle, row].map(({ id = '' }) => id);
    const displayed = ids.length > maxDisplayed ? [...ids.slice(0, maxDisplayed), '…'] : ids;
    const message = texts.get(row) ?? `rows that wait for each other: ${displayed.join(' → ')}`;
    for (const each of rows) texts.set(each, message);
  }
  return texts;
}

/** Returns a row's references to jobs and rows, with the field of each. */
export function references({ kind, flags }: Row): { ref: string; field: string }[] {
  return rowFlags(kind)
    .filter((flag) => flag.isAsset)
    .flatMap((flag) => {
      const field = longName(flag);
      const values = [flags[field]].flat().filter((value) => typeof value === 'string');
      return values.filter(isEarlierJob).map((ref) => ({ ref, field }));
    });
}

/** Whether a field may refer to a job. True for an asset field with an item that begins with `@`. */
export function mayRefer({ name, value }: Pick<WrittenField, 'name' | 'value'>): boolean {
  const hasReference = [value].flat().some((each) => typeof each === 'string' && /(^|[\s,;])@/.test(each));
  return hasReference && assetFields.has(fieldName(name));
}

function namesRow(field: WrittenField): boolean {
  return mayRefer(field) || fieldName(field.name) === 'over';
}

function idOf({ fields }: ManifestRecord): string | undefined {
  const value = fields.find(({ name }) => name === 'id' || fieldName(name) === 'id')?.value;
  return typeof value === 'string' || typeof value === 'number' ? rowId(String(value)) : undefined;
}
