import type { ErrorCode, MgwError } from '../../errors.ts';
import type { JobKind } from '../../job.ts';
import { fetchCommand } from '../../jobs/errors.ts';
import { globalArguments, type Globals } from '../globals.ts';
import type { OutputOptions } from '../wait-options.ts';

/** The error with its `next` made to reach the same gateway and the same ledger when it is typed. */
export function withGlobals(error: MgwError, globals: Globals): MgwError {
  const [mgw, ...rest] = error.next ?? [];
  if (mgw !== 'mgw' || rest.at(-1) === '--help') return error;
  const flags = globalArguments(globals).filter(([name = '']) => !rest.includes(name));
  return error.with({ next: [mgw, ...flags.flat(), ...rest] });
}

/** What an error that names no command of its own is looked into with. */
export interface Ways {
  /** The help of the command that was typed. */
  help: string[];
  /** The job that it is about. */
  job?: { id: string; protocol: JobKind };
}

const byCode: Partial<Record<ErrorCode, string[]>> = {
  config: ['mgw', 'doctor'],
  auth: ['mgw', 'auth', 'status'],
  not_found: ['mgw', 'models'],
  rate_limited: ['mgw', 'doctor'],
  server_error: ['mgw', 'doctor'],
  unreachable: ['mgw', 'doctor'],
  bad_reply: ['mgw', 'doctor'],
};

/** The error with a command to type (design 2), where there is one that helps. */
export function withWay(error: MgwError, { help, job }: Ways): MgwError {
  if (error.next !== undefined) return error;
  const isInput = ['usage', 'output_exists', 'local_io'].includes(error.code) && error.charged === 'no';
  const show = job && ['mgw', 'jobs', 'show', job.id];
  const fetch = job && error.retry === 'resume' && job.protocol !== 'tts' ? fetchCommand(job) : undefined;
  const next = fetch ?? (isInput ? help : (byCode[error.code] ?? show));
  // What has just failed is no way on.
  return next === undefined || `${next.join(' ')} --help` === help.join(' ') ? error : error.with({ next });
}

/**
 * The error of a command with `-o`, with a command to type that puts the file there (design 4): what only waits would
 * save nothing.
 */
export function withOutput(error: MgwError, { output, force }: OutputOptions): MgwError {
  const { job, next, retry } = error;
  if (output === undefined || job === undefined || job.protocol === 'tts') return error;
  const own = next?.includes('fetch') || next?.includes('resolve') ? next : fetchCommand(job);
  if (own !== next && retry !== 'resume') return error;
  return error.with({ next: [...own, '-o', output, ...(force ? ['--force'] : [])] });
}
