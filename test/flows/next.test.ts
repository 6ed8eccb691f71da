import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { resolveSettings } from '../../src/config/resolve.ts';
import { MgwError } from '../../src/errors.ts';
import {
  type KeptFlags,
  commandForPerson,
  globalArguments,
  nextForOutput,
  alternativeOutput,
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

it('the flags that select the gateway and the ledger are repeated unchanged', () => {
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

describe('the next command after an error', () => {
  const wait = ['mgw', 'jobs', 'wait', 'j'];

  it.each<[string, string[] | undefined, object, string[] | undefined]>([
    [
      'receives the global flags',
      wait,
      everything,
      ['mgw', ...globalArguments(everything).flat(), ...wait.slice(1)],
    ],
    ['is unchanged without global flags', wait, {}, wait],
    [
      'does not receive a flag that it contains',
      ['mgw', '--profile', 'p', 'jobs'],
      { profile: 'work' },
      ['mgw', '--profile', 'p', 'jobs'],
    ],
    [
      'receives only the profile if it has its own gateway',
      ['mgw', '--base-url', 'https://other.example', 'jobs'],
      everything,
      ['mgw', '--profile', 'work', '--base-url', 'https://other.example', 'jobs'],
    ],
    [
      'receives only the profile if it uses the sandbox',
      ['mgw', '--sandbox', 'jobs'],
      { ...everything, sandbox: false },
      ['mgw', '--profile', 'work', '--sandbox', 'jobs'],
    ],
    [
      'is unchanged if it prints help',
      ['mgw', 'config', 'set', '--help'],
      everything,
      ['mgw', 'config', 'set', '--help'],
    ],
    ['is unchanged if it runs another program', ['chmod', '700', 'x'], everything, ['chmod', '700', 'x']],
    ['remains absent if there is none', undefined, everything, undefined],
  ])('%s', (_, next, globals, expected) => {
    expect(withGlobals(errorWith(next), globals).next).toEqual(expected);
  });
});

it.each<[string, NodeJS.ProcessEnv, string[]]>([
  [
    'the profile and the base URL',
    { MGW_PROFILE: 'work', MGW_BASE_URL: 'https://g.example' },
    ['--profile', 'work', '--base-url', 'https://g.example'],
  ],
  ['only the sandbox', { MGW_SANDBOX: '1', MGW_BASE_URL: 'https://g.example' }, ['--sandbox']],
  ['none if only the config file sets the gateway', {}, []],
])("the server's environment adds flags to a command for a person: %s", (_, env, flags) => {
  const profiles = { default: { base_url: 'https://own.example' }, work: {} };
  const settings = resolveSettings({ flags: {}, env: { ...env }, file: { profiles } });
  const command = ['jobs', 'wait', 'j'];
  expect(commandForPerson(['mgw', ...command], {}, settings, env)).toEqual(['mgw', ...flags, ...command]);
});

it("a command for a person uses the ledger and the config file that the server's environment chooses", () => {
  const variables = { MGW_STATE_DIR: '/state', MGW_CONFIG_DIR: '/config', MGW_STATE: 'postgres://db/mgw' };
  const env = { ...variables, HOME: '/home' };
  const prefix = ['env', ...Object.entries(variables).map(([name, value]) => `${name}=${value}`)];
  const settings = resolveSettings({ flags: {}, env, file: { profiles: {} } });
  const command = ['mgw', '--sandbox', 'jobs', 'ls'];
  expect(commandForPerson(command, {}, settings, env)).toEqual([...prefix, ...command]);
  // Its password could not be redacted.
  expect(commandForPerson(command, {}, undefined, env)).toEqual([...prefix.slice(0, -1), ...command]);
  expect(commandForPerson(['chmod', '700', '/state'], {}, settings, env)).toEqual(['chmod', '700', '/state']);
  // Windows has no `env`.
  const { platform } = process;
  const setPlatform = (value: string): unknown => Object.defineProperty(process, 'platform', { value });
  onTestFinished(() => void setPlatform(platform));
  setPlatform('win32');
  expect(commandForPerson(command, {}, settings, env)).toEqual(command);
});

describe('the next command, given the flags of the failed command,', () => {
  const job = { id: 'j', protocol: 'c' } as Job;
  const fetch = ['mgw', 'video', 'c', 'fetch', 'j'];
  const resolve = ['mgw', 'jobs', 'resolve', 'j'];

  it.each<[string, string[] | undefined, object, KeptFlags, string[] | undefined]>([
    ['is a fetch with the same -o', fetch, { job }, { output: 'a.mp4' }, [...fetch, '-o', 'a.mp4']],
    [
      'has --force if the failed command had --force',
      fetch,
      { job },
      { output: 'a.mp4', force: true },
      [...fetch, '-o', 'a.mp4', '--force'],
    ],
    [
      'keeps --strict and --mark',
      fetch,
      { job },
      { output: 'a.mp4', strict: true, mark: true },
      [...fetch, '-o', 'a.mp4', '--strict', '--mark'],
    ],
    [
      'keeps --strict and --mark even if it has its own -o',
      [...fetch, '-o', 'b.mp4', '--mark'],
      { job },
      { output: 'a.mp4', force: true, strict: true, mark: true },
      [...fetch, '-o', 'b.mp4', '--mark', '--strict'],
    ],
    [
      'drops the flags that resolve does not have',
      resolve,
      { job },
      { output: 'a.mp4', strict: true, mark: true },
      [...resolve, '-o', 'a.mp4'],
    ],
    ['is a resolve with the same -o', resolve, { job }, { output: 'a.mp4' }, [...resolve, '-o', 'a.mp4']],
    [
      'keeps the budgets of a resolve',
      resolve,
      { job },
      { output: 'a.mp4', budget: '5', budgetName: 'clips' },
      [...resolve, '-o', 'a.mp4', '--budget', '5', '--budget-name', 'clips'],
    ],
    [
      'keeps the budgets of a resolve even if the failed command had no -o',
      resolve,
      { job },
      { budget: '5' },
      [...resolve, '--budget', '5'],
    ],
    [
      'has no output or budget if it reports that nothing was created',
      [...resolve, '--not-created'],
      { job },
      { output: 'a.mp4', budget: '5' },
      [...resolve, '--not-created'],
    ],
    [
      'has no budget if it fetches',
      fetch,
      { job },
      { output: 'a.mp4', budget: '5' },
      [...fetch, '-o', 'a.mp4'],
    ],
    [
      'remains a wait if the failed command had no -o',
      ['mgw', 'jobs', 'wait', 'j'],
      { job, retry: 'resume' },
      {},
      ['mgw', 'jobs', 'wait', 'j'],
    ],
    ['has no --force if the failed command had no -o', resolve, { job }, { force: true }, resolve],
    [
      'has no budget if it cannot pay',
      [...resolve, '--adopt', 'h'],
      { job },
      { budget: '5' },
      [...resolve, '--adopt', 'h'],
    ],
    [
      'is a fetch instead of a wait',
      ['mgw', 'jobs', 'wait', 'j'],
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      [...fetch, '-o', 'a.mp4'],
    ],
    [
      'is a fetch if the error suggests none',
      undefined,
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      [...fetch, '-o', 'a.mp4'],
    ],
    [
      'is unchanged if it is about the key',
      ['mgw', 'auth', 'status'],
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      ['mgw', 'auth', 'status'],
    ],
    [
      'is unchanged if it shows the job',
      ['mgw', 'jobs', 'show', 'j'],
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      ['mgw', 'jobs', 'show', 'j'],
    ],
    [
      'is unchanged if it runs another program',
      ['chmod', '700', 'x'],
      { job, retry: 'resume' },
      { output: 'a.mp4' },
      ['chmod', '700', 'x'],
    ],
    [
      'is unchanged if the command cannot be resumed',
      ['mgw', 'jobs', 'ls'],
      { job, retry: 'safe' },
      { output: 'a.mp4' },
      ['mgw', 'jobs', 'ls'],
    ],
    [
      'is unchanged if it already has -o',
      [...fetch, '-o', 'b.mp4'],
      { job },
      { output: 'a.mp4' },
      [...fetch, '-o', 'b.mp4'],
    ],
    ['is unchanged if the failed command had no -o', fetch, { job }, {}, fetch],
    ['is unchanged without a job', fetch, {}, { output: 'a.mp4' }, fetch],
    ['is unchanged for speech', fetch, { job: { ...job, protocol: 'tts' } }, { output: 'a.mp4' }, fetch],
    [
      'is unchanged for a job whose protocol is lost',
      undefined,
      { job: { ...job, protocol: lostProtocol }, retry: 'resume' },
      { output: 'a.mp4' },
      undefined,
    ],
    [
      'has no -o if it resolves a job whose protocol is lost',
      ['mgw', 'jobs', 'resolve', 'job_1'],
      { job: { ...job, protocol: lostProtocol } },
      { output: 'a.mp4' },
      ['mgw', 'jobs', 'resolve', 'job_1'],
    ],
  ])('%s', (_, next, more, wanted, expected) => {
    expect(withOutput(errorWith(next, more), wanted).next).toEqual(expected);
  });
});

it('the suggested free path ends with the next unused number, and no path is suggested for a device, a folder without a name or a template', () => {
  const folder = freshFolder();
  const boat = join(folder, 'boat.mp4');
  const freePath = (path: string): string | undefined =>
    alternativeOutput(new MgwError('output_exists', 'x'), path);
  expect(freePath(boat)).toBe(join(folder, 'boat-2.mp4'));
  writeFileSync(join(folder, 'boat-2.mp4'), '');
  mkdirSync(join(folder, 'boat-3.mp4'));
  expect(freePath(boat)).toBe(join(folder, 'boat-4.mp4'));
  expect(freePath(join(folder, 'boat-3.mp4'))).toBe(join(folder, 'boat-3-2.mp4'));
  expect(freePath('s3://bucket/a/boat.mp4')).toBe('s3://bucket/a/boat-2.mp4');
  expect(freePath('s3://bucket/a/boat-2.mp4')).toBe('s3://bucket/a/boat-3.mp4');
  for (const path of [
    '',
    '.',
    '..',
    'a/..',
    '/dev/null',
    'out/',
    'out\\',
    '{id}.mp4',
    'a}.mp4',
    '/',
    's3://bucket/{id}.mp4',
  ])
    expect(freePath(path)).toBeUndefined();
});

it('the next command after a failure to save a paid job creates the missing folder, or saves elsewhere if a file is in its place', () => {
  const folder = freshFolder();
  // The current folder does not contain a file with this name.
  const name = `${basename(folder)}.mp4`;
  const [file, job] = [join(folder, 'file'), { id: 'job_1', protocol: 'c' } as Job];
  writeFileSync(file, '');
  const nextFor = (code: string, path: string): string[] | undefined =>
    nextForOutput(
      new MgwError('local_io', 'x', { path, cause: Object.assign(new Error(), { code }) }),
      job,
      path,
    );
  expect(nextFor('ENOENT', join(folder, 'gone', name))).toEqual(['mkdir', '-p', join(folder, 'gone')]);
  expect(nextFor('ENOENT', join(folder, name))).toBeUndefined();
  const fetchTo = (output: string): string[] => ['mgw', 'video', 'c', 'fetch', 'job_1', '-o', output];
  expect(nextFor('ENOTDIR', join(file, 'gone', name))).toEqual(fetchTo(name));
  expect(nextFor('ENOTDIR', join(file, 'gone/'))).toEqual(fetchTo('./'));
  // The current folder contains a package.json.
  expect(nextFor('ENOTDIR', join(file, 'package.json'))).toEqual(fetchTo('package-2.json'));
  const cause = Object.assign(new Error(), { code: 'ENOENT' });
  expect(nextForOutput(new MgwError('local_io', 'x', { cause }), job, name)).toBeUndefined();
  expect(nextForOutput(new MgwError('output_exists', 'x'), job, '/dev/null')).toEqual(fetchTo('./'));
});

it('the next command after a failure to write to a folder never uses that folder again, unless it makes the folder writable', () => {
  const [closed, folder] = [freshFolder(), freshFolder()];
  chmodSync(closed, 0o555);
  const job = { id: 'job_1', protocol: 'c' } as Job;
  const fetchTo = (output: string): string[] => ['mgw', 'video', 'c', 'fetch', 'job_1', '-o', output];
  const nextIn = (cwd: string, home: string, code: string, output: string): string[] | undefined => {
    vi.spyOn(process, 'cwd').mockReturnValue(cwd);
    vi.stubEnv('HOME', home);
    const cause = Object.assign(new Error(), { code });
    return nextForOutput(new MgwError('local_io', 'x', { path: resolve(cwd, output), cause }), job, output);
  };
  onTestFinished(() => void vi.restoreAllMocks());
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(nextIn(folder, folder, 'EACCES', join(closed, 'no-such.mp4'))).toEqual(fetchTo('no-such.mp4'));
  expect(nextIn(folder, folder, 'EROFS', `${closed}/`)).toEqual(fetchTo('./'));
  expect(nextIn(closed, folder, 'EACCES', 'boat.mp4')).toEqual(['chmod', 'u+wx', closed]);
  expect(nextIn(closed, folder, 'EACCES', './')).toEqual(['chmod', 'u+wx', closed]);
  expect(nextIn(closed, folder, 'EACCES', 'a/b/boat.mp4')).toEqual(['chmod', 'u+wx', closed]);
  const home = freshFolder();
  expect(nextIn(folder, home, 'EROFS', 'boat.mp4')).toEqual(fetchTo(join(home, 'boat.mp4')));
  expect(nextIn(folder, home, 'EACCES', './')).toEqual(fetchTo(`${home}/`));
  for (const none of [folder, join(home, 'missing')])
    expect(nextIn(folder, none, 'EROFS', 'boat.mp4')).toBeUndefined();
});
