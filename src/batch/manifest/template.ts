import { fillColumns } from '../../jobs/output.ts';
import { shownValue } from '../../protocols/violations.ts';
import { nameHint, variableName } from './fields.ts';
import type { WrittenField } from './fields.ts';
import { maxLineBytes } from './source.ts';

const token = /\{\{|\}\}|\{([^{}]*)\}|\{/g;
/** The maximum number of placeholders and doubled braces in a template, and of problems reported for a template. */
const [maxPlaceholders, maxFaults] = [10_000, 10];
const templates = ['prompt', 'text', 'output'];

/** Returns the names that a row's templates use. */
export function namesInTemplates(fields: ReadonlyMap<string, WrittenField>): Set<string> {
  return new Set(templates.flatMap((name) => namesIn(textOf(fields.get(name)) ?? '')));
}

/** Returns the names that a template uses: `animal` for `{Animal}`. */
export function namesIn(template: string): string[] {
  const found = new Set<string>();
  for (const [, name] of template.matchAll(token)) if (name !== undefined) found.add(variableName(name));
  return [...found];
}

/**
 * Fills a row's templates. In `prompt`, `text` and `output`, `{name}` is replaced by that field or column, and `{{` and
 * `}}` by braces. In `output`, placeholders that every output has, such as `{id}`, remain unchanged.
 * @param columns the row's columns that are not fields, by their names in templates
 */
export function fillTemplates(
  fields: ReadonlyMap<string, WrittenField>,
  columns: ReadonlyMap<string, WrittenField>,
  fault: (field: WrittenField, message: string) => void,
): Map<string, WrittenField> {
  const filled = new Map(fields);
  for (const name of templates) {
    const field = fields.get(name);
    const template = field?.value;
    if (field === undefined || typeof template !== 'string') continue;
    const values = new Map([...columns, ...(name === 'output' ? filled : fields)]);
    values.delete(name);
    const value =
      name === 'output'
        ? fillColumns(template, (column) => textOf(values.get(variableName(column))))
        : filledText(template, values, (message) => fault(field, message));
    filled.set(name, { ...field, value });
  }
  return filled;
}

function filledText(
  template: string,
  values: ReadonlyMap<string, WrittenField>,
  fault: (message: string) => void,
): string {
  let [filled, end, count, faults] = ['', 0, 0, 0];
  for (const { 0: match, 1: name, index } of template.matchAll(token)) {
    const isBrace = match === '{{' || match === '}}';
    const value = name === undefined ? undefined : textOf(values.get(variableName(name)));
    filled += template.slice(end, index) + (isBrace ? match.charAt(0) : (value ?? match));
    end = index + match.length;
    count += 1;
    if (count > maxPlaceholders || filled.length > maxLineBytes) {
      fault(
        `the text with its ${count} placeholders is too long; allowed: ${maxPlaceholders} placeholders and 8 MiB of text`,
      );
      break;
    }
    if (isBrace || value !== undefined) continue;
    const variables = [...values].filter(([, field]) => textOf(field) !== undefined).map(([each]) => each);
    const hint = name === undefined ? '' : `; ${nameHint(variableName(name), variables)}`;
    fault(`the row has no ${shownValue(match)} (for a literal brace, write {{ or }})${hint}`);
    faults += 1;
    if (faults === maxFaults) break;
  }
  return filled + template.slice(end);
}

/** Returns a value as text for a template; undefined if it is not a string, number or boolean. */
export function textOf(field: WrittenField | undefined): string | undefined {
  const value = field?.value;
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value)
    : undefined;
}
