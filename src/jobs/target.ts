import { lstatSync } from 'node:fs';
import { extname, join } from 'node:path';
import { absoluteOutput } from '../store-url.ts';
import type { Ask, Goal, Job } from '../job.ts';

/** Where a result goes: a file or an object (`s3://BUCKET/KEY`), a folder in which mgw chooses the name, or standard output. */
export type Target = { kind: 'file' | 'folder'; path: string } | { kind: 'stdout' };

/** The n-th of several files: `clip.mp4` becomes `clip-1.mp4` (design 6), and `{n}.mp4` becomes `1.mp4`. */
export function numberedPath(path: string, index: number, count: number): string {
  if (count === 1) return path;
  if (path.includes('{n}')) return path.replaceAll('{n}', String(index + 1));
  const extension = extname(path);
  return `${path.slice(0, path.length - extension.length)}-${index + 1}${extension}`;
}

/**
 * The absolute paths of a job's `count` files at a target; the names never come from the server. `asked` is how
 * many were ordered: if fewer arrived, they keep the names that were checked before anything was paid.
 */
export function pathsAt(
  target: Target & { kind: 'file' | 'folder' },
  job: Pick<Job, 'id'>,
  count: number,
  asked = count,
): string[] {
  const path = absoluteOutput(target.kind === 'folder' ? join(target.path, `${job.id}.mp4`) : target.path);
  return Array.from({ length: count }, (_, index) => numberedPath(path, index, Math.max(count, asked)));
}

/** Builds the goal of a command: its ask and its target. */
export function goalOf(command: Goal['command'], ask: Ask, target: Target | undefined): Goal {
  if (target === undefined) return { command, ask };
  return { command, ask, output: target.kind === 'stdout' ? '-' : absoluteOutput(target.path) };
}

/**
 * Returns the absolute path of the output that the job's command named, preferring one that was not delivered yet.
 * Undefined if it named none.
 */
export function goalOutput({ id, key, record }: Pick<Job, 'id' | 'key' | 'record'>): string | undefined {
  const goals = record.goals.filter(({ ask, output }) => ask === 'file' && output !== '-');
  const { output } = goals.find(({ deliveredAt }) => deliveredAt === undefined) ?? goals.at(-1) ?? {};
  // Only the keys of a batch's rows have a slash. Their outputs are templates in which only the job's id is open.
  if (key?.includes('/')) return output?.replaceAll('{job}', id);
  return output === undefined ? undefined : outputOf(output, id);
}

/** Returns the output of a job: `{id}` in its path or URL is the job's id. */
export function outputOf(template: string, id: string): string {
  return template.replaceAll('{id}', id);
}

/** True if a file exists at a path; false if that cannot be determined. */
export function pathExists(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}
