import { homedir } from 'node:os';
import { describe, expect, it } from 'vitest';
import { withHint } from '../../../src/cli/output/hint.ts';
import { MgwError, type ErrorCode, type ErrorDetails } from '../../../src/errors.ts';
import { leaseLostError } from '../../../src/ledger/postgres/lease-keeper.ts';

const help = ['mgw', 'video', 'c', 'submit', '--help'];
const job = { id: 'job_1', protocol: 'c' } as const;

function next(code: ErrorCode, details: ErrorDetails = {}, about?: typeof job): string | undefined {
  return withHint(new MgwError(code, 'no', details), {
    argv: [],
    help,
    job: about,
    protocolNames: [],
  }).next?.join(' ');
}

describe('the next command after an error', () => {
  it.each<[ErrorCode, string]>([
    ['usage', 'mgw video c submit --help'],
    ['output_exists', 'mgw video c submit --help'],
    ['config', 'mgw doctor'],
    ['auth', 'mgw auth status'],
    ['not_found', 'mgw models'],
    ['rate_limited', 'mgw doctor'],
    ['unreachable', 'mgw doctor'],
  ])('depends on the error code if the error suggests no command: %s leads to %s', (code, command) => {
    expect(next(code)).toBe(command);
  });

  it("prints a refused job's record, or fetches a paid job's result", () => {
    expect(next('content_policy', {}, job)).toBe('mgw jobs show job_1');
    expect(next('local_io', { charged: 'yes', retry: 'resume' }, job)).toBe('mgw video c fetch job_1');
    expect(next('local_io', { charged: 'yes', retry: 'resume' })).toBeUndefined();
  });

  it('is never the command that failed', () => {
    const error = withHint(new MgwError('unreachable', 'no'), {
      argv: ['doctor'],
      help: ['mgw', 'doctor', '--help'],
      protocolNames: [],
    });
    expect(error.next).toBeUndefined();
  });

  it('is the typed command with the suggested value of a flag', () => {
    const argv = ['video', 'submit', 'x', '-m', 'veo-33', '-o', 'x.mp4'];
    const correction = { flags: ['-m', '--model'], value: 'veo-3' };
    const error = withHint(new MgwError('usage', 'no', { correction }), { argv, help, protocolNames: [] });
    expect(error.next).toEqual(['mgw', 'video', 'submit', 'x', '-m', 'veo-3', '-o', 'x.mp4']);
  });

  it('has the home folder in place of a quoted ~ in the output', () => {
    const argv = ['video', 'submit', 'x', '--output=~/clips/x.mp4'];
    const error = withHint(new MgwError('usage', 'no'), { argv, help, protocolNames: [] });
    expect(error.next).toEqual(['mgw', 'video', 'submit', 'x', `--output=${homedir()}/clips/x.mp4`]);
  });

  it('is the one that the error suggests', () => {
    expect(next('auth', { next: ['mgw', 'auth', 'login'] })).toBe('mgw auth login');
  });

  const budget = {
    name: '--budget',
    limit: '5',
    spent: '4',
    reserved: '0.5',
    left: '0.5',
    exceeded_by: '0.7',
  };
  const unusable = { path: '/nowhere/a.mp4', cause: Object.assign(new Error('no'), { code: 'ENOTDIR' }) };
  it.each<[ErrorCode, ErrorDetails, string, string | undefined]>([
    ['output_exists', {}, 'submit -o /nowhere/a.mp4', 'submit -o /nowhere/a-2.mp4'],
    ['output_exists', {}, 'submit --output=/nowhere/a.mp4 --wait', 'submit --output=/nowhere/a-2.mp4 --wait'],
    ['local_io', unusable, 'submit -o /nowhere/a.mp4 --wait', 'submit -o a.mp4 --wait'],
    ['local_io', unusable, `tts -o ${'long'.repeat(70)}.mp3`, `tts -o ${'long'.repeat(25)}-2.mp3`],
    ['local_io', unusable, 'submit -o /nowhere/', 'submit -o ./'],
    ['local_io', { ...unusable, path: undefined }, 'submit -o /nowhere/a.mp4', 'doctor'],
    ['output_exists', {}, 'batch run -o {id}.mp4', help.slice(1).join(' ')],
    ['output_exists', {}, 'api -- -o a.mp4', help.slice(1).join(' ')],
    ['output_exists', { charged: 'yes', retry: 'resume' }, 'submit -o a.mp4', undefined],
    ['usage', { lacks: ['-o', 'a.mp3'] }, 'tts hello', 'tts hello -o a.mp3'],
    ['usage', { lacks: ['-o', 'a.mp3'] }, 'tts -- -hello', 'tts -o a.mp3 -- -hello'],
    [
      'unreachable',
      { lacks: leaseLostError().lacks ?? ['?'] },
      'submit hello -o a.mp4',
      'submit hello -o a.mp4',
    ],
    [
      'budget',
      { budget, next: ['mgw', 'spend'] },
      'submit --budget 5 --key k',
      'submit --budget 5.7 --key k',
    ],
    [
      'budget',
      { budget: { ...budget, name: 'batch clips' }, next: ['mgw', 'spend'] },
      'submit --budget 5',
      'submit --budget 5.7',
    ],
    [
      'budget',
      { budget: { ...budget, name: 'batch clips' }, next: ['mgw', 'batch', 'retry'] },
      'submit --budget 5',
      'batch retry',
    ],
    [
      'budget',
      { budget: { ...budget, name: 'clips' }, next: ['mgw', 'spend'] },
      'submit --budget 5',
      'spend',
    ],
  ])(
    'is the typed command with corrected flags: code %s, details %j, command %s',
    (code, details, typed, corrected) => {
      const error = withHint(new MgwError(code, 'no', details), {
        argv: typed.split(' '),
        help,
        protocolNames: [],
      });
      expect(error.next?.join(' ')).toBe(corrected && `mgw ${corrected}`);
    },
  );
});
