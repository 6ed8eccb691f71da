import { Option } from 'commander';
import { oneOf, repeatable, single } from './options.ts';

/** `--key` and `--new`: which job it is. */
export function jobOptions(): Option[] {
  return inGroup('Job:', [
    single('--key <name>', 'name this job for ever: the same key never pays twice'),
    new Option('--new', 'a deliberate second take of an earlier submission'),
  ]);
}

/** How the body is made, and what is done with it; `example` is one of `--set`. */
export function requestOptions(example: string, ...own: Option[]): Option[] {
  return inGroup('Request:', [
    repeatable('--set <path=value>', `set a body field in native spelling, such as ${example}`),
    ...own,
    new Option('--dry-run', 'show the request that would be sent, and send nothing'),
  ]);
}

/** `--no-check`. */
export function noCheckOption(): Option {
  return new Option('--no-check', 'skip the local checks');
}

/** `--body` and `--endpoint`, which names one of `paths`. */
export function bodyOptions(paths: readonly string[] = []): Option[] {
  const body = single('--body <@file>', 'the body as JSON, in native spelling: @file.json, or @- for stdin');
  if (paths.length === 0) return [body];
  return [body, oneOf(single('--endpoint <name>', 'which of the equivalent paths'), paths)];
}

function inGroup(group: string, options: Option[]): Option[] {
  return options.map((option) => option.helpGroup(group));
}
