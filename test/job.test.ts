import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { covers, isFinal, isSettled, type Ask, type Job, type JobState } from '../src/job.ts';

const asks: Ask[] = ['accept', 'finish', 'file'];

function jobThat(asked: Ask | undefined, delivered: Ask | undefined): Job {
  const record = { fingerprint: '', account: '', elided: false, attempts: 0, runs: [], damaged: 0 };
  return {
    id: 'job_00000000000000',
    protocol: 'c',
    state: 'queued',
    base_url: '',
    created_at: '',
    files: [],
    record: { ...record, asked, delivered },
  };
}

describe('isSettled', () => {
  it('compares what was delivered with what was asked', () => {
    for (const [place, asked] of asks.entries())
      for (const [reached, delivered] of asks.entries())
        expect(isSettled(jobThat(asked, delivered)), `${asked} ${delivered}`).toBe(reached >= place);
  });

  it('is false where nothing was delivered, and takes accept for what an old record does not tell', () => {
    for (const asked of [undefined, ...asks]) expect(isSettled(jobThat(asked, undefined))).toBe(false);
    expect(isSettled(jobThat(undefined, 'accept'))).toBe(true);
  });
});

describe('covers', () => {
  it('is an order', () => {
    const ask = fc.constantFrom(...asks);
    fc.assert(
      fc.property(ask, ask, ask, (a, b, c) => {
        expect(covers(a, b) || covers(b, a)).toBe(true);
        if (covers(a, b) && covers(b, c)) expect(covers(a, c)).toBe(true);
        if (covers(a, b) && covers(b, a)) expect(a).toBe(b);
      }),
    );
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
  ])('%s: %s', (state, final) => {
    expect(isFinal(state)).toBe(final);
  });
});
