import { describe, expect, it } from 'vitest';
import type { Budget, ChargeOutcome } from '../../src/budget/budget.ts';
import { MgwError } from '../../src/errors.ts';
import { bearer, type Reply, type SubmitVerdict } from '../../src/exchange.ts';
import type { CallOptions, GatewayClient } from '../../src/http/client.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import {
  payOnce,
  type Payment,
  type PaymentRecord,
  type PaymentResult,
  type PayDeps,
} from '../../src/payment/pay-once.ts';
import { deadOwner, fakeClock, type FakeClock } from '../jobs/harness.ts';

const failure = { code: 'server_error', message: 'busy' } as const;
const accepted: SubmitVerdict = { kind: 'accepted', handle: 'task_1' };
const unavailable: SubmitVerdict = { kind: 'unavailable', failure };
const unknown: SubmitVerdict = { kind: 'unknown', failure };
const rejected: SubmitVerdict = { kind: 'rejected', failure };
const replyOf = (more: Partial<Reply> = {}): Reply => ({
  ...{ status: 200, headers: {}, text: '', complete: true, ...more },
});

type Exchange = (options: Required<Pick<CallOptions, 'onConnected' | 'beforeFirstByte'>>) => Promise<Reply>;

/** Returns a call that receives a response. */
const answers =
  (reply = replyOf()): Exchange =>
  async ({ onConnected, beforeFirstByte }) => {
    await onConnected();
    beforeFirstByte();
    return reply;
  };
/** Returns a call that fails before it is connected. */
const fails =
  (error: Error): Exchange =>
  () =>
    Promise.reject(error);
const breaks =
  (error: Error): Exchange =>
  async ({ onConnected }) => {
    await onConnected();
    throw error;
  };
const unsent = (reason: TransportError['reason'] = 'unreachable'): TransportError =>
  new TransportError('unsent', reason, 'no route');

interface Scene {
  exchange?: Exchange[];
  verdicts?: SubmitVerdict[];
  deps?: Partial<PayDeps>;
  record?: PaymentRecord;
  send?: Payment['send'];
  remainingMs?: number;
  /** Whether the payment has a budget. */
  isBudgeted?: boolean;
}

interface Ran {
  result?: PaymentResult;
  error?: unknown;
  /** The recorded steps. */
  steps: string[];
  settled: ChargeOutcome | 'none at all';
  clock: FakeClock;
  notes: string[];
  leases: number;
}

async function pay(scene: Scene, soft = new AbortController(), hard = new AbortController()): Promise<Ran> {
  const [clock, notes, steps, owner] = [fakeClock(), [] as string[], [] as string[], deadOwner()];
  const ran: Ran = { steps, settled: 'none at all', clock, notes, leases: 0 };
  const { exchange = [answers()], verdicts = [accepted], isBudgeted = true } = scene;
  const budget: Partial<Budget> = {
    reserve: () => Promise.resolve({ fits: true }),
    keep: () => Promise.resolve(void (ran.settled = 'accepted')),
    release: () => Promise.resolve(void (ran.settled = 'none')),
  };
  const next = <T>(list: T[]): T => (list.length > 1 ? list.shift() : list[0]) as T;
  const client = {
    exchange: (_: unknown, options: CallOptions) => next(exchange)(options as Parameters<Exchange>[0]),
  } as unknown as GatewayClient;
  const payment: Payment = {
    exchange: { method: 'POST', path: '/', headers: {} },
    purchase: { name: 'job_1', subject: 'a boat', cost: { at_most: '1' } },
    auth: bearer,
    read: () => next(verdicts),
    send: scene.send,
    deadline: { remainingMs: () => scene.remainingMs ?? Infinity },
  };
  const record: PaymentRecord = scene.record ?? {
    sending: (money, sender) => {
      expect([money.cost, sender]).toEqual([{ at_most: '1' }, owner]);
      return Promise.resolve(void steps.push('sending'));
    },
    reply: ({ status }) => Promise.resolve(void steps.push(`reply ${status}`)),
    verdict: ({ kind }) => Promise.resolve(void steps.push(kind)),
  };
  const deps: PayDeps = {
    ...{ client, clock, note: (text) => void notes.push(text), retries: 2 },
    signals: { soft: soft.signal, hard: hard.signal },
    lease: () => {
      ran.leases += 1;
      return Promise.resolve({ owner, assertLease: () => undefined });
    },
    allowances: () =>
      Promise.resolve(isBudgeted ? [{ name: 'b', label: 'b', budget: budget as Budget }] : []),
    ...scene.deps,
  };
  try {
    ran.result = await payOnce(payment, record, deps);
  } catch (error) {
    ran.error = error;
  }
  return ran;
}

