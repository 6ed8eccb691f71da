import { describe, expect, it } from 'vitest';
import type { Budget, ChargeOutcome, OutcomeOf, Reservation } from '../../src/budget/budget.ts';
import { decimalOf, type Decimal, formatDecimal } from '../../src/decimal.ts';
import type { Job, JobEvent, Life, RecordedEvent } from '../../src/job.ts';
import {
  abandonClaim,
  attemptClaim,
  chargeOutcome,
  chargeUsage,
  jobOfReservation,
  nextAttempt,
  settleRemoved,
} from '../../src/jobs/charge-outcome.ts';
import { foldJob } from '../../src/ledger/fold.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import type { Allowance } from '../../src/payment/reserve.ts';

const at = '2026-11-20T12:00:00.000Z';
const error = { code: 'server_error', message: 'no' };
const owner = { pid: 7, start: '1', host: 'here' };
const [deadOwner, liveOwner] = [
  { ...owner, pid: 8 },
  { ...owner, pid: 9 },
];
const prepared: JobEvent = { type: 'prepared', protocol: 'c', base_url: '', fingerprint: 'f', account: '' };
const sending = (attempt: number, reservation?: string): JobEvent => ({
  type: 'sending',
  attempt,
  owner,
  ...(reservation && { reservation }),
});
const ended = (type: 'unavailable' | 'rejected' | 'unknown', attempt: number): JobEvent => ({
  type,
  attempt,
  error,
});
const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };

interface World {
  events?: (JobEvent | undefined)[];
  /** Whether the process that owns the reservation is alive. */
  life?: Life;
  /** Who claimed the next attempt: the reservation's process (`own`), another process, or, if `damaged`, unknown. */
  claim?: 'own' | 'dead' | 'alive' | 'damaged';
  isConfirmed?: boolean;
  /** The events that the second read of the record returns. */
  later?: (JobEvent | undefined)[];
}

const claims = {
  own: JSON.stringify(owner),
  dead: JSON.stringify(deadOwner),
  alive: JSON.stringify(liveOwner),
  damaged: 'nonsense',
};
const id = 'job_00000000000001';
const mine = `${id}.r`;
const reservation: Reservation = { id: mine, owner, amount: decimalOf(1), at };

function ledgerOf({ events, life = 'dead', claim, isConfirmed = false, later }: World, of = id): Ledger {
  let reads = 0;
  const recorded = (given: World['events']): (RecordedEvent | undefined)[] =>
    [prepared, ...(given ?? [])].map((event) => event && { ...event, at });
  const ledger: Partial<Ledger> = {
    lifeOf: ({ pid }) => Promise.resolve(pid === owner.pid ? life : pid === liveOwner.pid ? 'alive' : 'dead'),
    read: () => {
      reads += 1;
      const now = reads > 1 && later !== undefined ? later : events;
      return Promise.resolve(now === undefined ? undefined : foldJob(of, recorded(now)));
    },
    events: () => Promise.resolve(recorded(events)),
    claimed: () => Promise.resolve(claim && claims[claim]),
    isConfirmed: () => Promise.resolve(isConfirmed),
  };
  return ledger as Ledger;
}

