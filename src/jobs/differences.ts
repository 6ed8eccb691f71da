import { canonicalJson, isObject, type Json } from '../json.ts';

/**
 * Returns the differences between two bodies, a line for each field: `duration was 5, is 8`. The values of fields that
 * `isHidden` are not shown.
 */
export function differences(
  before: Json | undefined,
  now: Json | undefined,
  isHidden: (path: string) => boolean = () => false,
  path = '',
): string[] {
  if (canonicalJson(before) === canonicalJson(now)) return [];
  if (isObject(before) && isObject(now)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
    return names.flatMap((name) =>
      differences(before[name], now[name], isHidden, path === '' ? name : `${path}.${name}`),
    );
  }
  if (isHidden(path)) return [`${path || 'body'} is another`];
  return [`${path || 'body'} was ${shown(before)}, is ${shown(now)}`];
}

function shown(value: Json | undefined): string {
  return value === undefined ? 'absent' : JSON.stringify(value).slice(0, 80);
}
