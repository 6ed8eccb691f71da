import * as z from 'zod/mini';
import { usageError } from '../../errors.ts';
import { asSentence } from '../../http/advice.ts';
import type { JobKind } from '../../job.ts';
import type { JsonObject } from '../../json.ts';
import { shownValue } from '../../protocols/violations.ts';
import { fieldName, isPath, kinds, nameFault } from './fields.ts';
import type { ManifestRecord, Problem, WrittenField } from './record.ts';
import { rowSchema } from './schema.ts';

/** A row of a manifest, with the defaults in it: what a command line would be given. */
export interface Row {
  /** Its place among the rows, from 1. */
  index: number;
  line: number;
  kind: JobKind;
  /** As the manifest gives it. */
  id?: string;
  /** The values of flags by their long names, as the command line would have them. */
  flags: Record<string, string | string[] | boolean>;
  /** The values of `--set`. */
  set: string[];
  /** `@FILE`, or the body itself. */
  body?: string | JsonObject;
  /** What is spoken, or the file that holds it. */
  text?: string;
  file?: string;
  endpoint?: string;
  output?: string;
  tags: string[];
}

/** What rows have that do not say otherwise, by name. */
export type Defaults = ReadonlyMap<string, WrittenField>;

/** Defaults by their one spelling, later ones before earlier ones. Reports each that no row could have. */
export function defaultsOf(fields: readonly WrittenField[], report: (problem: Problem) => void): Defaults {
  const defaults = new Map<string, WrittenField>();
  for (const field of fields) {
    if (field.value === null) {
      defaults.delete(fieldName(field.name));
      continue;
    }
    const fault = defaultFault(field);
    if (fault === undefined) defaults.set(fieldName(field.name), field);
    else report({ line: field.line, message: fault });
  }
  return defaults;
}

function defaultFault({ name: written, value }: WrittenField): string | undefined {
  const name = fieldName(written);
  const fault = name === 'id' ? 'an id is that of one row, and no default' : nameFault(written);
  if (fault !== undefined || isPath(name) || name === 'protocol') return fault;
  const faults = kinds
    .filter((kind) => nameFault(written, kind) === undefined)
    .map((kind) => z.safeParse(rowSchema(kind), { [name]: value }).error?.issues[0]?.message);
  const [first] = faults;
  if (first === undefined || faults.includes(undefined)) return undefined;
  return `${shownValue(written)}: ${shownValue(value)} is not allowed; allowed: ${first}`;
}

/** The fields of `-d NAME=VALUE`. @throws MgwError('usage') naming what is wrong. */
export function givenDefaults(given: readonly string[]): WrittenField[] {
  const fields = given.map((entry): WrittenField => {
    const split = entry.indexOf('=');
    if (split < 1) throw usageError(`-d ${shownValue(entry)}: write it as NAME=VALUE.`);
    return { name: entry.slice(0, split), value: entry.slice(split + 1) || null, line: 0, isText: true };
  });
  defaultsOf(fields, ({ message }) => {
    throw usageError(`-d: ${asSentence(message)}`);
  });
  return fields;
}

/** A record as a row, with everything that is wrong with it reported; undefined if something is. */
export function readRow(
  record: ManifestRecord,
  index: number,
  defaults: Defaults,
  report: (problem: Problem) => void,
): Row | undefined {
  let isOpen = true;
  const fault = (line: number, message: string, field?: string): void => {
    isOpen = false;
    report({ line, message, ...(field !== undefined && { field }) });
  };
  const own = ownFields(record, fault);
  const kind = kindOf(own, defaults, record.line, fault);
  if (kind === undefined) return undefined;
  for (const [, { name, line }] of own) {
    const message = nameFault(name, kind);
    if (message !== undefined) fault(line, message);
  }
  const fields = new Map([
    ...[...defaults].filter(([, { name }]) => nameFault(name, kind) === undefined),
    ...own,
  ]);
  const values = checked(kind, fields, record.line, fault);
  const set = [...fields].filter(([name]) => isPath(name)).map(([name, field]) => setEntry(name, field));
  return isOpen ? rowFrom({ index, line: record.line, kind }, values, set) : undefined;
}

type Fault = (line: number, message: string, field?: string) => void;

function ownFields({ fields }: ManifestRecord, fault: Fault): Map<string, WrittenField> {
  const own = new Map<string, WrittenField>();
  for (const field of fields) {
    if (field.value === null) continue;
    const name = fieldName(field.name);
    const before = own.get(name);
    if (before !== undefined)
      fault(field.line, `${shownValue(before.name)} and ${shownValue(field.name)} are one field`);
    own.set(name, field);
  }
  return own;
}

function kindOf(
  own: Map<string, WrittenField>,
  defaults: Defaults,
  line: number,
  fault: Fault,
): JobKind | undefined {
  const field = own.get('protocol') ?? defaults.get('protocol');
  const kind = kinds.find((one) => one === field?.value);
  if (kind === undefined) {
    const needed = `${kinds.slice(0, -1).join(', ')} or ${kinds.at(-1) ?? ''}`;
    if (field === undefined)
      fault(line, `missing; needed: ${needed}, in the row or as a default`, 'protocol');
    else
      fault(field.line || line, `${shownValue(field.value)} is not allowed; allowed: ${needed}`, 'protocol');
  }
  return kind;
}

function checked(
  kind: JobKind,
  fields: Map<string, WrittenField>,
  line: number,
  fault: Fault,
): Record<string, unknown> {
  const given = [...fields].filter(([name]) => !isPath(name) && nameFault(name, kind) === undefined);
  const result = z.safeParse(
    rowSchema(kind),
    Object.fromEntries(given.map(([name, { value }]) => [name, value])),
  );
  if (result.success) return result.data;
  for (const { path, message } of result.error.issues) {
    const field = fields.get(String(path[0]));
    // A default has no line of its own in the row; what it lacks is said where the row is.
    fault(
      field?.line || line,
      `${shownValue(field?.value)} is not allowed; allowed: ${message}`,
      field?.name,
    );
  }
  return {};
}

const beside = ['id', 'body', 'text', 'file', 'endpoint', 'output', 'tags'];

function rowFrom(
  place: Pick<Row, 'index' | 'line' | 'kind'>,
  values: Record<string, unknown>,
  set: string[],
): Row {
  const given = Object.entries(values).filter(([name, value]) => name !== 'protocol' && value !== undefined);
  const others = Object.fromEntries(given.filter(([name]) => beside.includes(name))) as Partial<Row>;
  const flags = Object.fromEntries(given.filter(([name]) => !beside.includes(name))) as Row['flags'];
  return { ...place, flags, set, tags: [], ...others };
}

function setEntry(name: string, { value, isText }: WrittenField): string {
  return `${name.slice('set.'.length)}=${isText && typeof value === 'string' ? value : JSON.stringify(value)}`;
}
