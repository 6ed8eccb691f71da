import { describe, expect, it } from 'vitest';
import { isFinal, isOpenFor, type Goal, type Job, type JobState } from '../src/job.ts';

function jobWith(...goals: (Goal & { deliveredAt?: string })[]): Job {
  const lifeOf = (): 'unknown' => 'unknown';
  const record = {
    fingerprint: '',
    account: '',
    elided: false,
    attempts: 0,
    runs: [],
    goals,
    firstFiles: [],
    damaged: 0,
  };
  return {
    id: 'job_00000000000000',
    protocol: 'c',
    state: 'queued',
    base_url: '',
    created_at: '',
    files: [],
    record: { ...record, lifeOf },
  };
}

describe('isOpenFor', () => {
  const accept: Goal = { command: 'submit', ask: 'accept' };
  const [a, b] = ['/a', '/b'].map((output): Goal => ({ command: 'submit', ask: 'file', output }));
  if (a === undefined || b === undefined) throw new Error('no goals');

  it('is true for a command that has not received its result, regardless of other commands', () => {
    const job = jobWith({ ...a }, { ...b, deliveredAt: '2026-11-20T12:00:00.000Z' });
    expect([isOpenFor(job, a), isOpenFor(job, b)]).toEqual([true, false]);
  });

  it('is true for a command with a different goal while any goal is open', () => {
    expect(isOpenFor(jobWith({ ...a }), accept)).toBe(true);
    expect(isOpenFor(jobWith({ ...a, deliveredAt: '2026-11-20T12:00:00.000Z' }), accept)).toBe(false);
    // Without a run that has this goal, the record does not prove that the job was delivered.
    expect(isOpenFor(jobWith(), accept)).toBe(true);
  });
});

describe('isFinal', () => {
  it.each<[JobState, boolean]>([
    ['prepared', false],
    ['sending', false],
    ['unknown', false],
    ['queued', false],
    ['running', false],
    ['succeeded', true],
    ['failed', true],
    ['rejected', true],
  ])('maps %s to %s', (state, final) => {
    expect(isFinal(state)).toBe(final);
  });
});
