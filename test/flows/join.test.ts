import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { FaultGateway, type Answer } from '../faults/gateway.ts';
import { end, speechBody } from '../speech/frames.ts';
import { speechServer } from '../speech/harness.ts';
import { onEnd } from '../support/clean-ups.ts';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';

const boat = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-d', '6', '--poll-interval', '5ms'];

/** Returns the number of events of a type in all of a user's jobs. */
function eventsOf({ env }: User, type: string): number {
  const folder = join(env['MGW_STATE_DIR'] ?? '', 'jobs');
  if (!existsSync(folder)) return 0;
  const logs = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'));
  return logs.join('').split(`"type":"${type}"`).length - 1;
}

async function until(holds: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(holds()).toBe(true), { timeout: 60_000, interval: 5 });
}

it('a second run of a command with the same output joins the first run while its response is pending', async () => {
  const gateway = await FaultGateway.start({ protocol: 'c' });
  onEnd(() => gateway.close());
  const user = userHere(gateway.url);
  gateway.polls = Infinity;
  let answer: (() => void) | undefined;
  const delayed: Answer = ({ response }) => {
    answer = () => response.end(JSON.stringify({ task_id: gateway.create(), status: 'queued' }));
  };
  gateway.script.submit.push(delayed);
  const command = [...boat, '-o', 'boat.mp4', '--json'];
  const first = user.run(command);
  await until(() => answer !== undefined);
  const second = user.run(command);
  await until(() => eventsOf(user, 'began') === 2);
  answer?.();
  gateway.polls = 0;
  const [one, other] = await Promise.all([first, second]);
  expect([one.code, other.code], other.stderr).toEqual([0, 0]);
  expect(other.json.job.id).toBe(one.json.job.id);
  expect(other.json.files).toEqual(one.json.files);
  expect(readFileSync(join(user.cwd, 'boat.mp4'))).toEqual(gateway.served.content);
  expect(gateway.submissions).toHaveLength(1);
});

it('a second run with a different output makes a second take, and prints a note before anything is paid for', async () => {
  const gateway = await FaultGateway.start({ protocol: 'c' });
  onEnd(() => gateway.close());
  const user = userHere(gateway.url);
  gateway.polls = Infinity;
  const first = user.run([...boat, '-o', 'one.mp4', '--json']);
  await until(() => gateway.created.length === 1);
  const second = user.run([...boat, '-o', 'other.mp4', '--json']);
  await until(() => gateway.created.length === 2);
  gateway.polls = 0;
  const [one, other] = await Promise.all([first, second]);
  expect([one.code, other.code]).toEqual([0, 0]);
  const notePosition = other.stderr.indexOf(`second take of ${one.json.job.id}`);
  expect(notePosition).toBeGreaterThanOrEqual(0);
  expect(notePosition).toBeLessThan(other.stderr.indexOf('Accepted as'));
});

it.each([
  ['a stream that breaks off', 'accepted', [], 9],
  ['the head of its response', 'sending', [end], 0],
] as const)(
  'a second run of tts with the same output waits while the first run reads %s, and has the same outcome',
  async (_, event, rest, code) => {
    let finish: (() => void) | undefined;
    const audio = Buffer.from('hello, ');
    const server = await speechServer((response) => {
      if (event === 'accepted') response.writeHead(200).write(speechBody([audio]));
      finish = () => response.end(speechBody(event === 'accepted' ? [...rest] : [audio, ...rest]));
    });
    const user = userHere(server.url);
    const command = ['tts', 'Hello.', '-o', 'hello.mp3', '--json'];
    const first = user.run(command);
    await until(() => finish !== undefined && eventsOf(user, event) === 1);
    const second = user.run(command);
    await until(() => eventsOf(user, 'began') === 2);
    finish?.();
    const [one, other] = await Promise.all([first, second]);
    expect([one.code, other.code], other.stderr).toEqual([code, code]);
    expect(other.json.job.id).toBe(one.json.job.id);
    expect(other.json.files).toEqual(one.json.files);
    if (code === 0) expect(readFileSync(join(user.cwd, 'hello.mp3'))).toEqual(audio);
    expect(server.requests).toHaveLength(1);
  },
);
