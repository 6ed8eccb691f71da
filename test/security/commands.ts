import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Reflection } from './mirror.ts';

const fast = ['--poll-interval', '20ms', '--timeout', '500ms', '--retries', '0'];
const once = ['--retries', '0'];

/**
 * Returns the commands that print or store the given part of a mirror's responses. The outputs are in `folder`. With
 * `refusals`, returns one command of each kind that calls a gateway or prints its text.
 */
export function commandsIn(folder: string, reflection: Reflection): string[][] {
  const to = (name: string): string[] => ['-o', join(folder, name), ...fast];
  const c = ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--duration', '5', '--prompt', 'x'];
  const b = ['video', 'b', 'submit', '--model', 'Video-B', '--model-version', '1.0', '--prompt', 'x'];
  const submissions = [
    [...c, ...to('c.mp4')],
    ['video', 'a', 'submit', '--model', 'video-a', '--prompt', 'x', ...to('a.mp4')],
    [...b, ...to('b.mp4')],
  ];
  const queries = [
    ['video', 'c', 'status', 'task-7'],
    ['video', 'c', 'fetch', 'task-8', ...to('f.mp4')],
  ];
  const lists = [
    ['models', 'vendor-h3-mini', ...once],
    ['models', ...once],
    ['api', 'GET', '/v1/models', '--include', ...once],
    ['doctor'],
  ];
  const reports = [
    ['jobs', 'ls'],
    ['jobs', 'show', '@last'],
    ['jobs', 'wait', '@last', ...fast],
    ['jobs', 'export'],
  ];
  if (reflection === 'listings') return [[...b, ...to('b.mp4')], [...c, '--dry-run'], ...lists];
  if (reflection !== 'refusals') return [...submissions, ...queries, ...reports];
  const others = [
    ['tts', 'hello', '-o', join(folder, 't.mp3'), '--timeout', '2s', ...once],
    ['responses', 'hello', '--model', 'm', ...once],
    ['config', 'list'],
    ['auth', 'status'],
  ];
  return [...submissions, ...queries, ...lists, ...reports, ...others];
}

/** Returns every file below a folder, with its mode and exact content. */
export function filesBelow(folder: string): { path: string; text: string; mode: number }[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    const stat = lstatSync(path);
    const own = { path, text: stat.isFile() ? readFileSync(path, 'latin1') : '', mode: stat.mode };
    return stat.isDirectory() ? [own, ...filesBelow(path)] : [own];
  });
}
