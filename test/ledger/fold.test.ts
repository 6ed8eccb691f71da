import { resolve } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  lostFingerprint,
  lostProtocol,
  type Milestone,
  type Job,
  type JobEvent,
  type JobState,
  type Life,
  type RecordedEvent,
} from '../../src/job.ts';
import { damagedJob } from '../../src/ledger/event-log.ts';
import { failureInDoubt, foldJob } from '../../src/ledger/fold.ts';
import { timeOf } from '../../src/ledger/names.ts';

const id = 'job_00000000000000';
const at = '2026-11-20T12:00:00.000Z';
const error = { code: 'server_error', message: 'no' };
const errorInDoubt = { ...error, message: failureInDoubt(error.message) };
const owner = { pid: 7, start: '1', host: 'here' };
const reply = { status: 200, headers: {}, text: '{}', complete: true };
const prepared: JobEvent = {
  type: 'prepared',
  protocol: 'c',
  base_url: 'https://gateway.example',
  fingerprint: 'f',
  account: 'a',
};

function fold(...events: (JobEvent | 'damage')[]): Job {
  const lines = events.map((event) => (event === 'damage' ? undefined : { ...event, at }));
  const job = foldJob(id, [{ ...prepared, at }, ...lines]);
  if (job === undefined) throw new Error('no job');
  return job;
}

it('a job that is folded without a liveness check reports every process as neither alive nor dead', () => {
  expect(fold().record.lifeOf(owner)).toBe('unknown');
});

const sending = (attempt: number): JobEvent => ({ type: 'sending', attempt, owner });
const accepted = (handle = 'task_1'): JobEvent => ({ type: 'accepted', handle });
const ended = (type: 'unavailable' | 'rejected' | 'unknown', attempt: number): JobEvent => ({
  type,
  attempt,
  error,
});

const attempt = fc.integer({ min: 1, max: 4 });
const states = fc.constantFrom<JobState[]>('queued', 'running', 'succeeded', 'failed');
const asks = fc.constantFrom<Milestone[]>('accept', 'finish', 'file');
const runs = fc.constantFrom('r1', 'r2', 'r3');

/** Any event, in any order: a process that was considered dead may still write. */
const anyEvent: fc.Arbitrary<JobEvent | 'damage'> = fc.oneof(
  attempt.map(sending),
  attempt.map((n): JobEvent => ({ type: 'reply', attempt: n, reply })),
  fc
    .tuple(fc.constantFrom('unavailable' as const, 'rejected' as const, 'unknown' as const), attempt)
    .map(([type, n]) => ended(type, n)),
  fc.constantFrom('task_1', 'task_2').map(accepted),
  fc
    .tuple(states, fc.constantFrom(undefined, true as const))
    .map(([state, revokes]): JobEvent => ({ type: 'observed', state, native_status: state, revokes })),
  fc
    .constantFrom('succeeded' as const, 'failed' as const)
    .map((state): JobEvent => ({ type: 'finished', state, native_status: state })),
  fc
    .constantFrom('adopted' as const, 'not-created' as const, 'resubmit' as const)
    .map((how): JobEvent => ({ type: 'resolved', how })),
  fc.tuple(runs, asks).map(([run, ask]): JobEvent => ({ type: 'began', run, owner, command: 'submit', ask })),
  runs.map((run): JobEvent => ({ type: 'delivered', run })),
  runs.map((run): JobEvent => ({ type: 'detached', run, exit_code: 8 })),
  fc.constant('damage' as const),
);
const history = fc.array(anyEvent, { maxLength: 25 });

const step = fc.tuple(history, anyEvent);

const resent: JobEvent[] = [
  sending(1),
  ended('unknown', 1),
  { type: 'resolved', how: 'resubmit' },
  sending(2),
];

