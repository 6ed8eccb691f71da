import { isObject, type Json, type JsonObject } from '../../json.ts';
import { checkAssetUrl } from '../asset-url.ts';
import type { Violation } from '../protocol.ts';
import { shownValue } from '../violations.ts';

// The values that the specification lists where it leaves open whether there are more (2.3).
const listed = { Type: ['Url'], Category: ['Image'], Usage: ['FirstFrame', 'Reference'] };

/** Every broken rule of `FileInfos` (specification 2.3). */
export function checkFiles(files: Json | undefined): Violation[] {
  if (files === undefined) return [];
  if (!Array.isArray(files))
    return [violation('FileInfos', files, 'a list of objects with Type, Url, Category and Usage')];
  return files.flatMap((entry, index) =>
    isObject(entry)
      ? checkFile(entry, `FileInfos.${index}`)
      : [violation(`FileInfos.${index}`, entry, 'an object with Type, Url, Category and Usage')],
  );
}

function checkFile(entry: JsonObject, where: string): Violation[] {
  const flag = entry['Usage'] === 'FirstFrame' ? '--first-frame' : '--reference';
  const words = Object.entries(listed).flatMap(([name, values]) =>
    checkWord(entry[name], `${where}.${name}`, values),
  );
  const url = entry['Url'];
  const fault = typeof url === 'string' ? checkAssetUrl(url) : 'is not a text';
  if (fault === undefined) return words;
  const allowed = `an http(s) URL that the provider can reach${url === undefined ? '' : `; this one ${fault}`}`;
  return [...words, { ...violation(`${where}.Url`, url, allowed), flag }];
}

// Values beyond the listed ones are not shown: they pass, but not a listed one in another letter case.
function checkWord(value: Json | undefined, field: string, values: readonly string[]): Violation[] {
  if (value === undefined || (typeof value === 'string' && values.includes(value))) return [];
  const meant = typeof value === 'string' ? sameButCase(value, values) : undefined;
  const fine = typeof value === 'string' && value.trim() !== '' && meant === undefined;
  return fine ? [] : [violation(field, value, meant ?? values.join(', '))];
}

function sameButCase(value: string, values: readonly string[]): string | undefined {
  return values.find((known) => known.toLowerCase() === value.toLowerCase());
}

function violation(field: string, value: Json | undefined, allowed: string): Violation {
  return { field, value: shownValue(value), allowed };
}

/** What `FileInfos` holds beyond the values that the specification lists, or leaves out. */
export function adviseFiles(files: Json | undefined): string[] {
  if (!Array.isArray(files)) return [];
  return files.flatMap((entry, index) =>
    Object.entries(listed).flatMap(([name, values]) => {
      const value = isObject(entry) ? entry[name] : undefined;
      if (typeof value === 'string' && values.includes(value)) return [];
      const what = value === undefined ? 'is not given' : `is ${shownValue(value)}`;
      return [`FileInfos.${index}.${name} ${what}; the specification lists ${values.join(' and ')}.`];
    }),
  );
}
