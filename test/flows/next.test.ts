import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import {
  type KeptFlags,
  globalArguments,
  nextForOutput,
  otherOutput,
  withGlobals,
  withOutput,
} from '../../src/flows/next.ts';
import type { Job } from '../../src/job.ts';
import { lostProtocol } from '../../src/job.ts';
import { freshFolder } from '../support/servers.ts';

const errorWith = (next?: string[], more: object = {}): MgwError =>
  new MgwError('pending', 'x', { next, ...more });
const everything = {
  ...{ profile: 'work', baseUrl: 'https://g.example', sandbox: true, allowHttp: true },
  allowInsecureDatabase: true,
};

it('the flags that choose the gateway and the ledger are repeated as given', () => {
  expect(globalArguments({})).toEqual([]);
  expect(globalArguments({ sandbox: false, allowHttp: false, allowInsecureDatabase: false })).toEqual([]);
  expect(globalArguments(everything)).toEqual([
    ['--profile', 'work'],
    ['--base-url', 'https://g.example'],
    ['--sandbox'],
    ['--allow-http'],
    ['--allow-insecure-database'],
  ]);
});

describe('the next command of an error', () => {
  const wait = ['mgw', 'jobs', 'wait', 'j'];

  it.each<[string, string[] | undefined, object, string[] | undefined]>([
    [
      'gets the global flags',
      wait,
      everything,
      ['mgw', ...globalArguments(everything).flat(), ...wait.slice(1)],
    ],
    ['stays as it is without them', wait, {}, wait],
    [
      'does not get a flag twice',
      ['mgw', '--profile', 'p', 'jobs'],
      { profile: 'work' },
      ['mgw', '--profile', 'p', 'jobs'],
    ],
    [
      'with a gateway of its own gets the profile alone',
      ['mgw', '--base-url', 'https://other.example', 'jobs'],
      everything,
      ['mgw', '--profile', 'work', '--base-url', 'https://other.example', 'jobs'],
    ],
    [
      'with the sandbox gets the profile alone',
      ['mgw', '--sandbox', 'jobs'],
      { ...everything, sandbox: false },
      ['mgw', '--profile', 'work', '--sandbox', 'jobs'],
    ],
    [
      'that shows the help stays',
      ['mgw', 'config', 'set', '--help'],
      everything,
      ['mgw', 'config', 'set', '--help'],
    ],
    ['of another program stays', ['chmod', '700', 'x'], everything, ['chmod', '700', 'x']],
    ['that there is none of stays none', undefined, everything, undefined],
  ])('%s', (_, next, globals, expected) => {
    expect(withGlobals(errorWith(next), globals).next).toEqual(expected);
  });
});

describe('the next command of a command with -o', () => {
  const job = { id: 'j', protocol: 'c' } as Job;
  const fetch = ['mgw', 'video', 'c', 'fetch', 'j'];
  const resolve = ['mgw', 'jobs', 'resolve', 'j'];

  it.each<[string, string[] | undefined, object, KeptFlags, string[] | undefined]>([
    ['fetches', fetch, { job }, { output: 'a.mp4' }, [...fetch, '-o', 'a.mp4']],
    [
      'overwrites if the command did',
      fetch,
      { job },
      { output: 'a.mp4', force: true },
      [...fetch, '-o', 'a.mp4', '--force'],
    ],
    [
      'checks and marks the file if the command did',
      fetch,
      { job },
      { output: 'a.mp4', strict: true, mark: true },
      [...fetch, '-o', 'a.mp4', '--strict', '--mark'],
    ],
    [
      'resolves without flags that only a fetch has',
      resolve,
      { job },
      { output: 'a.mp4', strict: true, mark: true },
      [...resolve, '-o', 'a.mp4'],
    ],
    ['resolves', resolve, { job }, { output: 'a.mp4' }, [...resolve, '-o', 'a.mp4']],
    [
      'resolves within its budgets',
      resolve,
      { job },
      { output: 'a.mp4', budget: '5', budgetName: 'clips' },
      [...resolve, '-o', 'a.mp4', '--budget', '5', '--budget-name', 'clips'],
    ],
    [
      'resolves within them without an output',
      resolve,
      { job },
      { budget: '5' },
      [...resolve, '--budget', '5'],
    ],
    [
      'that cannot pay has no budget',
      [...resolve, '--adopt', 'h'],
      { job },
      { budget: '5' },
      [...resolve, '--adopt', 'h'],
    ],
    [
      'that would wait fetches',
      ['mgw', 'jobs', 'wait', 'j'],
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      [...fetch, '-o', 'a.mp4'],
    ],
    [
      'that there is none of fetches',
      undefined,
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      [...fetch, '-o', 'a.mp4'],
    ],
    [
      'stays if the command cannot be resumed',
      ['mgw', 'jobs', 'ls'],
      { job, retry: 'safe' },
      { output: 'a.mp4' },
      ['mgw', 'jobs', 'ls'],
    ],
    [
      'stays if it has an output',
      [...fetch, '-o', 'b.mp4'],
      { job },
      { output: 'a.mp4' },
      [...fetch, '-o', 'b.mp4'],
    ],
    ['stays without an output', fetch, { job }, {}, fetch],
    ['stays without a job', fetch, {}, { output: 'a.mp4' }, fetch],
    ['of speech stays', fetch, { job: { ...job, protocol: 'tts' } }, { output: 'a.mp4' }, fetch],
    [
      'of a job whose protocol is lost stays',
      undefined,
      { job: { ...job, protocol: lostProtocol }, retry: 'resume' },
      { output: 'a.mp4' },
      undefined,
    ],
  ])('%s', (_, next, more, wanted, expected) => {
    expect(withOutput(errorWith(next, more), wanted).next).toEqual(expected);
  });
});

it('a free path has the next unused number; a folder or a template has no free path', () => {
  const folder = freshFolder();
  const boat = join(folder, 'boat.mp4');
  const freePath = (path: string): string | undefined =>
    otherOutput(new MgwError('output_exists', 'x'), path);
  expect(freePath(boat)).toBe(join(folder, 'boat-2.mp4'));
  writeFileSync(join(folder, 'boat-2.mp4'), '');
  mkdirSync(join(folder, 'boat-3.mp4'));
  expect(freePath(boat)).toBe(join(folder, 'boat-4.mp4'));
  for (const path of ['', 'out/', 'out\\', '{id}.mp4', 'a}.mp4', '/']) expect(freePath(path)).toBeUndefined();
});

it('if a paid job cannot be saved, the next command makes the missing folder, or saves elsewhere if a file is in its place', () => {
  const folder = freshFolder();
  const [file, job] = [join(folder, 'file'), { id: 'job_1', protocol: 'c' } as Job];
  writeFileSync(file, '');
  const nextFor = (code: string, path: string): string[] | undefined =>
    nextForOutput(
      new MgwError('local_io', 'x', { path, cause: Object.assign(new Error(), { code }) }),
      job,
      path,
    );
  expect(nextFor('ENOENT', join(folder, 'gone', 'boat.mp4'))).toEqual(['mkdir', '-p', join(folder, 'gone')]);
  expect(nextFor('ENOTDIR', join(file, 'gone', 'boat.mp4'))).toEqual([
    ...['mgw', 'video', 'c', 'fetch', 'job_1', '-o', 'boat.mp4'],
  ]);
});
