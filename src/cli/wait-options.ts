import { type Command, Option } from 'commander';
import type { Context } from './context.ts';
import { oneOf, repeatable, single } from './options.ts';
import { messageOf, usageError } from '../errors.ts';
import type { Target } from '../jobs/output.ts';
import { isObjectUrl, sidecarMessage, parseObjectUrl } from '../store-url.ts';

/** The flags for waiting. The settings parse them, and have their defaults. */
export interface WaitOptions {
  timeout?: string;
  pollInterval?: string;
  requestTimeout?: string;
  retries?: string;
}

/** The flags that say where a result is saved, and how. */
export interface OutputOptions {
  output?: string;
  force?: boolean;
  /** For paid commands: writes a sidecar next to each file. */
  sidecar?: boolean;
  /** For videos: exit 9 if a file differs from the request. */
  strict?: boolean;
  /** Writes the origin "made by a trained algorithm" into the file. */
  mark?: boolean;
}

/** Adds the flags for waiting, each with one meaning (design 1). `limit` describes `--timeout`. */
export function addWaitOptions(
  command: Command,
  limit = 'how long to wait, such as 90s or 20m (default 30m)',
): void {
  command
    .addOption(timeoutOption(limit))
    .addOption(
      waiting(
        '--poll-interval <duration>',
        'minimum pause between polls (default 5s; less only on loopback)',
      ),
    )
    .addOption(requestTimeoutOption(' (default 30s; 2m to submit)'));
  addRetriesOption(command);
  addEndOptions(command);
}

/** Returns `--timeout`. `limit` describes what it limits. */
export function timeoutOption(
  limit = 'time limit of the whole command, such as 90s or 20m (default 30m)',
): Option {
  return waiting('--timeout <duration>', limit);
}

/** Adds `--notify` and `--on-done`. */
export function addEndOptions(command: Command): void {
  command
    .addOption(
      new Option('--notify', 'notify you at the end, or ring the bell (on a terminal)').helpGroup('Waiting:'),
    )
    .addOption(
      single('--on-done <command>', 'run this command at the end, with the JSON document on stdin').helpGroup(
        'Waiting:',
      ),
    );
}

/** Returns `--request-timeout`, whose description ends with `defaults`. */
export function requestTimeoutOption(defaults = ''): Option {
  return waiting('--request-timeout <duration>', `time limit of one HTTP call${defaults}`);
}

/** Adds `--retries`. */
export function addRetriesOption(command: Command): void {
  command.addOption(waiting('--retries <n>', 'how often to retry a refused or unsent request (default 5)'));
}

function waiting(flags: string, description: string): Option {
  return single(flags, description).helpGroup('Waiting:');
}

/** Adds `-o` and `--force`; `where` describes the value of `-o`. */
export function addOutputOptions(
  command: Command,
  where = 'save the result here (a file or s3://BUCKET/KEY); - writes it to stdout',
): void {
  command
    .addOption(single('-o, --output <file>', where).helpGroup('Output:'))
    .addOption(new Option('--force', 'overwrite the output').helpGroup('Output:'))
    .addOption(new Option('--open', 'open the file once it is saved (on a terminal)').helpGroup('Output:'));
}

/** Adds the flags for fetching. `name` is the default file name. */
export function addFetchOptions(command: Command, name: string): void {
  command.option('--no-wait', 'exit 8 if a job has not finished');
  addOutputOptions(
    command,
    `a file, a folder, a template, or - for stdout (default: the output named at submission, else ${name} here)`,
  );
  command.addOption(strictOption()).addOption(markOption());
  addWaitOptions(command);
}

/** Returns `--sidecar`. */
export function sidecarOption(): Option {
  const what = 'write NAME.json next to each file, with its request, job, price and SHA-256';
  return new Option('--sidecar', what).helpGroup('Output:');
}

/** Returns `--strict`. */
export function strictOption(
  what = 'exit 9 if the video differs from the request; the video is kept',
): Option {
  return new Option('--strict', what).helpGroup('Output:');
}

/** Returns `--mark`. */
export function markOption(): Option {
  return new Option('--mark', 'mark an MP4 or MP3 as made by an algorithm').helpGroup('Output:');
}

