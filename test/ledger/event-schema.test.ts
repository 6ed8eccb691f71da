import { expect, it } from 'vitest';
import type { JobEvent, RecordedEvent } from '../../src/job.ts';
import { exportedEvents } from '../../src/ledger/event-schema.ts';
import { foldJob } from '../../src/ledger/fold.ts';
import { deadOwner } from '../jobs/harness.ts';

const at = '2026-01-02T03:04:05.678Z';
const error = { code: 'server_error', message: 'no', native_code: '500' };

// The compiler reports an event that lacks a member.
type Complete<Event> = Event extends JobEvent ? Required<Event> : never;
const events: Complete<JobEvent>[] = [
  {
    type: 'prepared',
    protocol: 'a',
    base_url: 'https://gateway.example',
    fingerprint: 'f1',
    account: 'a1',
    model: 'm',
    key: 'boat',
    variant: '1',
    tags: ['blue'],
    request: { prompt: 'a boat' },
    elided: true,
    endpoint: 'videos',
  },
  { type: 'began', run: 'r1', owner: deadOwner(), command: 'submit', ask: 'file', output: 'boat.mp4' },
  {
    type: 'sending',
    attempt: 1,
    owner: deadOwner(),
    cost: { at_most: '1.5', per_10k_characters: '0.2' },
    reservation: 'r',
    budgets: ['b'],
    limit: '5',
  },
  { type: 'reply', attempt: 1, reply: { status: 200, headers: { a: 'b' }, text: '{}', complete: true } },
  { type: 'unavailable', attempt: 1, error },
  {
    type: 'accepted',
    handle: 'task_1',
    native_status: 'ok',
    warning: 'late',
    adopted: true,
    instead_of: 'task_0',
  },
  { type: 'rejected', attempt: 1, error },
  { type: 'unknown', attempt: 1, error, handle: 'task_1' },
  { type: 'observed', state: 'running', native_status: 'run', progress: 50, revokes: true },
  {
    type: 'finished',
    state: 'failed',
    native_status: 'no',
    progress: 100,
    error,
    results: 1,
    usage: { seconds: 5 },
    details: { seed: 1 },
  },
  {
    type: 'file',
    file: {
      path: 'boat.mp4',
      sample: 2,
      bytes: 5,
      sha256: '0'.repeat(64),
      mime: 'video/mp4',
      delivered: { duration: 5, width: 1280, height: 720, fps: 24, audio: false },
      mismatches: [{ field: 'audio', asked: true, delivered: false }],
      provenance: ['c2pa'],
      unmarked_sha256: '1'.repeat(64),
    },
    instead_of: 'local.mp4',
  },
  { type: 'uploading', url: 's3://bucket/boat.mp4', id: 'u1', since: at },
  { type: 'delivered', run: 'r1' },
  { type: 'detached', run: 'r1', exit_code: 7 },
  { type: 'resolved', attempt: 1, how: 'adopted', instead_of: 'task_0' },
  { type: 'rated', rating: 5, note: 'good' },
];

it('every member of every event passes the check of an imported job unchanged', () => {
  const recorded = events.map((event): RecordedEvent => ({ ...event, at }));
  expect(exportedEvents.parse([...recorded, null])).toEqual([...recorded, null]);
});

const prepared: JobEvent = {
  type: 'prepared',
  protocol: 'a',
  base_url: 'https://gateway.example',
  fingerprint: 'f1',
  account: 'a1',
};
const resent: JobEvent[] = [
  { type: 'sending', attempt: 1, owner: deadOwner() },
  { type: 'unknown', attempt: 1, error },
  { type: 'resolved', attempt: 1, how: 'resubmit' },
];

it.each<[string, JobEvent[], object]>([
  [
    'an endpoint and a doubt about an earlier attempt',
    [{ ...prepared, endpoint: 'videos' }, ...resent],
    { state: 'unknown', record: { endpoint: 'videos', hasEarlierDoubt: true } },
  ],
  [
    'neither, like the records of earlier versions',
    [prepared],
    { state: 'rejected', record: { endpoint: undefined } },
  ],
])('an imported job whose last attempt was rejected has %s', (_, first, expected) => {
  const rejected: JobEvent = { type: 'rejected', attempt: 2, error };
  const exported = [...first, { type: 'sending', attempt: 2, owner: deadOwner() }, rejected].map((event) => ({
    ...event,
    at,
  }));
  const imported = exportedEvents.parse(JSON.parse(JSON.stringify(exported))) as unknown as RecordedEvent[];
  expect(foldJob('job_1', imported)).toMatchObject(expected);
});

it.each<[string, object]>([
  ['an unknown type', { type: 'paid' }],
  ['a handle that is not text', { type: 'accepted', handle: 1 }],
  ['a time that is not a time', { type: 'delivered', run: 'r1', at: 'now' }],
])('an imported event with %s is refused', (_, event) => {
  expect(exportedEvents.safeParse([event]).success).toBe(false);
});
