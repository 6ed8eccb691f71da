import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { FaultGateway } from '../faults/gateway.ts';
import { onEnd } from '../support/clean-ups.ts';
import { newUser, type CliResult, type User } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';

const boat = ['video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini', '--duration', '6'];

interface Two {
  user: User;
  /** The job's gateway. */
  own: FaultGateway;
  /** The gateway that is configured after the submission. */
  other: FaultGateway;
  ref: string;
  /** Runs a command while the other gateway is configured. */
  there: (args: string[]) => Promise<CliResult>;
}

/**
 * Submits a job to one gateway, then configures another. With `isLost`, the response to the submission never arrives.
 */
async function twoGateways(isLost: boolean): Promise<Two> {
  const [own, other] = await Promise.all([
    FaultGateway.start({ protocol: 'c' }),
    FaultGateway.start({ protocol: 'c' }),
  ]);
  onEnd(() => own.close());
  onEnd(() => other.close());
  const user = newUser(own.url);
  if (isLost) own.script.submit.push(({ response }) => void (own.create(), response.destroy()));
  const first = await runHere([...boat, '--json'], user.env);
  expect(first.code).toBe(isLost ? 7 : 0);
  const there = (args: string[]): Promise<CliResult> =>
    runHere(args, { ...user.env, MGW_BASE_URL: other.url });
  return { user, own, other, ref: first.json.job.id, there };
}

it.each([[['video', 'c', 'status']], [['jobs', 'fetch']]])(
  '%j refuses a job of another gateway without a request, and the suggested command works',
  async (words) => {
    const { user, own, other, ref, there } = await twoGateways(false);
    const output = words.includes('fetch') ? ['-o', join(user.cwd, 'out.mp4')] : [];
    const ran = await there(['--base-url', other.url, ...words, ref, ...output, '--json']);
    const { exit_code, error } = ran.json;
    const seen = exit_code === 0 ? [] : [error];
    expect(seen).toEqual([expect.objectContaining({ code: 'usage', charged: 'no' })]);
    expect(error.message).toContain(own.url);
    expect(error.message).toContain(other.url);
    expect(other.seen).toHaveLength(0);
    expect(error.next).toEqual(['mgw', '--base-url', own.url, ...words, ref, ...output]);
    own.polls = 0;
    expect((await there((error.next ?? []).slice(1))).code).toBe(0);
    expect(other.seen).toHaveLength(0);
    expect(own.created).toHaveLength(1);
  },
);

it('jobs resolve --resubmit refuses a job of another gateway without a payment, and the suggested command resolves it', async () => {
  const how = ['--resubmit', '--budget', '99'];
  const { own, other, ref, there, user } = await twoGateways(true);
  await runHere(['config', 'set', 'prices.c.vendor-h3-mini', 'second=1'], user.env);
  const ran = await there(['jobs', 'resolve', ref, ...how, '--json']);
  expect(ran.json).toMatchObject({ exit_code: 2, job: { state: 'unknown' } });
  expect(ran.json.error.next).toEqual(['mgw', '--base-url', own.url, 'jobs', 'resolve', ref, ...how]);
  expect(other.seen).toHaveLength(0);
  expect(own.created).toHaveLength(1);
  const again = await there((ran.json.error.next ?? []).slice(1));
  expect(again.code, again.stderr).toBe(0);
  expect(other.seen).toHaveLength(0);
  expect(own.created).toHaveLength(2);
  // Without an output, the command does not wait for the task.
  expect(own.seen.filter(({ step }) => step !== 'submit')).toEqual([]);
});

it('a command that only reads the ledger does not need a gateway', async () => {
  const { there, ref, other } = await twoGateways(false);
  for (const args of [
    ['jobs', 'show', ref],
    ['jobs', 'ls'],
    ['jobs', 'export', ref],
  ])
    expect((await there(args)).code).toBe(0);
  expect(other.seen).toHaveLength(0);
});

it('--resubmit costs nothing if the output exists, and does not resolve the job', async () => {
  const { user, own, ref } = await twoGateways(true);
  const output = join(user.cwd, 'taken.mp4');
  writeFileSync(output, 'mine');
  const ran = await runHere(['jobs', 'resolve', ref, '--resubmit', '-o', output, '--json'], user.env);
  expect(ran.json).toMatchObject({ exit_code: 10, error: { code: 'output_exists', charged: 'no' } });
  expect(own.created).toHaveLength(1);
  const shown = await runHere(['jobs', 'show', ref, '--json'], user.env);
  expect(shown.json.job.state).toBe('unknown');
});

it("--resubmit with -o saves the second task's result", async () => {
  const { user, own, ref } = await twoGateways(true);
  own.polls = 0;
  const output = join(user.cwd, 'boat.mp4');
  const ran = await runHere(['jobs', 'resolve', ref, '--resubmit', '-o', output, '--json'], user.env);
  expect(ran.json).toMatchObject({ exit_code: 0, job: { handle: own.created[1] } });
  expect([readdirSync(user.cwd).filter((name) => name.startsWith('boat')), own.created.length]).toEqual([
    ['boat.mp4'],
    2,
  ]);
});
