import { expect, it } from 'vitest';
import { defaultRetryMs, retryDelayMs, stuckRetryMs } from '../../../src/batch/fleet/worker-limits.ts';
import { isOwnOutputError } from '../../../src/batch/run-row.ts';
import { MgwError } from '../../../src/errors.ts';
import type { Job } from '../../../src/job.ts';

const accepted = { id: 'job_1', handle: 'task_1' } as Job;

it.each(['local_io', 'store'] as const)(
  "a worker returns a row to the queue after the error %s, even if the gateway has accepted the row's job",
  (code) => {
    for (const job of [undefined, accepted])
      expect(retryDelayMs(new MgwError(code, 'of one machine', { job }))).toBe(defaultRetryMs);
  },
);

it('a worker does not return a row to the queue if no other worker can change its outcome', () => {
  for (const code of ['task_failed', 'submit_unknown', 'result_unavailable'] as const)
    expect(retryDelayMs(new MgwError(code, code, { job: accepted }))).toBeUndefined();
});

it('a worker returns a row to the queue if the key is refused, even for its task, but ends a row whose model or voice the key cannot use', () => {
  const delayAfter = (message: string): number | undefined => retryDelayMs(new MgwError('auth', message));
  expect(delayAfter('Invalid token')).toBe(defaultRetryMs);
  const ofTask = new MgwError('auth', 'Invalid token', { job: accepted, charged: 'yes', retry: 'resume' });
  expect(retryDelayMs(ofTask)).toBe(stuckRetryMs);
  for (const message of ['This token has no access to model vendor-h3', 'speaker permission denied'])
    expect(delayAfter(message)).toBeUndefined();
});

it("a worker returns a row to the queue if the output exists on the worker's machine, because another worker can save the row", () => {
  for (const job of [undefined, accepted])
    expect(retryDelayMs(new MgwError('output_exists', 'x.mp4 exists.', { job }))).toBe(stuckRetryMs);
});

it("a worker returns a row to the queue if an input changed on the worker's machine, even if the row has its own output", () => {
  const error = new MgwError('local_io', 'intro.mp4 has changed.', { isOfInput: true });
  expect(retryDelayMs(error)).toBe(stuckRetryMs);
  const isOwn = [{}, { isOfInput: false }].map((details) =>
    isOwnOutputError({ row: { output: 'x.mp4' } }, error.with(details)),
  );
  expect(isOwn).toEqual([false, true]);
});
