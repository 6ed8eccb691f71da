import * as z from 'zod/mini';
import { usageError, MgwError } from '../../errors.ts';
import { asSentence } from '../../http/failures.ts';
import type { JobKind } from '../../job.ts';
import type { JsonObject } from '../../json.ts';
import { printableLine } from '../../printable.ts';
import { shownValue } from '../../protocols/violations.ts';
import { fieldName, isPath, isRemark, isStray, kinds, nameFault, variableName } from './fields.ts';
import { maxFields, type ManifestRecord, type Problem, type WrittenField } from './fields.ts';
import { rowSchema } from './schema.ts';
import { fillTemplates, namesInTemplates, textOf } from './template.ts';

/** A manifest's row with its defaults applied, equivalent to a command line. */
export interface Row {
  /** The row's position among the rows, starting from 1. */
  index: number;
  line: number;
  kind: JobKind;
  /** The id, if the manifest contains one. */
  id?: string;
  /** Flag values by the flags' long names, as on the command line. */
  flags: Record<string, string | string[] | boolean>;
  /** The values of `--set`. */
  set: string[];
  /** `@FILE`, or the request body itself. */
  body?: string | JsonObject;
  /** The text to speak, or the file that contains it. */
  text?: string;
  file?: string;
  /** The id of the row whose clip the speech is laid over. */
  over?: string;
  endpoint?: string;
  /** The configured defaults of the machine that enqueued the row; absent for a row from a file. */
  defaults?: Record<string, unknown>;
  output?: string;
  tags: string[];
  /** The values of columns that the batch's output template uses. */
  columns?: Record<string, string>;
}

/** Options for reading rows. */
export interface RowReading {
  defaults: Defaults;
  /** The names of columns that are not fields, as templates use them. */
  columns?: ReadonlySet<string> | undefined;
  /** The kind of any row that does not specify its protocol. */
  kind?: JobKind | undefined;
}

/** Default fields for every row, by name. */
export type Defaults = ReadonlyMap<string, WrittenField>;

/**
 * Returns defaults by their normalized names. If a name is repeated, the last default applies.
 * Reports defaults that no row could have.
 */
export function defaultsOf(
  fields: readonly WrittenField[],
  report: (problem: Problem) => void,
  columns: ReadonlySet<string> = new Set(),
): Defaults {
  const defaults = new Map<string, WrittenField>();
  for (const field of fields) {
    if (field.value === null) {
      defaults.delete(fieldName(field.name));
      continue;
    }
    const fault = isColumn(field.name, columns) ? undefined : defaultFault(field);
    if (fault === undefined) defaults.set(fieldName(field.name), field);
    else report({ line: field.line, message: fault });
  }
  return defaults;
}

function isColumn(written: string, columns: ReadonlySet<string>): boolean {
  return isRemark(written) || columns.has(variableName(written));
}

function defaultFault({ name: written, value }: WrittenField): string | undefined {
  const name = fieldName(written);
  const fault = name === 'id' ? 'an id belongs to one row, so it cannot be a default' : nameFault(written);
  if (fault !== undefined || isPath(name) || name === 'protocol') return fault;
  const faults = kinds
    .filter((kind) => nameFault(written, kind) === undefined)
    .map((kind) => z.safeParse(rowSchema(kind), { [name]: value }).error?.issues[0]?.message);
  const [first] = faults;
  if (first === undefined || faults.includes(undefined)) return undefined;
  return `${shownValue(written)}: ${shownValue(value)} is not allowed; allowed: ${first}`;
}

/** Parses `-d NAME=VALUE`. @throws MgwError('usage') that names the problem. */
export function parseDefaults(assignments: readonly string[], columns?: ReadonlySet<string>): WrittenField[] {
  const fields = assignments.map((entry): WrittenField => {
    const separator = entry.indexOf('=');
    if (separator < 1) throw usageError(`-d ${shownValue(entry)}: write it as NAME=VALUE.`);
    return {
      name: entry.slice(0, separator),
      value: entry.slice(separator + 1) || null,
      line: 0,
      isText: true,
    };
  });
  const reject = ({ message }: Problem): never => {
    throw usageError(`-d: ${asSentence(message)}`);
  };
  defaultsOf(fields, reject, columns);
  return fields;
}

/** Parses a record as a row, and reports all its problems. Returns undefined if the record has any problem. */
export function readRow(
  record: ManifestRecord,
  index: number,
  reading: RowReading,
  report: (problem: Problem) => void,
): Row | undefined {
  const { defaults, columns: allowedColumns = new Set() } = reading;
  let isValid = true;
  const fault = (problem: Problem): void => {
    isValid = false;
    report(problem);
  };
  const rowFields = uniqueFields(record, fault);
  const kind = kindOf(rowFields, reading, record.line, fault);
  const allFields = new Map([...defaults, ...rowFields]);
  const templateNames = namesInTemplates(allFields);
  const columns = new Map<string, WrittenField>();
  for (const [name, field] of allFields) {
    const message = nameFault(field.name, kind);
    const isOutsideKind = message !== undefined && nameFault(field.name) !== undefined && !isPath(name);
    if (isOutsideKind && (isColumn(field.name, allowedColumns) || templateNames.has(name)))
      columns.set(variableName(name), field);
    else if (message !== undefined && rowFields.has(name))
      if (field.nameLine !== undefined && isStray(field.name)) fault(strayColumn(field.nameLine, field.name));
      else fault({ line: field.nameLine ?? field.line, message });
  }
  if (kind === undefined) return undefined;
  const fields = fillTemplates(
    new Map([...allFields].filter(([, { name }]) => nameFault(name, kind) === undefined)),
    columns,
    ({ line, name }, message) => fault({ line: line || record.line, message, field: name }),
  );
  const values = checkedValues(kind, fields, record.line, fault);
  if (!isValid) return undefined;
  const setEntries = [...fields]
    .filter(([name]) => isPath(name))
    .map(([name, field]) => setEntry(name, field));
  const row = rowFrom({ index, line: record.line, kind }, values, setEntries);
  const outputColumns = [...columns]
    .filter(([name]) => allowedColumns.has(name))
    .map(([name, field]) => [name, textOf(field)]);
  return outputColumns.length === 0
    ? row
    : { ...row, columns: Object.fromEntries(outputColumns) as Record<string, string> };
}

