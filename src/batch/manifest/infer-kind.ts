import { MgwError } from '../../errors.ts';
import type { JobKind } from '../../job.ts';
import { fieldName } from './fields.ts';
import type { ManifestRecord, Problem } from './record.ts';
import type { Defaults } from './row.ts';
import { textOf } from './template.ts';

/**
 * Returns a function that finds the kind of a record without a protocol: `tts` if it has a text, else the protocol of
 * its model. It returns undefined if the record has neither, or has a protocol. Each model is looked up once.
 * @param kindOf finds the protocol of a model.
 * @throws MgwError('usage') if that is not unique.
 */
export function kindInference(
  defaults: Defaults,
  kindOf: ((model: string) => Promise<JobKind>) | undefined,
): (record: ManifestRecord) => Promise<JobKind | Problem | undefined> {
  const found = new Map<string, Promise<JobKind>>();
  return async ({ fields, line }) => {
    const given = fields.filter(({ value }) => value !== null);
    const own = new Map(given.map((field) => [fieldName(field.name), field]));
    if (own.has('protocol') || defaults.has('protocol')) return undefined;
    if (!own.has('prompt') && (own.has('text') || own.has('file'))) return 'tts';
    const model = textOf(own.get('model') ?? defaults.get('model'));
    if (model === undefined || kindOf === undefined) return undefined;
    const kind = found.get(model) ?? kindOf(model);
    found.set(model, kind);
    try {
      return await kind;
    } catch (error) {
      if (!(error instanceof MgwError) || error.code !== 'usage') throw error;
      return { line, field: 'protocol', message: `missing. ${error.message}` };
    }
  };
}