describe('for any events in any order,', () => {
  it('a handle is never lost or replaced', () => {
    fc.assert(
      fc.property(step, ([events, next]) => {
        const before = fold(...events);
        const after = fold(...events, next);
        if (before.handle !== undefined) expect(after.handle).toBe(before.handle);
        const first = events.find((event) => event !== 'damage' && event.type === 'accepted');
        expect(before.handle).toBe(first === undefined ? undefined : (first as { handle: string }).handle);
      }),
      { numRuns: 50 },
    );
  });

  it('a success is never undone', () => {
    fc.assert(
      fc.property(step, ([events, next]) => {
        const before = fold(...events);
        fc.pre(before.state === 'succeeded');
        expect(fold(...events, next)).toMatchObject({
          state: 'succeeded',
          native_status: before.native_status,
        });
      }),
      { numRuns: 50 },
    );
  });

  it('a job can be sent again only if its last attempt was refused or the user decides so', () => {
    fc.assert(
      fc.property(step, ([events, next]) => {
        const before = fold(...events);
        fc.pre(before.state === 'sending' || before.state === 'unknown');
        const after = fold(...events, next);
        fc.pre(after.state === 'prepared' || after.state === 'rejected');
        if (next === 'damage') throw new Error('damage made the job sendable');
        expect(['unavailable', 'rejected', 'resolved']).toContain(next.type);
        if (next.type === 'unavailable' || next.type === 'rejected')
          expect(next.attempt).toBeGreaterThanOrEqual(before.record.attempts);
      }),
      { numRuns: 50 },
    );
  });

  it('a damaged job without a handle is unknown until the user resolves the job', () => {
    fc.assert(
      fc.property(history, (events) => {
        const job = fold(...events);
        const lastDamage = events.lastIndexOf('damage');
        const settled = events
          .slice(lastDamage + 1)
          .some((event) => event !== 'damage' && event.type === 'resolved' && event.how !== 'adopted');
        fc.pre(lastDamage >= 0 && !settled && job.handle === undefined);
        expect(job.state).toBe('unknown');
      }),
      { numRuns: 50 },
    );
  });

  it('a job without a handle is never queued, running, succeeded or failed', () => {
    fc.assert(
      fc.property(history, (events) => {
        const job = fold(...events);
        if (job.handle === undefined)
          expect(['prepared', 'sending', 'unknown', 'rejected']).toContain(job.state);
      }),
      { numRuns: 50 },
    );
  });

  it('the number of attempts never decreases, and includes every started attempt', () => {
    fc.assert(
      fc.property(step, ([events, next]) => {
        const after = fold(...events, next).record.attempts;
        expect(after).toBeGreaterThanOrEqual(fold(...events).record.attempts);
        if (next !== 'damage' && next.type === 'sending') expect(after).toBeGreaterThanOrEqual(next.attempt);
      }),
      { numRuns: 50 },
    );
  });
});

