import type { Json } from '../../json.ts';

/** A field as the manifest writes it. */
export interface WrittenField {
  name: string;
  /** Null stands for a field that is absent. */
  value: Json;
  /** The line that it stands on; 0 where the command line gave it. */
  line: number;
  /** True where the text stands for a value, as it does in a cell and on the command line. */
  isText?: true;
}

/** A row as it stands in the manifest. */
export interface ManifestRecord {
  /** The line that it begins on. */
  line: number;
  fields: readonly WrittenField[];
}