/** Refuses `--sidecar`, `--mark` and `--strict` if there is no file for them. @throws MgwError('usage'). */
export function checkFileOptions({ sidecar, strict, mark, output }: OutputOptions): void {
  if (mark && output === undefined) throw usageError('--mark needs a file: name one with -o FILE.');
  if (strict && output === undefined)
    throw usageError('--strict needs a file to measure: name one with -o FILE.');
  if (!sidecar || (output !== undefined && output !== '-')) return;
  throw usageError('--sidecar needs a file to write next to: name one with -o FILE.');
}

/** Returns the target of `-o`; undefined if it is not given. @throws MgwError('usage') for an empty one. */
export function targetOf(options: OutputOptions): Target | undefined {
  const { output } = options;
  if (output === undefined) return undefined;
  if (output === '' || output.includes('\0'))
    throw usageError('--output: give a file, a folder, or - for stdout.');
  if (isObjectUrl(output)) checkObject(output, options);
  return output === '-' ? { kind: 'stdout' } : { kind: 'file', path: output };
}

function checkObject(url: string, { sidecar }: OutputOptions): void {
  try {
    parseObjectUrl(url.replace(/\/$/, '/{id}'));
  } catch (error) {
    throw usageError(`--output: give ${messageOf(error)}.`);
  }
  if (sidecar) throw usageError(sidecarMessage);
}

/**
 * Refuses an empty `-o`, and media on standard output together with `--json` or on a terminal, which would interpret
 * the bytes as control codes.
 * @throws MgwError('usage').
 */
export function checkStdout(context: Context, options: OutputOptions & { dryRun?: boolean }): void {
  targetOf(options);
  if (options.output !== '-') return;
  if (context.globals.json)
    throw usageError('--output - and --json both write to standard output; choose one.');
  if (context.io.stdout.isTTY && !options.dryRun)
    throw usageError(
      '--output -: media cannot be written to a terminal. Pipe them to a player, or name a file with -o.',
    );
}

/**
 * Refuses a template as the output of a command that pays, because most values are not known before the job exists.
 * Allows `{n}`, the number of one of several files, and `{id}` if `hasId`, which is true for objects by default.
 * @throws MgwError('usage').
 */
export function checkNoTemplate({ output = '' }: OutputOptions, hasId = isObjectUrl(output)): void {
  const isObject = isObjectUrl(output);
  if (isObject && output.endsWith('/')) throw usageError('--output names a folder: name an object in it.');
  const [name] = (hasId ? /\{(?!n\}|id\})\w+\}/ : /\{(?!n\})\w+\}/).exec(output) ?? [];
  if (name === undefined) return;
  throw usageError(
    `--output: ${name} is not known before the job exists. Give a file name here; mgw jobs fetch takes templates.`,
  );
}

/** Returns `--key` and `--new`, which identify the job. */
export function jobOptions(): Option[] {
  return inGroup('Job:', [
    single('--key <name>', 'permanently name this job: the same key never pays twice'),
    new Option('--new', 'deliberately make a second take of an earlier submission'),
  ]);
}

/** Returns the flags that build and check the body. `example` is an example of `--set`. */
export function requestOptions(example: string, ...own: Option[]): Option[] {
  return inGroup('Request:', [
    repeatable('--set <path=value>', `set a body field in native spelling, such as ${example}`),
    ...own,
    new Option('--dry-run', 'show the request that would be sent, and send nothing'),
  ]);
}

/** Returns `--no-check`. */
export function noCheckOption(): Option {
  return new Option('--no-check', 'skip the local checks');
}

/** Returns `--body` and, if there are `paths`, `--endpoint`, which names one of them. */
export function bodyOptions(paths: readonly string[] = []): Option[] {
  const body = single('--body <@file>', 'the body as JSON, in native spelling: @file.json, or @- for stdin');
  if (paths.length === 0) return [body];
  return [body, oneOf(single('--endpoint <name>', 'choose one of the equivalent paths'), paths)];
}

function inGroup(group: string, options: Option[]): Option[] {
  return options.map((option) => option.helpGroup(group));
}