describe('a payment', () => {
  it.each<[string, SubmitVerdict, ChargeOutcome | 'none at all']>([
    ['accepted', accepted, 'accepted'],
    ['rejected', rejected, 'none'],
    ['in doubt', unknown, 'none at all'],
  ])('ends after one attempt if it is %s', async (_, verdict, settled) => {
    const ran = await pay({ verdicts: [verdict] });
    expect(ran.result).toEqual({ verdict, reply: replyOf(), tries: 1 });
    expect(ran.steps).toEqual(['sending', 'reply 200', verdict.kind]);
    expect([ran.settled, ran.leases, ran.clock.pauses]).toEqual([settled, 1, []]);
  });

  it('is retried up to the limit if it is temporarily refused', async () => {
    const twice = await pay({ verdicts: [unavailable, unavailable, accepted] });
    expect([twice.result?.tries, twice.settled, twice.clock.pauses.length]).toEqual([3, 'accepted', 2]);
    expect(twice.notes[0]).toMatch(/^busy; the gateway did not accept it; trying again in /);
    // The pauses are 0.5 s and 1 s, with 25% jitter.
    const [first = 0, second = 0] = twice.clock.pauses;
    expect(first).toBeLessThan(625);
    expect(second).toBeGreaterThanOrEqual(750);
    expect(second).toBeLessThan(1250);
    const ended = await pay({ verdicts: [unavailable] });
    expect(ended.result).toMatchObject({ verdict: unavailable, tries: 3 });
    expect(ended.settled).toBe('none');
    expect((await pay({ verdicts: [unavailable], deps: { retries: 0 } })).result?.tries).toBe(1);
  });

  it('waits as long as the gateway requests, unless the deadline comes first', async () => {
    const later: SubmitVerdict = { kind: 'unavailable', failure: { ...failure, retryAfterMs: 60_000 } };
    const ran = await pay({ verdicts: [later, accepted], remainingMs: 90_000 });
    expect(ran.clock.pauses[0]).toBeGreaterThanOrEqual(60_000);
    expect((await pay({ verdicts: [later, accepted], remainingMs: 60_000 })).result?.tries).toBe(2);
    const late = await pay({ verdicts: [later], remainingMs: 59_000 });
    expect(late.error).toMatchObject({
      exitCode: 6,
      code: 'server_error',
      message: expect.stringContaining('after the wait ends') as string,
    });
    expect([late.settled, late.steps]).toEqual(['none', ['sending', 'reply 200', 'unavailable']]);
  });

  it('is retried up to the limit if it could not be sent', async () => {
    const ran = await pay({ exchange: [fails(unsent()), answers()] });
    expect([ran.result?.tries, ran.steps]).toEqual([2, ['sending', 'reply 200', 'accepted']]);
    expect(ran.notes).toMatchObject([expect.stringContaining('no route; nothing was sent')]);
    const never = await pay({ exchange: [fails(unsent())] });
    expect(never.error).toMatchObject({ exitCode: 6, retry: 'safe', message: 'Nothing was sent: no route.' });
    expect([never.clock.pauses.length, never.settled, never.steps]).toEqual([2, 'none', []]);
  });

  it('is not in doubt if it was refused and then could not be sent again', async () => {
    const ran = await pay({ exchange: [answers(), fails(unsent())], verdicts: [unavailable] });
    expect(ran.error).toMatchObject({ exitCode: 6, message: 'Nothing was sent: no route.' });
    expect([ran.steps.at(-1), ran.settled]).toEqual(['unavailable', 'none']);
  });

  it.each([
    ['certificate', 6],
    ['private_address', 6],
    ['proxy', 2],
  ] as const)('is not retried after the connection error %s, and exits with %i', async (reason, exitCode) => {
    const ran = await pay({ exchange: [fails(unsent(reason))] });
    expect([ran.clock.pauses, ran.settled, (ran.error as MgwError).exitCode]).toEqual([[], 'none', exitCode]);
  });

  it.each<[string, Exchange, 'none at all' | 'none']>([
    ['breaks after it may have been sent', breaks(new Error('reset')), 'none at all'],
    ['receives no response in time', breaks(new TransportError('sent', 'timeout', 'reset')), 'none at all'],
    // Without a record, nothing can have been sent, so the amount is released.
    ['fails without a record', fails(new TransportError('sent', 'timeout', 'reset')), 'none'],
  ])(
    'is in doubt if it %s, and its amount is released only if nothing can have been sent',
    async (_, exchange, settled) => {
      const ran = await pay({ exchange: [exchange] });
      expect(ran.result).toMatchObject({
        ...{ verdict: { kind: 'unknown', failure: { code: 'submit_unknown', message: 'reset' } }, tries: 1 },
      });
      expect(ran.result?.reply).toBeUndefined();
      expect(ran.steps.at(-1)).toBe('unknown');
      expect(ran.settled).toBe(settled);
    },
  );

  it('is not sent if its process may be considered dead, until the ledger allows the next attempt', async () => {
    let isLost = true;
    const lease = (): ReturnType<PayDeps['lease']> =>
      Promise.resolve({
        owner: deadOwner(),
        assertLease: () => {
          if (isLost) throw new Error('suspended');
        },
      });
    const steps: string[] = [];
    const record: PaymentRecord = {
      verdict: ({ kind }) => {
        isLost = false;
        return Promise.resolve(void steps.push(kind));
      },
      sending: () => Promise.resolve(),
    };
    const ran = await pay({ record, deps: { lease } });
    expect([steps, ran.result?.tries, ran.settled]).toEqual([['unavailable', 'accepted'], 2, 'accepted']);
    expect(ran.notes).toMatchObject([expect.stringContaining('suspended; nothing was sent')]);
  });

  it.each<[string, PaymentRecord]>([
    ['with a record', { sending: () => Promise.resolve() }],
    ['without a record', {}],
  ])('is not sent if its process may have lost the reservation (%s)', async (_, record) => {
    const assertLease = (): never => {
      throw new Error('suspended');
    };
    const lease = (): ReturnType<PayDeps['lease']> => Promise.resolve({ owner: deadOwner(), assertLease });
    const ran = await pay({ record, deps: { lease, retries: 0 } });
    expect(ran.error).toMatchObject({ exitCode: 6, message: 'Nothing was sent: suspended.' });
    expect(ran.settled).toBe('none');
  });

  it('is not sent after the deadline, and does not connect if the deadline has already passed', async () => {
    const late = await pay({ remainingMs: 0, exchange: [fails(new Error('connected'))] });
    const unsentLate = { exitCode: 6, retry: 'safe', message: 'Nothing was sent: the deadline passed.' };
    expect(late.error).toMatchObject(unsentLate);
    expect([late.steps, late.settled]).toEqual([[], 'none']);
    const scene: Scene = {};
    const slow: Exchange = (options) => {
      scene.remainingMs = 0;
      return answers()(options);
    };
    const connecting = await pay(Object.assign(scene, { exchange: [slow] }));
    expect(connecting.error).toMatchObject(unsentLate);
    expect([connecting.steps, connecting.settled]).toEqual([['sending', 'unavailable'], 'none']);
  });

  it('is not sent if it cannot be recorded', async () => {
    const full = new MgwError('local_io', 'full');
    const ran = await pay({ record: { sending: () => Promise.reject(full) } });
    expect([ran.error, ran.settled]).toEqual([full, 'none']);
  });

  it('needs no lease if it has neither a record nor a budget', async () => {
    const ran = await pay({ record: {}, isBudgeted: false });
    expect([ran.result?.verdict, ran.leases]).toEqual([accepted, 0]);
    expect((await pay({ record: {} })).leases).toBe(1);
  });

  it('is sent by its own send function, rather than by the default call, if it has one', async () => {
    const send: Payment['send'] = async (_, request, options) => {
      await options.onConnected?.();
      return replyOf({ text: request.path });
    };
    const ran = await pay({ exchange: [fails(new Error('the default call'))], send });
    expect([ran.result?.reply?.text, ran.steps]).toEqual(['/', ['sending', 'reply 200', 'accepted']]);
  });

  it('is recorded before it is sent, even without a budget', async () => {
    const ran = await pay({ isBudgeted: false });
    expect([ran.steps, ran.leases]).toEqual([['sending', 'reply 200', 'accepted'], 1]);
  });
});

