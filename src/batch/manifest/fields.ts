import type { JobKind } from '../../job.ts';
import { longName, fieldSegments } from '../../protocols/compose.ts';
import type { Flag } from '../../protocols/protocol.ts';
import { findProtocol, protocolNamed, protocolNames } from '../../protocols/registry.ts';
import { printableLine } from '../../printable.ts';
import { speechFlags } from '../../speech/flags.ts';
import { messageOf, type MgwError } from '../../errors.ts';
import { nearestName } from '../../nearest.ts';
import type { Json } from '../../json.ts';

/** The kinds of rows. */
export const kinds: readonly JobKind[] = [...protocolNames, 'tts'];

/** Returns the flags of `video X submit` or `tts` that are fields of a row of this kind. */
export function rowFlags(kind: JobKind): readonly Flag[] {
  return kind === 'tts' ? speechFlags : protocolNamed(kind).flags;
}

/** Returns the names of the fields whose flags match, in rows of any kind. */
export function fieldsOfFlags(isMatch: (flag: Flag) => boolean): Set<string> {
  return new Set(kinds.flatMap((kind) => rowFlags(kind).filter(isMatch).map(longName)));
}

/** The names of the fields that accept assets. */
export const assetFields = fieldsOfFlags((flag) => flag.isAsset === true);

const names = new Map(kinds.map((kind) => [kind, namesOf(kind)]));
const allNames = new Set([...names.values()].flatMap((each) => [...each]));

function namesOf(kind: JobKind): Set<string> {
  const endpoint = findProtocol(kind)?.endpoints === undefined ? [] : ['endpoint'];
  const specialFields = kind === 'tts' ? ['text', 'file', 'over'] : ['body', ...endpoint];
  return new Set(['id', 'protocol', 'output', 'tags', ...specialFields, ...rowFlags(kind).map(longName)]);
}

/** Normalizes a field's name: `Aspect Ratio` becomes `aspect-ratio`. Leaves a native path unchanged. */
export function fieldName(written: string): string {
  const name = written.trim();
  return isPath(name) ? `set.${name.slice('set.'.length)}` : name.toLowerCase().replace(/[\s_-]+/g, '-');
}

/** Whether a field's name has the form `set.PATH`. */
export function isPath(name: string): boolean {
  return /^\s*set\./i.test(name);
}

/** Returns a column's name as used in templates: `#Animal` becomes `animal`. */
export function variableName(written: string): string {
  return fieldName(written.trim().replace(/^#/, ''));
}

/** Returns a row's id as used in the row's key: spaces become `-`. */
export function rowId(written: string): string {
  return written.trim().replace(/\s+/g, '-');
}

// A separator after white space, at the beginning, before white space or the end, or before a URL or a reference. Any
// other comma or semicolon may be part of a URL. The lookbehind keeps a long run of commas from taking quadratic time.
const listSeparator = /\s[\s,;]*|^[,;]+|(?<![,;])[,;]+(?=\s|$|https?:\/\/|data:|sha256:|@)/i;

/** Splits the text of a list field at white space, and at commas and semicolons that cannot be part of a URL. */
export function listItems(text: string): string[] {
  return text.split(listSeparator).filter((item) => item !== '');
}

/** The names of columns for the file's readers. */
export const remarks: readonly string[] = ['note', 'notes', 'comment', 'comments', 'remark', 'remarks'];

/** Whether a column's name marks the column as a comment for the file's readers, such as `#Mood` or `Notes`. */
export function isRemark(written: string): boolean {
  return written.trim().startsWith('#') || remarks.includes(fieldName(written));
}

/** Whether a column's name neither matches nor resembles the name of a field. */
export function isStray(written: string): boolean {
  return (
    !isPath(written) &&
    nameFault(written) !== undefined &&
    nearestKnown(fieldName(written), [...allNames]) === undefined
  );
}

/**
 * Returns the problem with a field's name in a row of `kind` (of any kind if absent); undefined if the name is valid.
 */
export function nameFault(written: string, kind?: JobKind): string | undefined {
  const name = fieldName(written);
  if (isPath(name)) return pathFault(name);
  const knownNames = kind === undefined ? allNames : (names.get(kind) ?? allNames);
  if (knownNames.has(name)) return undefined;
  const printableName = printableLine(written, 60) || '""';
  const otherKinds = kinds.filter((other) => names.get(other)?.has(name));
  if (kind !== undefined && otherKinds.length > 0)
    return `unknown field ${printableName} for protocol ${kind}; allowed for ${otherKinds.join(', ')}`;
  return `unknown field ${printableName}; ${nameHint(name, [...knownNames], 'set.PATH')}`;
}

/** Suggests the known name that is most similar to an unknown name. If none is similar, lists all names. */
export function nameHint(name: string, known: readonly string[], ...others: readonly string[]): string {
  const nearest = nearestKnown(name, known);
  return nearest === undefined
    ? `available: ${[...known, ...others].join(', ')}`
    : `did you mean ${nearest}?`;
}

function nearestKnown(name: string, known: readonly string[]): string | undefined {
  return nearestName(name, known, Math.max(1, Math.floor(name.length / 3)));
}

function pathFault(name: string): string | undefined {
  try {
    fieldSegments(name.slice('set.'.length));
    return undefined;
  } catch (error) {
    return `${printableLine(name, 60)}: ${messageOf(error)}`;
  }
}

/** A field as written in the manifest. */
export interface WrittenField {
  name: string;
  /** The value; null if the field is absent. */
  value: Json;
  /** The line number; 0 if the field is from the command line. */
  line: number;
  /** The line of the field's name if the name is on a different line, such as a CSV header. */
  nameLine?: number;
  /** True if the value is text without a JSON type, from a CSV cell or the command line. */
  isText?: true;
}

/** The maximum number of fields in a row, or of columns in a CSV. */
export const maxFields = 1000;

/** A row as written in the manifest. */
export interface ManifestRecord {
  /** The line on which the row begins. */
  line: number;
  fields: readonly WrittenField[];
}

/** A problem in a manifest that must be fixed before anything is paid for. */
export interface Problem {
  /** The line number, starting from 1 as in an editor. */
  line: number;
  /** The field as spelled in the manifest, if a single field is the cause. */
  field?: string;
  /** The name of a column that is not a field, as spelled in the manifest. */
  column?: string;
  message: string;
}

/** Formats a problem: `clips.csv:7: duration: 4.5 is not allowed; …`. */
export function problemText(file: string, { line, field, message }: Problem): string {
  return `${file}:${line}: ${field === undefined ? '' : `${field}: `}${message}`;
}

/** Returns the problems of an invalid row, one for each line of the error's message. */
export function problemsOf({ line }: { line: number }, { message }: MgwError): Problem[] {
  return message.split('\n').map((text) => ({ line, message: asField(text) }));
}

/**
 * Removes the dashes from flag names in a message, because a row has fields instead of flags. Leaves commands in
 * backticks unchanged.
 */
export function asField(message: string): string {
  return message.replace(/(`[^`]*`)|(^|\s)--(?=[a-z])(?!allow-files)/g, '$1$2');
}
