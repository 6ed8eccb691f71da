import { describe, expect, it } from 'vitest';
import { withWay } from '../../../src/cli/output/next.ts';
import { MgwError, type ErrorCode, type ErrorDetails } from '../../../src/errors.ts';

const help = ['mgw', 'video', 'c', 'submit', '--help'];
const job = { id: 'job_1', protocol: 'c' } as const;

function next(code: ErrorCode, details: ErrorDetails = {}, about?: typeof job): string | undefined {
  return withWay(new MgwError(code, 'no', details), { help, job: about }).next?.join(' ');
}

describe('the command to type after an error that names none', () => {
  it.each<[ErrorCode, string]>([
    ['usage', 'mgw video c submit --help'],
    ['output_exists', 'mgw video c submit --help'],
    ['config', 'mgw doctor'],
    ['auth', 'mgw auth status'],
    ['not_found', 'mgw models'],
    ['rate_limited', 'mgw doctor'],
    ['unreachable', 'mgw doctor'],
  ])('%s: %s', (code, command) => {
    expect(next(code)).toBe(command);
  });

  it('of a job that was refused: what is recorded of it; of one that was paid for: its result', () => {
    expect(next('content_policy', {}, job)).toBe('mgw jobs show job_1');
    expect(next('local_io', { charged: 'yes', retry: 'resume' }, job)).toBe('mgw video c fetch job_1');
    expect(next('local_io', { charged: 'yes', retry: 'resume' })).toBeUndefined();
  });

  it('is never the command that has just failed', () => {
    const error = withWay(new MgwError('unreachable', 'no'), { help: ['mgw', 'doctor', '--help'] });
    expect(error.next).toBeUndefined();
  });

  it('is left as it is where the error names one', () => {
    expect(next('auth', { next: ['mgw', 'auth', 'login'] })).toBe('mgw auth login');
  });
});
