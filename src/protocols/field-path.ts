import { isObject, type Json, type JsonObject } from '../json.ts';

// A body is walked by recursion.
const maxSteps = 100;
const forbidden = new Set(['__proto__', 'constructor', 'prototype']);

/** A path as it is read here: `FileInfos[0].Url` is `FileInfos.0.Url`. */
export function dottedPath(path: string): string {
  return path.replace(/\[(\d+)\](?=[.[]|$)/g, '.$1');
}

/**
 * The steps of a field's path: `instances.0.prompt`.
 * @throws Error if there are too many, or one is empty or would reach what an object inherits.
 */
export function fieldSteps(path: string): string[] {
  const steps = path.split('.', maxSteps + 1);
  if (steps.length > maxSteps) throw new Error(`the path has more than ${maxSteps} steps`);
  if (steps.some((step) => step.trim() === '')) throw new Error('the path has an empty step');
  const bad = steps.find((step) => forbidden.has(step));
  if (bad !== undefined) throw new Error(`${bad} cannot be a step of a path`);
  return steps;
}

/** True if there is a value at a path, or something on the way that has no members. */
export function hasField(body: JsonObject, steps: readonly string[]): boolean {
  let current: Json | undefined = body;
  for (const step of steps) {
    if (typeof current !== 'object' || current === null) return true;
    if (!Object.hasOwn(current, step)) return false;
    current = (current as JsonObject)[step];
  }
  return current !== undefined;
}

/**
 * Puts a value at a path, in place. What is missing on the way is made: a list if the next step is a number,
 * an object otherwise.
 * @throws Error if something on the way is neither, or an index is beyond the end of its list.
 */
export function setField(body: JsonObject, steps: readonly string[], value: Json): void {
  let container: Json = body;
  for (const [depth, step] of steps.entries()) {
    const where = steps.slice(0, depth).join('.');
    if (Array.isArray(container)) checkIndex(container, step, where);
    else if (!isObject(container)) throw new Error(`${where} is not an object or a list`);
    const next = steps[depth + 1];
    const members = container as JsonObject;
    if (next === undefined) members[step] = value;
    else if (!Object.hasOwn(members, step)) members[step] = isIndex(next) ? [] : {};
    container = members[step] as Json;
  }
}

function checkIndex(list: Json[], step: string, where: string): void {
  if (!isIndex(step)) throw new Error(`${where} is a list: the next step must be a number`);
  if (Number(step) > list.length)
    throw new Error(`${where} has ${list.length} entries: the next one is number ${list.length}`);
}

function isIndex(step: string): boolean {
  return /^(0|[1-9]\d{0,8})$/.test(step);
}
