import { isObject, type Json, type JsonObject } from '../../json.ts';
import { longName } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { shownValue } from '../violations.ts';
import { checkExtInfo, withReturnUsage } from './ext-info.ts';
import { adviseFiles, checkFiles } from './file-infos.ts';
import { flags } from './flags.ts';
import { checkNames, checkRefused } from './names.ts';

/** Folds `ReturnUsage`, which is `--return-usage` and no field of the gateway's, into `ExtInfo`. */
export function normalise(body: JsonObject): JsonObject {
  const { ReturnUsage: asked, ...rest } = body;
  if (asked === false) return rest;
  const merged = asked === true ? withReturnUsage(body['ExtInfo']) : undefined;
  return merged === undefined ? body : { ...rest, ExtInfo: merged };
}

/** Every local check of Protocol B (design 7, specification 2.3). */
export function check(body: JsonObject): Violation[] {
  const extInfo = checkExtInfo(body['ExtInfo']);
  return [
    ...checkNames(body),
    ...checkRefused(body),
    ...checkModel(body),
    ...checkPrompts(body),
    ...checkFiles(body['FileInfos']),
    ...checkOutput(body['OutputConfig']),
    ...extInfo,
    ...(extInfo.length === 0 ? checkUnmerged(body['ReturnUsage']) : []),
  ];
}

function checkModel(body: JsonObject): Violation[] {
  return [
    ...checkText(body, 'ModelName', 'the name of a model of the listing'),
    ...checkText(body, 'ModelVersion', "one of the model's versions, as text"),
  ];
}

function checkPrompts(body: JsonObject): Violation[] {
  const files = body['FileInfos'];
  const textToVideo = files === undefined || (Array.isArray(files) && files.length === 0);
  return [
    ...(textToVideo || body['Prompt'] !== undefined
      ? checkText(body, 'Prompt', 'a text that is not empty')
      : []),
    ...(body['NegativePrompt'] === undefined
      ? []
      : checkText(body, 'NegativePrompt', 'a text that is not empty')),
  ];
}

function checkText(body: JsonObject, field: string, allowed: string): Violation[] {
  const value = body[field];
  return typeof value === 'string' && value.trim() !== '' ? [] : [violation(field, value, allowed)];
}

function checkOutput(output: Json | undefined): Violation[] {
  if (output === undefined) return [];
  if (!isObject(output)) return [violation('OutputConfig', output, 'an object')];
  const rules: [string, (value: Json) => boolean, string][] = [
    ['StorageMode', (value) => value === 'Temporary', 'Temporary'],
    ['Resolution', isResolution, 'a size such as 720P, with a capital letter'],
    [
      'Duration',
      (value) => Number.isSafeInteger(value) && Number(value) > 0,
      'a whole number of seconds, at least 1',
    ],
    ['AspectRatio', isRatio, 'a ratio such as 16:9'],
    ['AudioGeneration', (value) => value === 'Enabled' || value === 'Disabled', 'Enabled or Disabled'],
  ];
  return rules.flatMap(([name, holds, allowed]) => {
    const value = output[name];
    return value === undefined || holds(value) ? [] : [violation(`OutputConfig.${name}`, value, allowed)];
  });
}

function isResolution(value: Json): boolean {
  return typeof value === 'string' && value.trim() !== '' && !/^\d+[pk]$/.test(value);
}

function isRatio(value: Json): boolean {
  return typeof value === 'string' && (/^[1-9]\d{0,3}:[1-9]\d{0,3}$/.test(value) || isWord(value));
}

// Some models take a word, such as adaptive, where others take a ratio.
function isWord(value: string): boolean {
  return /^[a-z]+$/i.test(value);
}

function checkUnmerged(asked: Json | undefined): Violation[] {
  if (asked === undefined) return [];
  const allowed =
    asked === true
      ? 'ReturnUsage written inside ExtInfo itself: its numbers are too long to be kept when it is written again'
      : 'true or false';
  return [violation('ReturnUsage', asked, allowed)];
}

const flagByField = new Map(flags.map((flag) => [flag.field, `--${longName(flag)}`]));

function violation(field: string, value: Json | undefined, allowed: string): Violation {
  return {
    field,
    value: shownValue(value),
    allowed,
    flag: field === 'FileInfos' ? undefined : flagByField.get(field),
  };
}

/** Fields left to a default that may differ between versions (specification 9), and values that no list shows. */
export function advise(body: JsonObject): string[] {
  const output = isObject(body['OutputConfig']) ? body['OutputConfig'] : {};
  const open = ['Duration', 'Resolution', 'AudioGeneration'].filter((name) => output[name] === undefined);
  const named = open.map((name) => flagByField.get(`OutputConfig.${name}`) ?? name).join(', ');
  return [
    ...(open.length === 0
      ? []
      : [`Left to the model's default, which may differ between versions: ${named}.`]),
    ...adviseFiles(body['FileInfos']),
  ];
}
