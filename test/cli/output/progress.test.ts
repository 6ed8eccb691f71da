import { describe, expect, it } from 'vitest';
import {
  type WaitingJob,
  countLines,
  elapsed,
  remainingText,
  size,
  transferLines,
  transferText,
  waitingLines,
  waitingText,
} from '../../../src/cli/output/progress.ts';

const job: WaitingJob = { id: 'job_1', state: 'running', native: 'IN_PROGRESS', percent: 41.7 };

describe('waitingText', () => {
  it("contains a single job's id and state, the gateway's own status and the percentage", () => {
    expect(waitingText([job])).toBe('job_1 running (IN_PROGRESS) 42%');
    expect(waitingText([{ id: 'job_1', state: 'queued' }])).toBe('job_1 queued');
  });

  it('counts several jobs by state', () => {
    const others: WaitingJob[] = [
      { id: 'job_2', state: 'queued' },
      { id: 'job_3', state: 'running' },
    ];
    expect(waitingText([job, ...others])).toBe('3 jobs: 2 running, 1 queued');
  });
});

describe('remainingText', () => {
  it.each([
    [130_000, ', about 2m10s left'],
    [1000, ', about 1s left'],
    [999, ''],
    [-10_000, ''],
    [-10_001, ', longer than usual'],
  ])('depends on the time until the usual end: %i ms leads to %j', (left, text) => {
    expect(remainingText([{ ...job, expectedAt: 5_000_000 + left }], 5_000_000)).toBe(text);
  });

  it('is empty without an estimate, for several jobs, and for a finished job', () => {
    expect(remainingText([job], 0)).toBe('');
    expect(remainingText([{ ...job, expectedAt: 9000 }, job], 0)).toBe('');
    expect(remainingText([{ ...job, state: 'succeeded', expectedAt: 9000 }], 0)).toBe('');
  });
});

describe('waitingLines', () => {
  it("omits the id first, then the gateway's own status, then the time, but never the state or the percentage", () => {
    expect(waitingLines([job], ' after 1m02s', ', about 20s left')).toEqual([
      'job_1 running (IN_PROGRESS) 42% after 1m02s, about 20s left',
      'running (IN_PROGRESS) 42% after 1m02s, about 20s left',
      'running 42% after 1m02s, about 20s left',
      'running 42% after 1m02s',
      'running 42%',
    ]);
  });
});

describe('a transfer', () => {
  it('is displayed as a bar if its length is known, or as a percentage and bytes if space is limited', () => {
    const transfer = { bytes: 25_000_000, total: 100_000_000, bytesPerSecond: 2_500_000 };
    expect(transferLines(transfer, ' after 10s')).toEqual([
      'downloading [######------------------] 25.0 MB of 100.0 MB, 2.5 MB/s after 10s',
      'downloading [######------------------] 25.0 MB of 100.0 MB, 2.5 MB/s',
      'downloading 25% 25.0 MB of 100.0 MB, 2.5 MB/s',
      'downloading 25% 25.0 MB of 100.0 MB',
      '25% 25.0 MB',
    ]);
    expect(transferLines({ bytes: 7, total: 7 }, '')[0]).toBe(
      'downloading [########################] 7 B of 7 B',
    );
    expect(transferLines({ bytes: 9, total: 7 }, '')[3]).toBe('downloading 100% 9 B of 7 B');
  });

  it('is displayed as a byte count if its length is unknown', () => {
    expect(transferLines({ bytes: 1500 }, ' after 2s')[0]).toBe('downloading 1.5 kB after 2s');
    expect(transferText({ activity: 'speech', bytes: 0, total: 0 })).toBe('speech 0 B of 0 B');
  });
});

it('the progress of several files is displayed as a bar and a count', () => {
  expect(countLines({ activity: 'speaking', done: 3, total: 12, unit: 'pieces' }, ' after 2s')).toEqual([
    'speaking [######------------------] 3 of 12 pieces after 2s',
    'speaking 3 of 12 pieces after 2s',
    'speaking 3 of 12 pieces',
  ]);
});

it.each([
  [0, '0s'],
  [59_999, '59s'],
  [60_000, '1m00s'],
  [3_599_000, '59m59s'],
  [3_720_000, '1h02m'],
  [-5, '0s'],
])('progress displays %i ms as %s', (ms, text) => expect(elapsed(ms)).toBe(text));

it.each([
  [999, '999 B'],
  [1000, '1.0 kB'],
  [123_456_789, '123.5 MB'],
  [5e15, '5000.0 TB'],
])('progress displays %d bytes as %s', (bytes, text) => expect(size(bytes)).toBe(text));