describe('the outcome of a reservation', () => {
  const adopted: JobEvent[] = [sending(1, mine), ended('unknown', 1), { ...accepted, adopted: true }];

  it.each<[string, World, ChargeOutcome]>([
    ['is open if its job has no record', {}, 'open'],
    [
      'is "none" if its record is damaged and the user then found no task',
      { events: [undefined, { type: 'resolved', attempt: 1, how: 'not-created' }] },
      'none',
    ],
    ['is open if the user adopted a task that the gateway has not returned yet', { events: adopted }, 'open'],
    [
      'is accepted if its attempt was accepted',
      { events: [sending(1, mine), accepted], life: 'alive' },
      'accepted',
    ],
    [
      'is "none" if another attempt was accepted',
      { events: [sending(1, 'other'), accepted], life: 'alive' },
      'none',
    ],
    [
      'is "none" if another attempt was accepted and a dead process has claimed the next attempt',
      { events: [sending(1, 'other'), accepted], life: 'alive', claim: 'dead' },
      'none',
    ],
    [
      'is open if another attempt was accepted and its process, which may be alive, has claimed the next attempt',
      { events: [sending(1, 'other'), accepted], life: 'unknown', claim: 'own' },
      'open',
    ],
    [
      'is accepted if the gateway has returned the task that the user adopted',
      { events: [...adopted, { type: 'observed', state: 'running', native_status: '' }] },
      'accepted',
    ],
    [
      'is "none" if the user corrected an adopted task to no task',
      { events: [...adopted, { type: 'resolved', attempt: 1, how: 'not-created', instead_of: 'task_1' }] },
      'none',
    ],
    ['is accepted if the event of its attempt is lost', { events: [undefined, accepted] }, 'accepted'],
    [
      'is accepted if the event of its attempt is lost and the user adopted its task',
      {
        events: [undefined, ended('unknown', 1), { type: 'resolved', how: 'adopted', attempt: 1 }, accepted],
      },
      'accepted',
    ],
    [
      'is "none" if an attempt without a reservation is in doubt',
      { events: [sending(1), ended('unknown', 1)] },
      'none',
    ],
    [
      'is open if the event of an attempt in doubt is lost',
      { events: [sending(1), ended('unknown', 1), ended('unknown', 2)] },
      'open',
    ],
    [
      'is "none" if its attempt was temporarily refused and its process is dead',
      { events: [sending(1, mine), ended('unavailable', 1)] },
      'none',
    ],
    ['is open while its attempt is open', { events: [sending(1, mine)] }, 'open'],
    ['is open if its attempt is unknown', { events: [sending(1, mine), ended('unknown', 1)] }, 'open'],
    [
      'is open if the user sent the job again',
      { events: [sending(1, mine), ended('unknown', 1), { type: 'resolved', how: 'resubmit' }] },
      'open',
    ],
    [
      'is "none" if its attempt was refused and its process is dead',
      { events: [sending(1, mine), ended('rejected', 1)] },
      'none',
    ],
    [
      'is open if its process may try again',
      { events: [sending(1, mine), ended('unavailable', 1)], life: 'alive' },
      'open',
    ],
    ['is open if its process may be alive', { events: [], life: 'unknown' }, 'open'],
    ['is "none" if nothing was sent under the reservation', { events: [] }, 'none'],
    ['is "none" if another attempt of the job is open', { events: [sending(1, 'other')] }, 'none'],
    [
      'is open if a lost event may have recorded an attempt under the reservation',
      { events: [undefined] },
      'open',
    ],
    ['is "none" if its process died after it claimed the attempt', { events: [], claim: 'own' }, 'none'],
    [
      'is open if the claimed attempt may have begun',
      { events: [], claim: 'own', isConfirmed: true },
      'open',
    ],
    ['is open if the claim is damaged', { events: [], claim: 'damaged' }, 'open'],
    ['is open if a live process has claimed the attempt', { events: [], claim: 'alive' }, 'open'],
    ['is open if the job has changed', { events: [], claim: 'own', later: [accepted] }, 'open'],
  ])('%s', async (_, world, outcome) => {
    expect(await chargeOutcome(ledgerOf(world), reservation)).toBe(outcome);
  });

  it("is certain if the caller has claimed the job's next attempt", async () => {
    const ledger = ledgerOf({ events: [], life: 'alive' });
    expect([
      await chargeOutcome(ledger, reservation),
      await chargeOutcome(ledger, reservation, true),
    ]).toEqual(['open', 'none']);
  });

  it('is "accepted" for a removed job, unless nothing was paid, and does not change for other jobs', async () => {
    const settledBy = async (world: World, jobId = id): Promise<ChargeOutcome | Decimal | undefined> => {
      let settled: ChargeOutcome | Decimal | undefined;
      const settle = async (outcomeOf?: OutcomeOf): Promise<void> => {
        settled = await outcomeOf?.(reservation);
      };
      await settleRemoved(ledgerOf(world), [{ settle } as Partial<Budget> as Budget], jobId, false);
      return settled;
    };
    expect(await settledBy({})).toBe('accepted');
    expect(await settledBy({ events: [undefined] })).toBe('accepted');
    expect(await settledBy({ events: [] })).toBe('none');
    expect(await settledBy({ events: [] }, 'job_other')).toBe('open');
  });

  it("belongs to the job whose id precedes the dot in the reservation's id", () => {
    expect([jobOfReservation('job_1.ab.c'), jobOfReservation('job_1')]).toEqual(['job_1', 'job_1']);
  });
});

