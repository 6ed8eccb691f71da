import type { ErrorCode, MgwError } from '../../errors.ts';
import type { JobKind } from '../../job.ts';
import { fetchCommand } from '../../jobs/errors.ts';

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
