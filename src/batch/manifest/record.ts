import type { Json } from '../../json.ts';

/** A field as the manifest writes it. */
export interface WrittenField {
  name: string;
  /** Null stands for a field that is absent. */
  value: Json;
  /** The line number; 0 if the command line gave it. */
  line: number;
  /** The line of its name if it differs: the header of a CSV. */
  nameLine?: number;
  /** True if the text is written as in a cell or on the command line. */
  isText?: true;
}

/** The maximum number of fields of a row, or columns of a CSV. */
export const maxFields = 1000;

/** A row as it is written in the manifest. */
export interface ManifestRecord {
  /** The line that it begins on. */
  line: number;
  fields: readonly WrittenField[];
}

/** A problem in a manifest that must be fixed before anything is paid for. */
export interface Problem {
  /** The line, as an editor counts: the first is 1. */
  line: number;
  /** The field as the manifest spells it, if one field is the cause. */
  field?: string;
  /** The name of a column that is no field, as the manifest spells it. */
  column?: string;
  message: string;
}

/** Formats a problem: `clips.csv:7: duration: 4.5 is not allowed; …`. */
export function problemText(file: string, { line, field, message }: Problem): string {
  return `${file}:${line}: ${field === undefined ? '' : `${field}: `}${message}`;
}
