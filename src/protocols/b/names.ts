import { isObject, tryParseJson, type Json, type JsonObject } from '../../json.ts';
import type { Violation } from '../protocol.ts';
import { shownValue } from '../violations.ts';

const bodyNames = [
  'ModelName',
  'ModelVersion',
  'Prompt',
  'NegativePrompt',
  'FileInfos',
  'OutputConfig',
  'ExtInfo',
];
const outputNames = ['StorageMode', 'Resolution', 'Duration', 'AspectRatio', 'AudioGeneration'];
const fileNames = ['Type', 'Url', 'Category', 'Usage'];

// Where each name belongs. Those of a file are too general to be missed anywhere else.
const homes = new Map([
  ...bodyNames.map((name): [string, string] => [squeezed(name), name]),
  ...outputNames.map((name): [string, string] => [squeezed(name), `OutputConfig.${name}`]),
  ['model', 'ModelName'],
  ['ratio', 'OutputConfig.AspectRatio'],
]);

const hostedAssets = 'nothing: hosted resources are not supported; give an http(s) URL in FileInfos';
const credentials = 'nothing: the gateway adds the upstream credentials itself';
const refusedNames = new Map([
  ['subappid', 'nothing: the gateway rejects requests that carry it'],
  ['fileid', hostedAssets],
  ['objectid', hostedAssets],
  ['lastframefileid', hostedAssets],
  ['drafttaskid', hostedAssets],
  ['secretid', credentials],
  ['secretkey', credentials],
]);

/** A name without regard to letter case, `_` and `-`: what `model_version` and `ModelVersion` have in common. */
export function squeezed(name: string): string {
  return name.toLowerCase().replace(/[_\-\s]/g, '');
}

/**
 * Every known field that is misspelled or in the wrong place: names and letter case are exact (specification
 * 2.3, 9). Names that the specification does not list pass.
 */
export function checkNames(body: JsonObject): Violation[] {
  const output = body['OutputConfig'];
  const files = body['FileInfos'];
  return [
    ...misspelled(body, '', bodyNames),
    ...(isObject(output) ? misspelled(output, 'OutputConfig.', outputNames) : []),
    ...(Array.isArray(files) ? files.flatMap(misspelledInFile) : []),
  ];
}

function misspelledInFile(entry: Json, index: number): Violation[] {
  return isObject(entry) ? misspelled(entry, `FileInfos.${index}.`, fileNames) : [];
}

function misspelled(object: JsonObject, where: string, names: readonly string[]): Violation[] {
  return Object.keys(object).flatMap((key) => {
    const right = names.includes(key) ? undefined : rightName(key, where, names);
    const value = shownValue(object[key]);
    return right === undefined ? [] : [{ field: `${where}${key}`, value, allowed: right }];
  });
}

function rightName(key: string, where: string, names: readonly string[]): string | undefined {
  const name = squeezed(key);
  if (name === 'taskid' && where === '') return 'nothing: a task id belongs to a query, not to a submission';
  const here = names.find((known) => squeezed(known) === name);
  const home = here === undefined ? homes.get(name) : `${where}${here}`;
  return home === undefined ? undefined : `the name ${home}, spelled exactly so`;
}

/**
 * Every field that the gateway refuses, in whatever spelling and at whatever depth, also inside the JSON texts
 * of `ExtInfo` (specification 2.3).
 */
export function checkRefused(body: JsonObject): Violation[] {
  const found: Violation[] = [];
  // A list in place of recursion: a body may be nested deeper than the stack is.
  const open: Place[] = [{ path: '', value: body, inExtInfo: false }];
  for (const place of open) {
    for (const [key, value] of membersOf(place)) {
      const path = place.path === '' ? key : `${place.path}.${key}`;
      const allowed = Array.isArray(place.value) ? undefined : refusedNames.get(squeezed(key));
      if (allowed !== undefined) found.push({ field: path, value: shownMember(value, allowed), allowed });
      open.push({ path, value, inExtInfo: place.inExtInfo || path === 'ExtInfo' });
    }
  }
  return found;
}

interface Place {
  path: string;
  value: Json | undefined;
  inExtInfo: boolean;
}

function membersOf({ value, inExtInfo }: Place): [string, Json | undefined][] {
  const json = inExtInfo && typeof value === 'string' ? unwrapped(value) : value;
  return typeof json === 'object' && json !== null ? Object.entries(json) : [];
}

// The value inside a JSON text, however often it was serialised. A long number reads as text, and as itself again.
function unwrapped(text: string): Json | undefined {
  const value = tryParseJson(text);
  return typeof value === 'string' && value !== text ? unwrapped(value) : value;
}

function shownMember(value: Json | undefined, allowed: string): string {
  return allowed === credentials ? '***' : shownValue(value);
}
