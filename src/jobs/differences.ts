import { canonicalJson, isObject, type Json } from '../json.ts';

/** What is different in a body, a line for each field: `duration was 5, is 8`. */
export function differences(before: Json | undefined, now: Json | undefined, path = ''): string[] {
  if (canonicalJson(before) === canonicalJson(now)) return [];
  if (isObject(before) && isObject(now)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
    return names.flatMap((name) =>
      differences(before[name], now[name], path === '' ? name : `${path}.${name}`),
    );
  }
  return [`${path || 'body'} was ${shown(before)}, is ${shown(now)}`];
}

function shown(value: Json | undefined): string {
  return value === undefined ? 'absent' : JSON.stringify(value).slice(0, 80);
}
