import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chargesOf, expensesOf, groupsOf, Sum } from '../../src/budget/spend.ts';
import { formatDecimal, parseDecimal } from '../../src/decimal.ts';
import type { JobEvent, RecordedEvent } from '../../src/job.ts';
import { foldJob } from '../../src/ledger/fold.ts';

const owner = { pid: 1, start: '', host: '' };
const error = { code: 'server_error', message: '' };
const at = '2026-11-22T10:00:00.000Z';

const prepared = (more: object = {}): JobEvent => ({
  type: 'prepared',
  protocol: 'c',
  base_url: '',
  fingerprint: 'f',
  account: '',
  model: 'm',
  ...more,
});
const sending = (attempt: number, max?: string, more: object = {}): JobEvent => ({
  type: 'sending',
  attempt,
  owner,
  ...(max !== undefined && { cost: { at_most: max, ...more } }),
});
const accepted = (handle = 'task_1'): JobEvent => ({ type: 'accepted', handle });
const observed: JobEvent = { type: 'observed', state: 'running', native_status: '' };
const finished = (state: 'succeeded' | 'failed', more: object = {}): JobEvent => ({
  type: 'finished',
  state,
  native_status: '',
  ...more,
});

const sent: JobEvent[] = [prepared(), sending(1, '2')];
const inDoubt: JobEvent[] = [...sent, { type: 'unknown', attempt: 1, error }];
const sentAgain: JobEvent[] = [...inDoubt, { type: 'resolved', how: 'resubmit' }, sending(2, '3')];
const notCreated: JobEvent = { type: 'resolved', how: 'not-created' };

const wronglyAdopted: JobEvent[] = [
  ...inDoubt,
  { type: 'resolved', attempt: 1, how: 'adopted' },
  { type: 'accepted', handle: 'wrong', adopted: true },
];

/** Returns the charges of a job with the given events, such as `10 spent`. */
function cost(...events: (JobEvent | undefined)[]): string[] {
  const recorded = events.map((event): RecordedEvent | undefined => event && { ...event, at });
  const job = foldJob('job_1', recorded);
  if (job === undefined) throw new Error('no job');
  return expensesOf(job, recorded).map(
    ({ amount, kind }) => `${amount === undefined ? 'unknown' : formatDecimal(amount)} ${kind}`,
  );
}

