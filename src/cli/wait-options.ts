import { type Command, Option } from 'commander';
import type { Context } from './context.ts';
import { isClosed } from './io.ts';
import { oneOf, outputOption, repeatable, single } from './options.ts';
import { messageOf, usageError } from '../errors.ts';
import type { Target } from '../jobs/output.ts';
import { isObjectUrl, sidecarMessage, parseObjectUrl } from '../store-url.ts';

/** The flags that determine where and how a result is saved. */
export interface OutputOptions {
  output?: string;
  force?: boolean;
  /** For paid commands: write a sidecar next to each file. */
  sidecar?: boolean;
  /** For videos: exit 9 if a file differs from the request. */
  strict?: boolean;
  /** Label the file as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean;
}

/**
 * Adds the flags for waiting. Each flag has one meaning in all commands (design 1). `limit` is the help text of
 * `--timeout`.
 */
export function addWaitOptions(
  command: Command,
  limit = 'how long to wait, such as 90s or 20m (default 30m)',
): void {
  command
    .addOption(timeoutOption(limit))
    .addOption(
      waitingOption(
        '--poll-interval <duration>',
        'minimum pause between polls (default 5s; shorter only on loopback)',
      ),
    )
    .addOption(requestTimeoutOption('30s; 2m to submit'))
    .addOption(retriesOption());
  addEndOptions(command);
}

/** Adds the flags that limit a call. `requestTimeout` describes the default of `--request-timeout`. */
export function addCallOptions(command: Command, requestTimeout: string): void {
  command
    .addOption(timeoutOption())
    .addOption(requestTimeoutOption(requestTimeout))
    .addOption(retriesOption());
}

/** Returns the `--timeout` option, described by `limit`. */
export function timeoutOption(
  limit = 'time limit for the whole command, such as 90s or 20m (default 30m)',
): Option {
  return waitingOption('--timeout <duration>', limit);
}

/** Adds the `--notify` and `--on-done` options. */
export function addEndOptions(command: Command): void {
  command
    .addOption(
      new Option('--notify', 'show a notification at the end, or ring the bell (on a terminal)').helpGroup(
        'Waiting:',
      ),
    )
    .addOption(
      single(
        '--on-done <command>',
        'run this command at the end, with the JSON document on stdin',
        commandLine,
      ).helpGroup('Waiting:'),
    );
}

// Refuses an empty command line, for example from an unset variable, because the shell would run nothing.
function commandLine(text: string): string {
  if (text.trim() === '' || text.includes('\0')) throw new Error('a command line');
  return text;
}

function requestTimeoutOption(defaults: string): Option {
  return waitingOption('--request-timeout <duration>', `time limit for one HTTP call (default ${defaults})`);
}

function retriesOption(): Option {
  return waitingOption(
    '--retries <n>',
    'maximum number of retries of a refused or unsent request (default 5)',
  );
}

function waitingOption(flags: string, description: string): Option {
  return single(flags, description).helpGroup('Waiting:');
}

/** Adds the `-o`, `--force` and `--open` options. `description` is the help text of `-o`. */
export function addOutputOptions(
  command: Command,
  description = 'save the result to this file or s3://BUCKET/KEY; - writes it to stdout',
): void {
  command
    .addOption(outputOption('-o, --output <file>', description))
    .addOption(new Option('--force', 'overwrite the output').helpGroup('Output:'))
    .addOption(new Option('--open', 'open the file after it is saved (on a terminal)').helpGroup('Output:'));
}

/** Adds the flags for fetching. `name` is the default file name. */
export function addFetchOptions(command: Command, name: string): void {
  command.option('--no-wait', 'exit 8 if a job has not finished');
  addOutputOptions(
    command,
    `a file, a folder, a template, or - for stdout (default: the output set at submission, else ${name} in the current folder)`,
  );
  command.addOption(strictOption()).addOption(markOption());
  addWaitOptions(command);
}

/** Returns the `--sidecar` option. */
export function sidecarOption(): Option {
  const description = 'write NAME.json next to each file, with its request, job, price and SHA-256';
  return new Option('--sidecar', description).helpGroup('Output:');
}

/** Returns the `--strict` option. */
export function strictOption(
  description = 'exit 9 if the video differs from the request; the video is kept',
): Option {
  return new Option('--strict', description).helpGroup('Output:');
}

/** Returns the `--mark` option. */
export function markOption(): Option {
  return new Option('--mark', 'label an MP4 or MP3 as AI-generated (IPTC trainedAlgorithmicMedia)').helpGroup(
    'Output:',
  );
}

/**
 * Checks that `--sidecar`, `--mark` and `--strict` have an output file.
 * @throws MgwError('usage') if one of the flags is used without an output file.
 */
export function checkFileOptions({ sidecar, strict, mark, output }: OutputOptions): void {
  if (mark && output === undefined) throw usageError('--mark requires an output file: -o FILE.');
  if (strict && output === undefined) throw usageError('--strict requires an output file: -o FILE.');
  if (!sidecar || (output !== undefined && output !== '-')) return;
  throw usageError('--sidecar requires an output file: -o FILE.');
}

/** Returns the target of `-o`; undefined without the flag. @throws MgwError('usage') if the value is empty. */
export function targetOf(options: OutputOptions): Target | undefined {
  const { output } = options;
  if (output === undefined) return undefined;
  if (output === '' || output.includes('\0'))
    throw usageError('--output must be a file, a folder, or - for stdout.');
  if (isObjectUrl(output)) checkObject(output, options);
  return output === '-' ? { kind: 'stdout' } : { kind: 'file', path: output };
}

function checkObject(url: string, { sidecar }: OutputOptions): void {
  try {
    parseObjectUrl(url.replace(/\/$/, '/{id}'));
  } catch (error) {
    throw usageError(`--output must be ${messageOf(error)}.`);
  }
  if (sidecar) throw usageError(sidecarMessage);
}

/**
 * Checks that `-o` is not empty. Refuses media on standard output with `--json`, on a closed stream, and on a terminal,
 * which would interpret the bytes as control codes.
 * @throws MgwError('usage') if the output cannot be used.
 */
export function checkStdout(context: Context, options: OutputOptions & { dryRun?: boolean }): void {
  targetOf(options);
  if (options.output !== '-') return;
  if (context.globals.json)
    throw usageError('--output - and --json both write to standard output; choose one.');
  if (options.dryRun) return;
  if (isClosed(context.io.stdout))
    throw usageError(
      '--output -: standard output is closed. Pipe the output to a player, or save a file with -o FILE.',
    );
  if (context.io.stdout.isTTY)
    throw usageError(
      '--output -: media cannot be written to a terminal. Pipe the output to a player, or save a file with -o FILE.',
    );
}

/** Returns the `--key` and `--new` options, which identify the job. */
export function jobOptions(): Option[] {
  return inGroup('Job:', [
    single('--key <name>', 'permanently name this job: the same key never pays twice'),
    new Option('--new', 'deliberately make, and pay for, a second take'),
  ]);
}

/** Returns the flags that build and check the body. `example` is an example of `--set`. */
export function requestOptions(example: string, ...extraOptions: Option[]): Option[] {
  return inGroup('Request:', [
    repeatable('--set <path=value>', `set a body field by the protocol's own name, such as ${example}`),
    ...extraOptions,
    new Option('--dry-run', 'show the request that would be sent, and send nothing'),
  ]);
}

/** Returns the `--no-check` option. */
export function noCheckOption(): Option {
  return new Option('--no-check', 'skip the local checks');
}

/** Returns the `--body` option and, if there are `paths`, the `--endpoint` option, which selects a path. */
export function bodyOptions(paths: readonly string[] = []): Option[] {
  const body = single(
    '--body <@file>',
    "the body as JSON, with the protocol's own field names: @file.json, or @- for stdin",
  );
  if (paths.length === 0) return [body];
  return [body, oneOf(single('--endpoint <name>', 'choose one of the equivalent endpoint paths'), paths)];
}

function inGroup(group: string, options: Option[]): Option[] {
  return options.map((option) => option.helpGroup(group));
}