it('a rejection because of a limit is reported as an invalid request, because a rate-limit error would allow a retry', async () => {
  const limit = { code: 'rate_limited', message: 'too many tasks' } as const;
  const ran = await pay({ verdicts: [{ kind: 'rejected', failure: limit }] });
  expect(ran.result).toMatchObject({ verdict: { failure: { code: 'invalid_request' } }, tries: 1 });
});

describe('an ambiguous response to a payment', () => {
  const again = { retry5xx: true };

  it.each<[string, Partial<PayDeps>, Partial<Reply>, SubmitVerdict, SubmitVerdict['kind']]>([
    [
      'is treated as a temporary refusal with submit.retry_5xx',
      again,
      { status: 500 },
      unknown,
      'unavailable',
    ],
    ['leaves the outcome unknown without submit.retry_5xx', {}, { status: 500 }, unknown, 'unknown'],
    [
      'leaves the outcome unknown if it is not complete',
      again,
      { status: 500, complete: false },
      unknown,
      'unknown',
    ],
    ['leaves the outcome unknown if its status is below 500', again, { status: 499 }, unknown, 'unknown'],
    [
      'leaves the outcome unknown if it contains a handle',
      again,
      { status: 500 },
      { ...unknown, handle: 't' },
      'unknown',
    ],
    ['is a rejection if its body contains a rejection', again, { status: 500 }, rejected, 'rejected'],
  ])('%s', async (_, deps, reply, verdict, kind) => {
    const ran = await pay({
      exchange: [answers(replyOf(reply))],
      verdicts: [verdict],
      deps: { ...deps, retries: 0 },
    });
    expect([ran.result?.verdict.kind, ran.steps.at(-1)]).toEqual([kind, kind]);
  });
});

