import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { newUser, type CliResult, type User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { runHere } from '../support/one-process.ts';

let gateway: FaultGateway;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  gateway.polls = 0;
  user = newUser(gateway.url);
});

afterEach(() => gateway.close());

// Runs mgw with the system clock, which determines the age of jobs.
function run(args: string[]): Promise<CliResult> {
  return runHere(args, user.env, '', systemClock);
}

// Prunes with a clock one minute ahead, because a job that has just ended may be less than 1 ms old.
function prune(...args: string[]): Promise<CliResult> {
  const later = { ...systemClock, now: () => Date.now() + 60_000 };
  return runHere(['jobs', 'prune', ...args], user.env, '', later);
}

function submit(...args: string[]): Promise<CliResult> {
  const prompt = ['a paper boat at sea', '--model', 'vendor-h3-mini', '--duration', '5'];
  const to = args.includes('-o') ? [join(user.cwd, 'boat.mp4')] : [];
  return run(['video', 'c', 'submit', ...prompt, '--poll-interval', '50ms', ...args, ...to]);
}

describe('jobs prune', () => {
  it.each([
    ['with a key', 'with a key', ['--key', 'boat-1', '-o']],
    ['whose file was not delivered', 'not delivered yet', ['-o']],
    ['in doubt', 'unfinished', []],
  ])('does not cause a repeated command to pay again for a job %s', async (_, why, args) => {
    if (args.length === 0) gateway.script.submit.push(({ response }) => response.destroy());
    if (args.length === 1) gateway.script.query.push({ status: 401 });
    const first = await submit(...args);
    await run(['jobs', 'wait', '@last', '--poll-interval', '50ms']);
    const pruned = await prune('--older-than', '1ms');
    expect(pruned).toMatchObject({ code: 0, stdout: '' });
    expect(pruned.stderr).toContain(`0 jobs removed; kept: 1 ${why}`);
    const again = await submit(...args);
    expect(again.code).toBe(first.code === 7 ? 7 : 0);
    expect(gateway.submissions).toHaveLength(1);
  });

  it('removes and reports finished jobs, and keeps newer ones', async () => {
    const { stdout } = await submit('-o');
    expect(stdout).not.toBe('');
    const { json } = await run(['jobs', 'ls', '--json']);
    const [{ id } = { id: '' }] = json['jobs'] as { id: string }[];
    expect(await prune('--older-than', '1d')).toMatchObject({ stdout: '' });
    const dry = await prune('--older-than', '1ms', '--dry-run', '--json');
    expect(dry.json).toMatchObject({ removed: [id], dry_run: true });
    expect(await prune('--older-than', '1ms')).toMatchObject({
      stdout: `${id}\n`,
      stderr: '1 job removed.\n',
    });
    expect((await run(['jobs', 'ls', '-q'])).stdout).toBe('');
  });

  it('requires a minimum age', async () => {
    expect(await run(['jobs', 'prune'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--older-than 30d') as string,
    });
  });
});

it.each([
  ['running', 'wait'],
  ['unknown', 'resolve'],
])('jobs rm keeps a job whose state is %s, and suggests the command that ends it', async (state, command) => {
  if (state === 'unknown') gateway.script.submit.push(({ response }) => response.destroy());
  await submit();
  const { code, stdout } = await run(['jobs', 'rm', '@last', '--json']);
  const { error } = JSON.parse(stdout) as { error: { message: string; next: string[] } };
  expect([code, error.next.slice(0, 3)]).toEqual([2, ['mgw', 'jobs', command]]);
  expect(error.message).toContain('may have been paid for');
});

it('jobs rm keeps a job of another gateway, even with --force', async () => {
  await submit();
  const { stdout: listed } = await run(['jobs', 'ls', '-q']);
  const elsewhere = ['--base-url', 'http://127.0.0.1:9', 'jobs', 'rm', '@last', '--force', '--json'];
  const { code, stdout } = await run(elsewhere);
  const { error } = JSON.parse(stdout) as { error: { next: string[] } };
  const next = ['mgw', '--base-url', gateway.url, 'jobs', 'rm', listed.trim(), '--force'];
  expect([code, error.next]).toEqual([2, next]);
  expect((await run(['jobs', 'ls', '-q'])).stdout).toBe(listed);
});