describe("a job's cost", () => {
  it.each<[string, (JobEvent | undefined)[], string[]]>([
    ['never sent', [prepared()], []],
    ['being sent', sent, ['2 doubt']],
    ['accepted without a price', [prepared(), sending(1), accepted()], ['unknown spent']],
    ['acceptance recorded twice', [...sent, accepted(), accepted()], ['2 spent']],
    ['rejected', [...sent, { type: 'rejected', attempt: 1, error }], []],
    [
      'temporarily refused, then accepted at another price',
      [...sent, { type: 'unavailable', attempt: 1, error }, sending(2, '3'), accepted()],
      ['3 spent'],
    ],
    ['outcome unknown', inDoubt, ['2 doubt']],
    [
      'outcome unknown and record lost',
      [prepared(), { type: 'unknown', attempt: 1, error }],
      ['unknown doubt'],
    ],
    ['record damaged', [prepared(), undefined], ['unknown doubt']],
    ['record damaged during the submission', [...sent, undefined], ['2 doubt']],
    ['record damaged, then accepted', [prepared(), undefined, sending(1, '2'), accepted()], ['2 spent']],
    [
      'record damaged after a rejection',
      [...sent, { type: 'rejected', attempt: 1, error }, undefined],
      ['unknown doubt'],
    ],
    [
      'outcome unknown, then accepted',
      [...inDoubt, { type: 'resolved', attempt: 1, how: 'adopted' }, accepted()],
      ['2 spent'],
    ],
    ['outcome unknown, then not created', [...inDoubt, notCreated], []],
    ['outcome unknown, then sent again', [...sentAgain, accepted()], ['2 doubt', '3 spent']],
    [
      'sent again with an unknown outcome, then not created',
      [...sentAgain, { type: 'unknown', attempt: 2, error }, notCreated],
      [],
    ],
    [
      'sent again and rejected, then adopted',
      [
        ...sentAgain,
        { type: 'rejected', attempt: 2, error },
        { type: 'accepted', handle: 't', adopted: true },
        observed,
      ],
      ['2 spent'],
    ],
    ['failed', [...sent, accepted(), finished('failed', { error })], ['2 failed']],
    [
      'sent twice and accepted twice, then the first task failed',
      [...sentAgain, accepted('task_1'), accepted('task_2'), finished('failed', { error })],
      ['2 failed', '3 spent'],
    ],
    ['imported by its handle', [prepared(), accepted()], []],
    [
      'outcome unknown, without the number of the attempt',
      [...sent, { type: 'unknown', error }],
      ['2 doubt'],
    ],
    [
      'adopted without a recorded handle, then not created',
      [...inDoubt, { type: 'resolved', attempt: 1, how: 'adopted' }, notCreated],
      [],
    ],
    [
      'sent again, then accepted under a handle that was corrected',
      [
        ...sentAgain,
        { type: 'accepted', handle: 'task_1', adopted: true },
        { type: 'accepted', handle: 'task_2', adopted: true, instead_of: 'task_1' },
        observed,
      ],
      ['2 doubt', '3 spent'],
    ],
    ['adopted, and not returned by the gateway yet', wronglyAdopted, ['2 doubt']],
    ['adopted, then returned as failed', [...wronglyAdopted, finished('failed', { error })], ['2 failed']],
    ['adopted, then accepted under the same handle', [...wronglyAdopted, accepted('wrong')], ['2 spent']],
    [
      'adopted while another user sent it again, then accepted under the adopted handle',
      [...wronglyAdopted, { type: 'resolved', how: 'resubmit' }, sending(2, '3'), accepted('wrong')],
      ['2 spent', '3 doubt'],
    ],
    [
      'adopted under a wrong handle, then not created',
      [...wronglyAdopted, { type: 'resolved', how: 'not-created', instead_of: 'wrong' }],
      [],
    ],
    [
      'adopted under a wrong handle, then sent again',
      [
        ...wronglyAdopted,
        { type: 'resolved', how: 'resubmit', instead_of: 'wrong' },
        sending(2, '3'),
        accepted(),
        observed,
      ],
      ['2 doubt', '3 spent'],
    ],
    [
      'adopted by one user while another decided that nothing was created',
      [...wronglyAdopted, notCreated, observed],
      ['2 spent'],
    ],
    [
      'adopted by two users under different handles, of which only the first has effect',
      [
        ...wronglyAdopted,
        { type: 'accepted', handle: 'other', adopted: true },
        { type: 'resolved', how: 'not-created', instead_of: 'wrong' },
      ],
      [],
    ],
    [
      'adopted under a wrong handle, corrected, then not created',
      [
        ...wronglyAdopted,
        { type: 'accepted', handle: 'other', adopted: true, instead_of: 'wrong' },
        { type: 'resolved', how: 'not-created', instead_of: 'other' },
      ],
      [],
    ],
    [
      'record damaged, then not created',
      [prepared(), undefined, { type: 'resolved', attempt: 1, how: 'not-created' }],
      [],
    ],
    [
      'record damaged, then adopted',
      [prepared(), undefined, { type: 'accepted', handle: 't', adopted: true }],
      ['unknown doubt'],
    ],
    [
      'record damaged, then adopted and returned by the gateway',
      [prepared(), undefined, { type: 'accepted', handle: 't', adopted: true }, observed],
      ['unknown spent'],
    ],
    [
      'record damaged after it was resolved as not created',
      [prepared(), { type: 'resolved', attempt: 1, how: 'not-created' }, undefined],
      ['unknown doubt'],
    ],
    [
      'accepted after a later attempt was refused',
      [...sent, sending(2, '3'), { type: 'unavailable', attempt: 2, error }, accepted()],
      ['2 spent'],
    ],
  ])('is determined by its recorded events (%s)', (_, events, expected) => {
    expect(cost(...events)).toEqual(expected);
  });

  const spoken = [
    prepared({ protocol: 'tts' }),
    sending(1, '0.3', { per_10k_characters: '150' }),
    accepted('speech'),
  ];

  it("follows the gateway's count of speech only for the task whose speech was counted", () => {
    const events: JobEvent[] = [
      ...spoken,
      { type: 'resolved', how: 'resubmit' },
      sending(2, '0.3', { per_10k_characters: '150' }),
      accepted('speech again'),
    ];
    expect(cost(...events, finished('succeeded', { usage: { text_words: 17 } }))).toEqual([
      '0.255 spent',
      '0.3 spent',
    ]);
  });

  it("is unknown without a price, even if the gateway's count of speech is known", () => {
    const events = [prepared({ protocol: 'tts' }), sending(1), accepted('speech')];
    const counted = finished('succeeded', { usage: { text_words: 17 } });
    expect(cost(...events, counted)).toEqual(['unknown spent']);
  });

  it.each<[string, object, string]>([
    ["follows the gateway's count of speech", { usage: { text_words: 17 } }, '0.255 spent'],
    ['is zero if the gateway counted no characters of the speech', { usage: { text_words: 0 } }, '0 spent'],
    ['is the maximum if the gateway did not count the speech', {}, '0.3 spent'],
    [
      "is the maximum if the gateway's count of speech is invalid",
      { usage: { text_words: -1 } },
      '0.3 spent',
    ],
    [
      "is the maximum if the gateway's count of speech is not a whole number",
      { usage: { text_words: 1.5 } },
      '0.3 spent',
    ],
  ])('%s', (_, more, expected) => {
    expect(cost(...spoken, finished('succeeded', more))).toEqual([expected]);
  });

  it.each<[string, object, string]>([
    ['is spent if the speech broke off', { error: { code: 'speech_incomplete', message: '' } }, '0.3 spent'],
    ['is spent if the speech failed after some audio', { error, details: { audio_bytes: 7 } }, '0.3 spent'],
    ['is reported as failed if the speech failed before any audio', { error }, '0.3 failed'],
    [
      'is at least the maximum if the speech broke off, because the count may be incomplete',
      { error: { code: 'speech_incomplete', message: '' }, usage: { text_words: 17 } },
      '0.3 spent',
    ],
    [
      "follows the gateway's count if the speech broke off and the count is higher",
      { error: { code: 'speech_incomplete', message: '' }, usage: { text_words: 40 } },
      '0.6 spent',
    ],
  ])('%s', (_, more, expected) => {
    expect(cost(...spoken, finished('failed', more))).toEqual([expected]);
  });
});

