import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { newUser, type CliResult, type User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';

let gateway: FaultGateway;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  gateway.polls = 0;
  user = newUser(gateway.url);
});

afterEach(() => gateway.close());

function submit(...args: string[]): Promise<CliResult> {
  const prompt = ['a paper boat at sea', '--model', 'vendor-h3-mini', '--duration', '5'];
  return user.run(['video', 'c', 'submit', ...prompt, '--poll-interval', '50ms', ...args]);
}

describe('after jobs prune', () => {
  it.each([
    ['with a key', 'with a key', ['--key', 'boat-1', '-o', 'boat.mp4']],
    ['whose file was not delivered', 'not delivered yet', ['-o', 'boat.mp4', '--timeout', '1ms']],
    ['in doubt', 'not ended', []],
  ])('a command %s pays no second time', async (_, why, args) => {
    if (args.length === 0) gateway.script.submit.push(({ response }) => response.destroy());
    const first = await submit(...args);
    await user.run(['jobs', 'wait', '@last', '--poll-interval', '50ms']);
    const pruned = await user.run(['jobs', 'prune', '--older-than', '1ms']);
    expect(pruned).toMatchObject({ code: 0, stdout: '' });
    expect(pruned.stderr).toContain(`0 jobs removed; kept: 1 ${why}`);
    const again = await submit(...args.filter((arg) => arg !== '--timeout' && arg !== '1ms'));
    expect(again.code).toBe(first.code === 7 ? 7 : 0);
    expect(gateway.submissions).toHaveLength(1);
  });

  it('removes what is done with, says so, and leaves what is newer', async () => {
    const { stdout } = await submit('-o', 'boat.mp4');
    expect(stdout).not.toBe('');
    const { json } = await user.run(['jobs', 'ls', '--json']);
    const [{ id } = { id: '' }] = json['jobs'] as { id: string }[];
    expect(await user.run(['jobs', 'prune', '--older-than', '1d'])).toMatchObject({ stdout: '' });
    const dry = await user.run(['jobs', 'prune', '--older-than', '1ms', '--dry-run', '--json']);
    expect(dry.json).toMatchObject({ removed: [id], dry_run: true });
    expect(await user.run(['jobs', 'prune', '--older-than', '1ms'])).toMatchObject({
      stdout: `${id}\n`,
      stderr: '1 job removed.\n',
    });
    expect((await user.run(['jobs', 'ls', '-q'])).stdout).toBe('');
  });

  it('wants to know how old', async () => {
    expect(await user.run(['jobs', 'prune'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--older-than 30d') as string,
    });
  });
});