type Fault = (problem: Problem) => void;

function strayColumn(line: number, column: string): Problem {
  const message = `unknown field ${printableLine(column, 60)}; to ignore a column, use --ignore-columns`;
  return { line, column, message };
}

function uniqueFields({ fields }: ManifestRecord, fault: Fault): Map<string, WrittenField> {
  const byName = new Map<string, WrittenField>();
  const [tooMany] = fields.slice(maxFields);
  if (tooMany !== undefined)
    fault({ line: tooMany.line, message: `the row has ${fields.length} fields; allowed: ${maxFields}` });
  for (const field of fields.slice(0, maxFields)) {
    if (field.value === null) continue;
    const name = fieldName(field.name);
    const earlier = byName.get(name);
    if (earlier !== undefined) {
      const message = `${shownValue(earlier.name)} and ${shownValue(field.name)} are the same field`;
      fault({ line: field.line, message });
    }
    byName.set(name, field);
  }
  return byName;
}

function kindOf(
  rowFields: Map<string, WrittenField>,
  { defaults, kind: inferred }: RowReading,
  line: number,
  fault: Fault,
): JobKind | undefined {
  const field = rowFields.get('protocol') ?? defaults.get('protocol');
  const kindText = textOf(field)?.trim().toLowerCase();
  const kind = field === undefined ? inferred : kinds.find((one) => one === kindText);
  if (kind !== undefined) return kind;
  const allowedKinds = `${kinds.slice(0, -1).join(', ')} or ${kinds.at(-1) ?? ''}`;
  const message =
    field === undefined
      ? `missing; add a model, or set the protocol to ${allowedKinds} here or as a default`
      : `${shownValue(field.value)} is not allowed; allowed: ${allowedKinds}`;
  fault({ line: field?.line || line, message, field: 'protocol' });
  return undefined;
}

function checkedValues(
  kind: JobKind,
  fields: Map<string, WrittenField>,
  line: number,
  fault: Fault,
): Record<string, unknown> {
  const checkable = [...fields].filter(([name]) => !isPath(name));
  const result = z.safeParse(rowSchema(kind), {
    ...Object.fromEntries(checkable.map(([name, { value }]) => [name, value])),
    protocol: kind,
  });
  if (result.success) return result.data;
  for (const { path, message } of result.error.issues) {
    const field = fields.get(String(path[0]));
    // A default is not on the row's line, so its problems are reported for the row as a whole.
    const text = `${shownValue(field?.value)} is not allowed; allowed: ${message}`;
    fault({ line: field?.line || line, message: text, field: field?.name });
  }
  return {};
}

const rowMembers = ['id', 'body', 'text', 'file', 'over', 'endpoint', 'output', 'tags'];

function rowFrom(
  place: Pick<Row, 'index' | 'line' | 'kind'>,
  values: Record<string, unknown>,
  set: string[],
): Row {
  const entries = Object.entries(values).filter(
    ([name, value]) => name !== 'protocol' && value !== undefined,
  );
  const members = Object.fromEntries(entries.filter(([name]) => rowMembers.includes(name))) as Partial<Row>;
  const flags = Object.fromEntries(entries.filter(([name]) => !rowMembers.includes(name))) as Row['flags'];
  return { ...place, flags, set, tags: [], ...members };
}

function setEntry(name: string, { value, isText }: WrittenField): string {
  return `${name.slice('set.'.length)}=${isText && typeof value === 'string' ? value : JSON.stringify(value)}`;
}

/**
 * Returns a function that infers the kind of a record without a protocol: `tts` if the record has text to speak, or
 * else the protocol of its model. The function returns undefined if the record has a protocol, or has neither text nor
 * a model. Looks up each model only once.
 * @param kindOf finds a model's protocol
 * @throws MgwError('usage') if the model does not determine the protocol.
 */
export function kindInference(
  defaults: Defaults,
  kindOf: ((model: string) => Promise<JobKind>) | undefined,
): (record: ManifestRecord) => Promise<JobKind | Problem | undefined> {
  const kindByModel = new Map<string, Promise<JobKind>>();
  return async ({ fields, line }) => {
    const present = fields.filter(({ value }) => value !== null);
    const rowFields = new Map(present.map((field) => [fieldName(field.name), field]));
    if (rowFields.has('protocol') || defaults.has('protocol')) return undefined;
    if (!rowFields.has('prompt') && (rowFields.has('text') || rowFields.has('file'))) return 'tts';
    const model = textOf(rowFields.get('model') ?? defaults.get('model'));
    if (model === undefined || kindOf === undefined) return undefined;
    const kind = kindByModel.get(model) ?? kindOf(model);
    kindByModel.set(model, kind);
    try {
      return await kind;
    } catch (error) {
      if (!(error instanceof MgwError) || error.code !== 'usage') throw error;
      return { line, field: 'protocol', message: `missing. ${error.message}` };
    }
  };
}