describe('a submission', () => {
  it.each<[string, JobEvent[], Partial<Job>]>([
    ['is prepared before its first attempt', [], { state: 'prepared' }],
    [
      'is prepared again if the gateway is busy',
      [sending(1), ended('unavailable', 1)],
      { state: 'prepared', error },
    ],
    ['is unknown if its response is lost', [sending(1), ended('unknown', 1)], { state: 'unknown', error }],
    [
      'is queued once the user adopts its handle',
      [sending(1), ended('unknown', 1), { type: 'resolved', how: 'adopted' }, accepted()],
      { state: 'queued' },
    ],
    [
      'is rejected if the user decides that nothing was created',
      [sending(1), ended('unknown', 1), { type: 'resolved', how: 'not-created' }],
      { state: 'rejected', error: { code: 'invalid_request', message: expect.any(String) as string } },
    ],
    [
      'is prepared again if the user decides to send it again',
      [sending(1), ended('unknown', 1), { type: 'resolved', how: 'resubmit' }],
      { state: 'prepared', error },
    ],
    [
      'is unknown if it was sent again and the new attempt is rejected',
      [...resent, ended('rejected', 2)],
      { state: 'unknown', error: errorInDoubt },
    ],
    [
      'is rejected if it was sent again, and the user then decides that nothing was created',
      [...resent, ended('rejected', 2), { type: 'resolved', how: 'not-created' }],
      { state: 'rejected' },
    ],
    [
      'is queued if it is accepted after its response was lost',
      [sending(1), ended('unknown', 1), accepted()],
      { state: 'queued', error: undefined },
    ],
  ])('%s', (_, events, expected) => {
    expect(fold(...events)).toMatchObject(expected);
  });

  it('is not ended by a late response to an earlier attempt', () => {
    for (const type of ['unavailable', 'rejected', 'unknown'] as const)
      expect(fold(sending(1), ended('unavailable', 1), sending(2), ended(type, 1))).toMatchObject({
        state: 'sending',
        record: { attempts: 2, sender: owner },
      });
    const late = fold(sending(1), ended('unknown', 1), sending(2), { type: 'reply', attempt: 1, reply });
    expect(late.record.pendingReply).toBeUndefined();
  });

  it('is being sent if an earlier attempt is sent late, because the task may be paid for', () => {
    expect(fold(sending(1), sending(2), ended('unavailable', 2), sending(1))).toMatchObject({
      state: 'sending',
      record: { attempts: 2, sender: owner },
    });
  });

  it('has a pending response until an event records the outcome', () => {
    expect(fold(sending(1), { type: 'reply', attempt: 1, reply }).record.pendingReply).toEqual(reply);
    expect(
      fold(sending(1), { type: 'reply', attempt: 1, reply }, accepted()).record.pendingReply,
    ).toBeUndefined();
  });

  it('has no possible handle once the user resolves it as not created', () => {
    const doubt: JobEvent = {
      type: 'unknown',
      attempt: 1,
      error: { code: 'submit_unknown', message: '' },
      handle: 'task_9',
    };
    const { record } = fold(sending(1), doubt, { type: 'resolved', how: 'not-created' });
    expect(record.possibleHandle).toBeUndefined();
  });

  it('is resolved if the user resolves it after damage, and is unknown again after new damage', () => {
    expect(fold(sending(1), 'damage', { type: 'resolved', how: 'not-created' }).state).toBe('rejected');
    expect(fold('damage', { type: 'resolved', how: 'not-created' }, 'damage').state).toBe('unknown');
  });
});

describe('a handle that the user entered', () => {
  const adopted = (handle: string, insteadOf?: string): JobEvent => ({
    ...{ type: 'accepted', handle, adopted: true },
    ...(insteadOf !== undefined && { instead_of: insteadOf }),
  });
  const resolved: JobEvent = { type: 'resolved', how: 'not-created', instead_of: 'a' };
  const polled: JobEvent = { type: 'observed', state: 'running', native_status: '' };

  it.each<[string, (JobEvent | 'damage')[], string | undefined]>([
    ['can be corrected', [adopted('b', 'a')], 'b'],
    ['can be corrected twice', [adopted('b', 'a'), adopted('c', 'b')], 'c'],
    ['is removed if the user decides that nothing was created', [resolved], undefined],
    ['is not replaced by a correction of another handle', [adopted('b', 'c')], 'a'],
    ['cannot be corrected once the gateway has returned its task', [polled, adopted('b', 'a')], 'a'],
    ['cannot be removed once the gateway has returned its task', [polled, resolved], 'a'],
    [
      'cannot be corrected if a line that may contain its task is damaged',
      ['damage', adopted('b', 'a')],
      'a',
    ],
  ])('%s', (_, events, handle) => {
    expect(fold(adopted('a'), ...events).handle).toBe(handle);
  });

  it('replaces the possible handle from a response', () => {
    const doubt: JobEvent = { type: 'unknown', attempt: 1, error, handle: 'task_9' };
    const { possibleHandle, isUnconfirmed } = fold(sending(1), doubt, adopted('a')).record;
    expect({ possibleHandle, isUnconfirmed }).toEqual({ possibleHandle: undefined, isUnconfirmed: true });
  });

  it('forgets the reported failure of the handle that it replaces', () => {
    const began: JobEvent = { type: 'began', run: 'r1', owner, command: 'submit', ask: 'file', output: '/a' };
    const events: JobEvent[] = [adopted('a'), began, { type: 'detached', run: 'r1', exit_code: 9 }];
    expect(fold(...events).record.goals).toMatchObject([{ isFailureReported: true }]);
    expect(fold(...events, adopted('b', 'a')).record.goals).toMatchObject([{ isFailureReported: undefined }]);
  });

  it('leaves nothing to resolve once it is removed', () => {
    expect(fold(adopted('a'), resolved).record.isUnconfirmed).toBeUndefined();
  });
});