describe('an interruption of a payment', () => {
  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ])('by %s, before anything is sent, leads to exit %i', async (reason, exitCode) => {
    const soft = new AbortController();
    const connecting: Exchange = async ({ onConnected }) => {
      soft.abort(reason);
      await onConnected();
      return replyOf();
    };
    const ran = await pay({ exchange: [connecting] }, soft);
    expect(ran.error).toMatchObject({ exitCode, charged: 'no', retry: 'safe' });
    expect([ran.steps, ran.settled, ran.notes]).toEqual([[], 'none', []]);
  });

  it('prevents the request if it arrives while the attempt is being recorded, and the record shows that nothing was sent', async () => {
    const [soft, steps] = [new AbortController(), [] as string[]];
    const record: PaymentRecord = {
      sending: () => {
        soft.abort('SIGINT');
        return Promise.resolve();
      },
      verdict: ({ kind }) => Promise.resolve(void steps.push(kind)),
    };
    const ran = await pay({ record, deps: { retries: 0 } }, soft);
    expect(ran.error).toMatchObject({ exitCode: 130, charged: 'no', retry: 'safe' });
    expect([steps, ran.settled, ran.notes]).toEqual([['unavailable'], 'none', []]);
  });

  it('does not put the job in doubt if it stops the call between the record and the first byte', async () => {
    const soft = new AbortController();
    const stopped: Exchange = async ({ onConnected }) => {
      await onConnected();
      soft.abort('SIGTERM');
      throw unsent('aborted_before_send');
    };
    const ran = await pay({ exchange: [stopped] }, soft);
    expect(ran.error).toMatchObject({ exitCode: 143, charged: 'no' });
    expect([ran.steps, ran.settled]).toEqual([['sending', 'unavailable'], 'none']);
  });

  it('leaves no record if it arrives before the record is written', async () => {
    const ran = await pay({ exchange: [fails(unsent('aborted_before_send'))], deps: { retries: 0 } });
    expect([ran.steps, ran.settled]).toEqual([[], 'none']);
  });

  it('ends the payment without another attempt if it arrives during a pause', async () => {
    const soft = new AbortController();
    let connections = 0;
    const refused: Exchange = (options) => {
      connections += 1;
      return answers()(options);
    };
    const note = (): void => soft.abort('SIGINT');
    const ran = await pay({ exchange: [refused], verdicts: [unavailable], deps: { note } }, soft);
    expect(ran.error).toMatchObject({ exitCode: 130, charged: 'no' });
    expect([connections, ran.settled]).toEqual([1, 'none']);
  });

  it('causes one note if it arrives while the response is pending, unless it also ends the wait', async () => {
    const interrupting =
      (soft: AbortController): Exchange =>
      async (options) => {
        const reply = await answers()(options);
        soft.abort('SIGINT');
        return reply;
      };
    const soft = new AbortController();
    const ran = await pay({ exchange: [interrupting(soft)] }, soft);
    expect([ran.result?.verdict, ran.notes]).toMatchObject([
      accepted,
      [expect.stringContaining('Waiting for the response to job_1')],
    ]);
    const only = new AbortController();
    expect((await pay({ exchange: [interrupting(only)] }, only, only)).notes).toEqual([]);
    const after = new AbortController();
    const over = await pay({}, after);
    after.abort('SIGINT');
    expect(over.notes).toEqual([]);
  });
});
