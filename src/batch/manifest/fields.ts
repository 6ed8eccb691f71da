import type { JobKind } from '../../job.ts';
import { longName } from '../../protocols/compose.ts';
import { fieldSteps } from '../../protocols/field-path.ts';
import type { Flag } from '../../protocols/protocol.ts';
import { protocols } from '../../protocols/registry.ts';
import { printableLine } from '../../printable.ts';
import { speechFlags } from '../../speech/flags.ts';
import { messageOf } from '../../errors.ts';
import { nearestName } from '../../nearest.ts';

/** What a row may be about. */
export const kinds: readonly JobKind[] = ['a', 'b', 'c', 'tts'];

/** The flags that are fields of a row, for each kind: those of `video X submit` and of `tts`. */
export const rowFlags: Record<JobKind, readonly Flag[]> = {
  a: protocols.a.flags,
  b: protocols.b.flags,
  c: protocols.c.flags,
  tts: speechFlags,
};

const everyKind = ['id', 'protocol', 'output', 'tags'];
const own: Record<JobKind, readonly string[]> = {
  a: ['body'],
  b: ['body'],
  c: ['body', 'endpoint'],
  tts: ['text', 'file'],
};

const names: Record<JobKind, ReadonlySet<string>> = {
  a: namesOf('a'),
  b: namesOf('b'),
  c: namesOf('c'),
  tts: namesOf('tts'),
};
const allNames = new Set(kinds.flatMap((kind) => [...names[kind]]));

function namesOf(kind: JobKind): Set<string> {
  return new Set([...everyKind, ...own[kind], ...rowFlags[kind].map(longName)]);
}

/** A field's name in its one spelling: `aspect_ratio` is `aspect-ratio`. A native path stays as it is. */
export function fieldName(written: string): string {
  return isPath(written) ? written : written.replaceAll('_', '-');
}

/** True for `set.PATH`. */
export function isPath(name: string): boolean {
  return name.startsWith('set.');
}

/** What is wrong with a field's name, or undefined; with a kind, as a field of a row of that kind. */
export function nameFault(written: string, kind?: JobKind): string | undefined {
  const name = fieldName(written);
  if (isPath(name)) return pathFault(name);
  if (kind === undefined ? allNames.has(name) : names[kind].has(name)) return undefined;
  const shown = printableLine(written, 60) || '""';
  const others = kinds.filter((other) => names[other].has(name));
  if (kind !== undefined && others.length > 0)
    return `there is no field ${shown} for protocol ${kind}; there is one for ${others.join(', ')}`;
  return `there is no field ${shown}; ${nameHint(name, [...(kind === undefined ? allNames : names[kind])], 'set.PATH')}`;
}

/** What was probably meant by a name that there is not, however short it is; else all the names that there are. */
export function nameHint(name: string, known: readonly string[], ...others: readonly string[]): string {
  const near = nearestName(name, known, Math.max(1, Math.floor(name.length / 3)));
  return near === undefined ? `there are: ${[...known, ...others].join(', ')}` : `did you mean ${near}?`;
}

function pathFault(name: string): string | undefined {
  try {
    fieldSteps(name.slice('set.'.length));
    return undefined;
  } catch (error) {
    return `${printableLine(name, 60)}: ${messageOf(error)}`;
  }
}