describe("a job's outcome", () => {
  it('is not changed by an acceptance that is recorded late', () => {
    for (const state of ['succeeded', 'failed'] as const)
      expect(fold({ type: 'finished', state, native_status: '' }, accepted())).toMatchObject({
        state,
        handle: 'task_1',
      });
  });

  it('does not include a failure that the gateway later revokes', () => {
    const job = fold(
      accepted(),
      { type: 'finished', state: 'failed', native_status: 'FAIL', error },
      { type: 'observed', state: 'running', native_status: 'RUN', progress: 40, revokes: true },
    );
    expect(job).toMatchObject({ state: 'running', progress: 40, error: undefined, finished_at: undefined });
  });

  it('is not changed by an earlier poll that is recorded late', () => {
    for (const state of ['succeeded', 'failed'] as const) {
      const polled: JobEvent = { type: 'observed', state: 'running', native_status: 'RUN', progress: 40 };
      const job = fold(accepted(), { type: 'finished', state, native_status: 'END' }, polled);
      expect(job).toMatchObject({ state, native_status: 'END', progress: undefined });
    }
  });

  it('includes the newest record of each file', () => {
    const file = (path: string, bytes: number): JobEvent => ({
      type: 'file',
      file: { path, bytes, sha256: 'x' },
    });
    const job = fold(accepted(), file('/a', 1), file('/b', 2), file('/a', 3));
    expect(job.files.map(({ path, bytes }) => [path, bytes])).toEqual([
      ['/b', 2],
      ['/a', 3],
    ]);
    expect(job.fetched_at).toBe(at);
  });

  it("includes each paying command's goal, whether the goal was met, and which command is still running", () => {
    const submit = { command: 'submit', owner } as const;
    const job = fold(
      { type: 'began', run: 'r1', ...submit, ask: 'file', output: '/a' },
      { type: 'began', run: 'r2', owner, command: 'fetch', ask: 'file', output: '/b' },
      { type: 'began', run: 'r3', ...submit, ask: 'accept' },
      { type: 'began', run: 'r4', ...submit, ask: 'file', output: '/a' },
      { type: 'delivered', run: 'r2' },
      { type: 'delivered', run: 'r3' },
      { type: 'detached', run: 'r4', exit_code: 8 },
    );
    expect(job.record.goals).toEqual([
      { command: 'submit', ask: 'file', output: '/a' },
      { command: 'submit', ask: 'accept', deliveredAt: at },
    ]);
    expect(job.record.runs.map(({ run }) => run)).toEqual(['r1']);
  });
});

it.each<[number, 'succeeded' | 'failed', 'submit' | 'wait', boolean]>([
  [5, 'failed', 'submit', true],
  [9, 'failed', 'submit', true],
  [9, 'succeeded', 'submit', true],
  [9, 'failed', 'wait', false],
  [10, 'failed', 'submit', true],
  [10, 'succeeded', 'submit', false],
  [8, 'failed', 'submit', false],
  [130, 'failed', 'submit', false],
])(
  'exit %i of a job that is %s reports a final failure of the command %s: %s',
  (exit_code, state, command, isFinal) => {
    const events: JobEvent[] = [
      accepted('a'),
      { type: 'began', run: 'r1', owner, command, ask: 'file', output: '/a' },
      { type: 'finished', state, native_status: '' },
      { type: 'detached', run: 'r1', exit_code },
    ];
    expect(fold(...events).record.goals.find((goal) => goal.isFailureReported) !== undefined).toBe(isFinal);
  },
);

it('a record without a readable beginning cannot be folded into a job', () => {
  const event: RecordedEvent = { ...accepted(), at };
  for (const lines of [[], [undefined], [event], [undefined, { ...prepared, at }]])
    expect(foldJob(id, lines)).toBeUndefined();
});

