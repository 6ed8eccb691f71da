import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { FaultGateway } from '../faults/gateway.ts';
import { onEnd } from '../support/clean-ups.ts';
import { newUser, type CliResult, type User } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';

let gateway: FaultGateway;
let user: User;
let id: string;

const mgw = (...args: string[]): Promise<CliResult> => runHere([...args, '--json'], user.env);

function pathOf(): string {
  return join(user.env['MGW_STATE_DIR'] ?? '', 'jobs', `${id}.jsonl`);
}

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  onEnd(() => gateway.close());
  user = newUser(gateway.url);
  const made = await mgw('video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini', '--duration', '6');
  id = made.json.job.id;
});

describe('a job whose record is unreadable', () => {
  beforeEach(() => {
    writeFileSync(pathOf(), 'nothing\n');
  });

  it('is listed with an unknown protocol, is refused by commands that need the task, and can be removed with --force', async () => {
    expect((await mgw('jobs', 'show', id)).json.job).toMatchObject({ protocol: 'unknown', state: 'unknown' });
    expect((await mgw('jobs', 'ls')).json['jobs']).toMatchObject([{ id, protocol: 'unknown' }]);
    const requestCount = gateway.seen.length;
    for (const verb of ['wait', 'fetch']) {
      const { code, json } = await mgw('jobs', verb, id);
      expect(code).toBe(2);
      expect(JSON.stringify(json)).toContain(`mgw video PROTOCOL fetch ${id}`);
      expect(JSON.stringify(json)).toContain(`"next":["mgw","jobs","show","${id}"]`);
    }
    expect(gateway.seen).toHaveLength(requestCount);
    expect((await mgw('jobs', 'rm', id, '--force')).code).toBe(0);
    expect((await mgw('jobs', 'show', id)).code).toBe(2);
  });

  it('can be resolved with --not-created', async () => {
    const { code, json } = await mgw('jobs', 'resolve', id, '--not-created');
    expect([code, json.job.state]).toEqual([0, 'rejected']);
  });

  it('can be resolved with --adopt without -o, as suggested, and then fetched with its protocol', async () => {
    gateway.polls = 0;
    const output = ['-o', join(user.cwd, 'boat.mp4')];
    const undecided = await mgw('jobs', 'resolve', id, ...output);
    expect(undecided.json.error?.message).toContain(`\n     mgw jobs resolve ${id} --adopt HANDLE\n`);
    const adopt = ['jobs', 'resolve', id, '--adopt', 'task_0001'];
    const { code, json } = await mgw(...adopt, ...output);
    expect([code, json.error?.next]).toEqual([2, ['mgw', ...adopt]]);
    expect((await mgw(...adopt)).code).toBe(0);
    const fetched = await mgw('video', 'c', 'fetch', id, ...output);
    expect(fetched.code, fetched.stdout).toBe(0);
    expect(readFileSync(join(user.cwd, 'boat.mp4'))).toEqual(gateway.served.content);
  });
});

it.each([
  [
    ['--adopt', '-7', '-o', 'a.mp4'],
    ['--adopt', '-7'],
  ],
  [['--not-created'], ['--not-created']],
  [['--resubmit'], []],
])(
  'jobs resolve @KEY %j suggests the same command with the job id if the record is lost',
  async (words, flags) => {
    const submitted = await mgw('video', 'c', 'submit', 'a sea', '--model', 'vendor-h3-mini', '--key', 'sea');
    id = submitted.json.job.id;
    rmSync(pathOf());
    const { code, json } = await mgw('jobs', 'resolve', '@sea', ...words);
    expect([code, json.error?.next]).toEqual([7, ['mgw', 'jobs', 'resolve', id, ...flags]]);
    expect((await mgw(...(json.error?.next?.slice(1) ?? []))).code).toBe(flags.length === 0 ? 7 : 0);
  },
);

it.each([
  ['damaged', (): void => writeFileSync(pathOf(), '')],
  ['lost', (): void => rmSync(pathOf())],
])('a job whose record is %s is listed, and an import on another machine keeps its key', async (_, spoil) => {
  const submit = ['video', 'c', 'submit', 'a sea', '--model', 'vendor-h3-mini', '--key', 'sea'];
  id = (await mgw(...submit)).json.job.id;
  spoil();
  expect((await mgw('jobs', 'ls', '--state', 'unknown')).json['jobs']).toMatchObject([{ id }]);
  writeFileSync(join(user.cwd, 'jobs.json'), (await mgw('jobs', 'export')).stdout);
  user = { ...user, env: { ...user.env, MGW_STATE_DIR: join(user.cwd, 'other') } };
  expect((await mgw('jobs', 'import', join(user.cwd, 'jobs.json'))).code).toBe(0);
  expect(await mgw(...submit)).toMatchObject({ code: 7, json: { job: { id } } });
});

it('jobs export contains a job that an index from a backup does not list', async () => {
  const files = ['index.log', 'index.count'].map((name) => join(user.env['MGW_STATE_DIR'] ?? '', name));
  const backups = files.map((path) => [path, readFileSync(path)] as const);
  const later = await mgw('video', 'c', 'submit', 'a sea', '--model', 'vendor-h3-mini');
  for (const [path, content] of backups) writeFileSync(path, content);
  expect((await mgw('jobs', 'export')).json['jobs']).toMatchObject([{ id: later.json.job.id }, { id }]);
});
