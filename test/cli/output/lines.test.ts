import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createProgress } from '../../../src/cli/output/create-progress.ts';
import type { Progress, ProgressOptions } from '../../../src/cli/output/progress.ts';

let written: string;

beforeEach(() => {
  written = '';
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'], now: 0 });
});

afterEach(() => vi.useRealTimers());

function progress(options: Partial<ProgressOptions> & { terminal?: object } = {}): Progress {
  const stderr = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      written += chunk.toString();
      done();
    },
  });
  Object.assign(stderr, options.terminal);
  const clock = { now: () => Date.now(), monotonic: () => Date.now() };
  return createProgress({ stderr, env: {}, quiet: false, color: true, clock, ...options });
}

function linesSince(act: () => void): string[] {
  written = '';
  act();
  return written.split('\n').slice(0, -1);
}

describe('progress without a terminal', () => {
  it('prints a line for each state change, but not for each percentage', () => {
    const shown = progress();
    const seen = linesSince(() => {
      shown.waiting({ id: 'job_1', state: 'queued' });
      shown.waiting({ id: 'job_1', state: 'running', native: 'IN_PROGRESS', percent: 1 });
      shown.waiting({ id: 'job_1', state: 'running', native: 'IN_PROGRESS', percent: 2 });
      shown.waiting({ id: 'job_2', state: 'queued' });
    });
    expect(seen).toEqual(['job_1 queued', 'job_1 running (IN_PROGRESS)', 'job_2 queued']);
  });

  it('prints a heartbeat once a minute if nothing changes, with the elapsed and the usual duration', () => {
    const shown = progress();
    shown.waiting({ id: 'job_1', state: 'running', percent: 10, expectedAt: 150_000 });
    expect(linesSince(() => vi.advanceTimersByTime(59_999))).toEqual([]);
    expect(linesSince(() => vi.advanceTimersByTime(1))).toEqual([
      'job_1 running 10% after 1m00s, about 1m30s left',
    ]);
    expect(linesSince(() => vi.advanceTimersByTime(120_000))).toEqual([
      'job_1 running 10% after 2m00s, about 30s left',
      'job_1 running 10% after 3m00s, longer than usual',
    ]);
    shown.waiting({ id: 'job_2', state: 'queued' });
    expect(linesSince(() => vi.advanceTimersByTime(60_000))).toEqual([
      '2 jobs: 1 running, 1 queued after 4m00s',
    ]);
  });

  it('announces a download once, and prints heartbeats while the download continues', () => {
    const shown = progress();
    const first = linesSince(() => {
      shown.downloading({ bytes: 0, total: 4_000_000 });
      shown.downloading({ bytes: 1_000_000, total: 4_000_000, bytesPerSecond: 20_000 });
    });
    expect(first).toEqual(['downloading 4.0 MB']);
    shown.downloading({ bytes: 1_200_000, total: 4_000_000, bytesPerSecond: 20_000 });
    expect(linesSince(() => vi.advanceTimersByTime(60_000))).toEqual([
      'downloading 1.2 MB of 4.0 MB, 20.0 kB/s after 1m00s',
    ]);
  });

  it.each([
    ['the wait is over', (shown: Progress) => shown.ended('job_1')],
    ['it is stopped', (shown: Progress) => shown.stop()],
  ])('is silent after %s', (_, end) => {
    const shown = progress();
    shown.waiting({ id: 'job_1', state: 'queued' });
    end(shown);
    expect(linesSince(() => vi.advanceTimersByTime(600_000))).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('reports a request only after a minute, and never while a spinner is drawn', () => {
    const shown = progress();
    const end = shown.calling('submitting to gateway.example.com');
    expect(linesSince(() => vi.advanceTimersByTime(59_999))).toEqual([]);
    expect(linesSince(() => vi.advanceTimersByTime(1))).toEqual([
      'submitting to gateway.example.com after 1m00s',
    ]);
    end();
    shown.showNotesOnly();
    shown.calling('asking gateway.example.com');
    expect(linesSince(() => vi.advanceTimersByTime(600_000))).toEqual([]);
  });

  it('prints a line for each tenth of the items', () => {
    const shown = progress();
    const seen = linesSince(() => {
      for (let done = 1; done <= 100; done += 1)
        shown.counting({ activity: 'speaking', done, total: 100, unit: 'pieces' });
    });
    expect(seen).toHaveLength(10);
    expect(seen[0]).toBe('speaking 10 of 100 pieces');
  });

  it('removes control codes from gateway text', () => {
    const shown = progress();
    shown.note('a\u001b[31mb\nc');
    shown.waiting({ id: 'job_1', state: 'running', native: '\u001b]0;x\u0007' });
    expect(written).toMatch(/^[\x20-\x7e\n]*$/);
    expect(written.split('\n')).toHaveLength(3);
  });

  it('prints nothing in quiet mode', () => {
    const shown = progress({ quiet: true, terminal: { isTTY: true, columns: 80 } });
    shown.note('a');
    shown.waiting({ id: 'job_1', state: 'queued' });
    shown.downloading({ bytes: 1 });
    vi.advanceTimersByTime(120_000);
    expect(written).toBe('');
  });
});

it.each<[string, Partial<ProgressOptions> & { terminal?: object }]>([
  ['has no columns', { terminal: { isTTY: true, columns: 0 } }],
  ['has TERM=dumb', { terminal: { isTTY: true, columns: 80 }, env: { TERM: 'dumb' } }],
  ['is the log of a CI run', { terminal: { isTTY: true, columns: 80 }, env: { CI: 'true' } }],
])('progress is printed as plain lines on a terminal that %s', (_, options) => {
  progress(options).waiting({ id: 'job_1', state: 'queued' });
  expect(written).toBe('job_1 queued\n');
});