it('a job checks only once whether a process is alive, because a change between two checks could cause a second payment', () => {
  const answers: Life[] = ['alive', 'dead', 'dead'];
  const job = foldJob(id, [{ ...prepared, at }], () => answers.shift() ?? 'dead');
  const other = { ...owner, pid: 8 };
  expect([owner, owner, other, owner].map((each) => job?.record.lifeOf(each))).toEqual([
    'alive',
    'alive',
    'dead',
    'alive',
  ]);
});

describe('a job built from its events', () => {
  const cost = { at_most: '2' };
  const history: JobEvent[] = [
    { type: 'began', run: 'r1', owner, command: 'submit', ask: 'file', output: '/a' },
    { type: 'sending', attempt: 1, owner, cost },
    { type: 'reply', attempt: 1, reply },
  ];
  const file = (path: string): JobEvent => ({ type: 'file', file: { path, bytes: 1, sha256: 'x' } });

  it.each<[string, JobEvent[], object, object]>([
    [
      'of an attempt',
      [],
      { state: 'sending', cost, submitted_at: at },
      { attempts: 1, sender: owner, sentBy: owner, pendingReply: reply },
    ],
    [
      'of a refusal',
      [ended('rejected', 1)],
      { state: 'rejected', error },
      { sender: undefined, sentBy: owner, pendingReply: undefined },
    ],
    [
      'of an unknown outcome with a possible handle',
      [{ type: 'unknown', attempt: 2, error, handle: 'task_9' }],
      { state: 'unknown' },
      { attempts: 2, possibleHandle: 'task_9' },
    ],
    [
      'of an unknown outcome with a possible handle before a refused attempt',
      [
        { type: 'unknown', attempt: 1, error, handle: 'task_9' },
        { type: 'resolved', how: 'resubmit' },
        sending(2),
        ended('unavailable', 2),
      ],
      { state: 'prepared', error: errorInDoubt },
      { attempts: 2, possibleHandle: 'task_9' },
    ],
    [
      'of an unknown outcome after one with a possible handle',
      [
        { type: 'unknown', attempt: 1, error, handle: 'task_9' },
        { type: 'resolved', how: 'resubmit' },
        sending(2),
        ended('unknown', 2),
      ],
      { state: 'unknown', error },
      { attempts: 2, possibleHandle: 'task_9' },
    ],
    [
      'of an attempt after a refusal',
      [ended('unavailable', 1), sending(2)],
      { state: 'sending', error: undefined },
      { attempts: 2 },
    ],
    [
      'of a refusal without an attempt number',
      [{ type: 'rejected', error }],
      { state: 'rejected' },
      { attempts: 1 },
    ],
    [
      'of an acceptance',
      [ended('unavailable', 1), sending(2), { type: 'accepted', handle: 't', native_status: 'q' }],
      { state: 'queued', handle: 't', native_status: 'q', error: undefined, cost: undefined },
      { attempts: 2 },
    ],
    ['of an acceptance after a rejection', [ended('rejected', 1), accepted()], { state: 'queued' }, {}],
    [
      'of an attempt after the acceptance',
      [accepted(), sending(2), ended('rejected', 2)],
      { state: 'queued', handle: 'task_1', error: undefined },
      { attempts: 2, sender: undefined },
    ],
    [
      'of a decision about a later attempt',
      [{ type: 'resolved', attempt: 3, how: 'not-created' }],
      { state: 'rejected' },
      { attempts: 3 },
    ],
    [
      'of a decision after the acceptance',
      [accepted(), { type: 'resolved', how: 'not-created' }],
      { state: 'queued' },
      {},
    ],
    [
      'of a poll',
      [accepted(), { type: 'observed', state: 'running', native_status: 'RUN', progress: 40 }],
      { state: 'running', native_status: 'RUN', progress: 40 },
      { results: undefined },
    ],
    [
      'of a success',
      [
        accepted(),
        {
          ...{ type: 'finished', state: 'succeeded', native_status: 'DONE', progress: 100, results: 2 },
          ...{ usage: { tokens: 1 }, details: [{ seed: 7 }] },
        },
        { type: 'finished', state: 'failed', native_status: 'FAIL', error },
      ],
      {
        ...{ state: 'succeeded', native_status: 'DONE', progress: 100, finished_at: at, error: undefined },
        ...{ usage: { tokens: 1 }, details: [{ seed: 7 }] },
      },
      { results: 2 },
    ],
    [
      'of a failure',
      [accepted(), { type: 'finished', state: 'failed', native_status: 'FAIL', error }],
      { state: 'failed', error, finished_at: at },
      {},
    ],
    [
      'of a file that replaced another',
      [accepted(), file('/a'), { ...file('s3://b/a'), instead_of: '/a' } as JobEvent],
      { files: [{ path: 's3://b/a', bytes: 1, sha256: 'x' }], fetched_at: at },
      {},
    ],
    [
      'of uploads',
      ['1', '2'].map((id): JobEvent => ({ type: 'uploading', url: 's3://b/a', id, since: at })),
      {},
      {
        uploads: [
          { url: 's3://b/a', id: '1', since: at },
          { url: 's3://b/a', id: '2', since: at },
        ],
      },
    ],
    [
      'of a rating',
      [{ type: 'rated', rating: 4, note: 'good' }],
      { rating: 4, note: 'good', rated_at: at },
      {},
    ],
    [
      "of an unknown run's end",
      [{ type: 'delivered', run: 'r9' }],
      {},
      { goals: [{ command: 'submit', ask: 'file', output: '/a' }] },
    ],
  ])('has the data %s', (_, events, job, record) => {
    const folded = fold(...history, ...events);
    for (const [name, value] of Object.entries(job)) expect(folded[name as keyof Job], name).toEqual(value);
    for (const [name, value] of Object.entries(record))
      expect(folded.record[name as keyof Job['record']], name).toEqual(value);
  });

  it('has the values of its first event', () => {
    const first = { ...prepared, model: 'm', key: 'k', tags: ['t'], request: { a: 1 }, elided: true };
    const job = foldJob(id, [
      { ...first, at },
      { ...prepared, fingerprint: 'g', at },
    ]);
    expect(job).toMatchObject({
      ...{ protocol: 'c', base_url: 'https://gateway.example', created_at: at, files: [] },
      ...{ model: 'm', key: 'k', tags: ['t'], request: { a: 1 } },
      record: { fingerprint: 'f', account: 'a', elided: true, damaged: 0 },
    });
    expect(fold().record.elided).toBe(false);
    expect(fold('damage', 'damage').record.damaged).toBe(2);
  });

  it('has the absolute output path of each run, and "-" for standard output', () => {
    const began = (output?: string): JobEvent =>
      ({
        ...{ type: 'began', run: String(output), owner, ask: 'file' },
        ...(output !== undefined && { output }),
      }) as JobEvent;
    const { runs, goals } = fold(began('-'), began('x'), began()).record;
    expect(runs.map(({ output }) => output)).toEqual(['-', resolve('x'), undefined]);
    expect(goals.every(({ command }) => command === 'submit')).toBe(true);
    expect('output' in (runs[2] ?? {})).toBe(false);
  });
});

describe('a record that has lost its beginning', () => {
  const lifeOf = (): Life => 'unknown';

  it.each([
    ['{"protocol":"tts"', 'tts'],
    ['{"protocol":"TTS"', lostProtocol],
    ['nothing', lostProtocol],
  ])(
    'blocks the submission and keeps its protocol if the protocol is readable: %s is read as %s',
    (text, protocol) => {
      const job = damagedJob(id, text, [{ ...sending(1), at }], lifeOf);
      expect(job).toMatchObject({
        ...{ id, protocol, state: 'unknown', base_url: '', created_at: new Date(timeOf(id)).toISOString() },
        record: { fingerprint: lostFingerprint, attempts: 1, damaged: 1 },
        error: { code: 'local_io' },
      });
    },
  );

  it('has the state and the error of the task with its handle', () => {
    const lines: RecordedEvent[] = [
      accepted(),
      { type: 'finished', state: 'failed', native_status: '', error } as const,
    ].map((event) => ({ ...event, at }));
    expect(damagedJob(id, '', lines, lifeOf)).toMatchObject({ handle: 'task_1', state: 'failed', error });
  });
});