it.each<[string, JobEvent, string[]]>([
  ['its own attempt', { type: 'unavailable', attempt: 1, error }, ['none', 'open']],
  ['the last attempt if the refusal specifies none', { type: 'rejected', error }, ['open', 'none']],
  ['no attempt if its own is not recorded', { type: 'unavailable', attempt: 7, error }, ['open', 'open']],
])('a refusal that is recorded after a later attempt began ends %s', (_, refusal, fates) => {
  const events = [prepared(), sending(1), sending(2), refusal].map((each) => ({ ...each, at }));
  expect(chargesOf(events).map(({ outcome }) => outcome)).toEqual(fates);
});

it('an attempt remains open until an event ends it', () => {
  const reply = { status: 200, headers: {}, text: '{}', complete: true };
  const events: JobEvent[] = [prepared(), sending(1), { type: 'reply', attempt: 1, reply }];
  expect(chargesOf(events.map((each) => ({ ...each, at })))).toMatchObject([{ outcome: 'open' }]);
});

it("an attempt's cost belongs to the budgets that the attempt recorded", () => {
  const events: JobEvent[] = [
    prepared(),
    { type: 'sending', attempt: 1, owner, budgets: ['clips'] },
    sending(2),
  ];
  const recorded = events.map((each) => ({ ...each, at }));
  const job = foldJob('job_1', recorded);
  expect(job && expensesOf(job, recorded).map(({ budgets }) => budgets)).toEqual([['clips'], []]);
});

it('an attempt whose record is lost has the time of the first event, or no time if every event is lost', () => {
  const charge = { attempt: 0, outcome: 'open', isLost: true };
  expect(chargesOf([undefined, { ...prepared(), at }])).toEqual([{ ...charge, at }]);
  expect(chargesOf([undefined])).toEqual([{ ...charge, at: '' }]);
});

it('a job never has more accepted attempts than handles, regardless of the order of events', () => {
  const event = fc.oneof(
    fc.integer({ min: 1, max: 3 }).map((attempt) => sending(attempt, '1')),
    fc.integer({ min: 1, max: 3 }).map((attempt): JobEvent => ({ type: 'unavailable', attempt, error })),
    fc.integer({ min: 1, max: 3 }).map((attempt): JobEvent => ({ type: 'unknown', attempt, error })),
    fc.constantFrom('a', 'b').map(accepted),
    fc.constantFrom('not-created', 'resubmit', 'adopted').map((how): JobEvent => ({ type: 'resolved', how })),
  );
  fc.assert(
    fc.property(fc.array(event, { maxLength: 12 }), (events) => {
      const charges = chargesOf(events.map((each) => ({ ...each, at })));
      const handles = new Set(events.flatMap((each) => (each.type === 'accepted' ? [each.handle] : [])));
      const paid = charges.filter(({ outcome }) => outcome === 'accepted').length;
      expect(paid).toBeLessThanOrEqual(handles.size);
      const firstSending = events.findIndex(({ type }) => type === 'sending');
      const after = firstSending < 0 ? [] : events.slice(firstSending);
      if (
        after.some(({ type }) => type === 'accepted') &&
        handles.size === 1 &&
        !events.slice(0, firstSending).some(({ type }) => type === 'accepted')
      )
        expect(paid).toBe(1);
    }),
  );
});

it('an expense is grouped by its model, batch, key, day and each of its budgets', () => {
  const expense = {
    at,
    job: 'j',
    model: 'm',
    key: 'films/intro',
    budgets: ['clips', 'batch films'],
    kind: 'spent' as const,
  };
  expect(groupsOf(expense, 'model')).toEqual(['m']);
  expect(groupsOf(expense, 'day')).toEqual(['2026-11-22']);
  expect(groupsOf(expense, 'batch')).toEqual(['films']);
  expect(groupsOf(expense, 'key')).toEqual(['films/intro']);
  expect(groupsOf(expense, 'budget')).toEqual(['clips', 'batch films']);
  expect(groupsOf({ ...expense, key: 'intro', budgets: [] }, 'batch')).toEqual(['']);
  expect(groupsOf({ ...expense, budgets: [] }, 'budget')).toEqual(['']);
});

it('an unknown price makes a sum unknown, and is never treated as 0', () => {
  const sum = new Sum();
  sum.add(parseDecimal('0.1'));
  sum.add(parseDecimal('0.2'));
  expect(sum.total).toBe('0.3');
  sum.add(undefined);
  expect([sum.total, formatDecimal(sum.known), sum.unpriced, sum.charges]).toEqual(['unknown', '0.3', 1, 3]);
});