describe('the usage of speech', () => {
  const cost = { at_most: '1', per_10k_characters: '1000' };
  const spoken: JobEvent = { type: 'sending', attempt: 1, owner, reservation: mine, cost };
  const finished = (words: number): JobEvent => ({
    ...{ type: 'finished', state: 'succeeded', native_status: '' },
    usage: { text_words: words },
  });

  it.each<[string, JobEvent[], string]>([
    ['only if the gateway reported it', [spoken, accepted], 'accepted'],
    ['only if it differs from the reserved amount', [spoken, accepted, finished(10)], 'accepted'],
    ['if it is higher than the reserved amount', [spoken, accepted, finished(25)], '2.5'],
    ['if it is lower than the reserved amount', [spoken, accepted, finished(5)], '0.5'],
  ])('determines the final amount of an open reservation %s', async (_, events, expected) => {
    const outcome = await chargeOutcome(ledgerOf({ events }), reservation);
    expect(typeof outcome === 'object' ? formatDecimal(outcome) : outcome).toBe(expected);
  });

  /**
   * Returns the calls to the budgets, and the notes to the user, after a job with these events has used 25 characters.
   */
  const callsAfter = async (
    events: JobEvent[],
    { broken = '', budgets = 2, isUsageKnown = true } = {},
  ): Promise<string[]> => {
    const calls: string[] = [];
    const fails = (): Promise<never> => Promise.reject(new Error('EIO'));
    const ledger = ledgerOf({ events });
    const keep: Budget['keep'] = (reserved, amount) => {
      calls.push(`${reserved} ${amount && formatDecimal(amount)}`);
      return broken === 'budget' ? fails() : Promise.resolve();
    };
    const own = { name: 'b', label: 'b', budget: { keep } as Partial<Budget> as Budget };
    const note = (text: string): void => void calls.push(text);
    const usage = isUsageKnown ? { text_words: 25 } : undefined;
    const job = { ...((await ledger.read(id)) as Job), usage };
    if (broken === 'ledger') ledger.events = fails;
    const allowances = (): Promise<Allowance[]> => Promise.resolve(Array<Allowance>(budgets).fill(own));
    await chargeUsage(job, { ledger, allowances, note });
    return calls;
  };

  it.each<[string, JobEvent[]]>([
    ['an accepted attempt', [spoken, accepted]],
    ['an attempt whose acceptance could not be recorded', [spoken]],
    [
      'the accepted attempt, and not of a refused one,',
      [{ ...spoken, reservation: 'other' }, ended('rejected', 1), { ...spoken, attempt: 2 }, accepted],
    ],
  ])('replaces the reserved amount of %s in every budget', async (_, events) => {
    expect(await callsAfter(events)).toEqual([`${mine} 2.5`, `${mine} 2.5`]);
  });

  it('changes no budget if nothing was reserved, or if the usage is unknown', async () => {
    expect(await callsAfter([sending(1), accepted])).toEqual([]);
    expect(await callsAfter([spoken, accepted], { isUsageKnown: false })).toEqual([]);
  });

  it('makes mgw print a note if the final amount cannot be determined or recorded, unless there is no budget', async () => {
    const events = [spoken, accepted];
    const text = `The final cost of ${id} could not be recorded in its budgets: EIO`;
    expect(await callsAfter(events, { broken: 'budget' })).toEqual([
      `${mine} 2.5`,
      text,
      `${mine} 2.5`,
      text,
    ]);
    expect(await callsAfter(events, { broken: 'ledger' })).toEqual([text]);
    expect(await callsAfter(events, { broken: 'ledger', budgets: 0 })).toEqual([]);
  });
});

describe("the state of a job's next attempt", () => {
  const next = async (world: World): Promise<string> => {
    const ledger = ledgerOf(world);
    return nextAttempt(ledger, (await ledger.read(id)) as Job);
  };
  const events: JobEvent[] = [];

  it.each<[string, World]>([
    ['free', { events }],
    ['claimed', { events, claim: 'own', life: 'alive' }],
    ['unsent', { events, claim: 'own' }],
    ['unknown', { events, claim: 'own', isConfirmed: true }],
    ['unknown', { events, claim: 'own', life: 'unknown' }],
    ['unknown', { events, claim: 'damaged' }],
    ['unknown', { events: [undefined], claim: 'own' }],
    ['changed', { events, claim: 'own', later: [sending(1)] }],
    ['changed', { events, claim: 'own', later: [accepted] }],
  ])('depends on the events and the claim: "%s"', async (expected, world) => {
    expect(await next(world)).toBe(expected);
  });

  it('is "changed" if the job was removed', async () => {
    const ledger = ledgerOf({ events, claim: 'own' });
    const job = (await ledger.read(id)) as Job;
    expect(await nextAttempt({ ...ledger, read: () => Promise.resolve(undefined) }, job)).toBe('changed');
  });

  it('is "unsent" if this process abandoned the claim, even though the process is alive', async () => {
    const other = 'job_00000000000002';
    const ledger = ledgerOf({ events, claim: 'own', life: 'alive' }, other);
    const job = (await ledger.read(other)) as Job;
    expect(attemptClaim(job)).toBe(`send.${other}.1`);
    abandonClaim(`send.${other}.1`);
    expect(await nextAttempt(ledger, job)).toBe('unsent');
  });
});
