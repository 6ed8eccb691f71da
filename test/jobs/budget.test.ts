import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Budget, Limit, BudgetState } from '../../src/budget/budget.ts';
import { deadlineIn } from '../../src/clock.ts';
import { openBudget } from '../../src/budget/file-budget.ts';
import { formatDecimal, parseAmount } from '../../src/decimal.ts';
import type { JobEvent, Owner } from '../../src/job.ts';
import { chargeOutcome, nextAttempt } from '../../src/jobs/charge-outcome.ts';
import type { JobDeps } from '../../src/jobs/order.ts';
import { removeJob } from '../../src/jobs/remove.ts';
import { resolveJob } from '../../src/flows/resolve.ts';
import { newJobId } from '../../src/ledger/names.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder, httpServer, says, type HttpServer } from '../support/servers.ts';
import { deadOwner, depsFor, jobsOf, orderOf, run, type Ran } from './harness.ts';

const limit: Limit = { amount: parseAmount('1') };

async function budgetIn(state: string, ledger: Ledger): Promise<Budget> {
  const budget = await openBudget(join(state, 'budget.jsonl'), {
    now: () => Date.now(),
    outcomeOf: (reservation) => chargeOutcome(ledger, reservation),
  });
  onEnd(() => budget.close());
  return budget;
}

/** Returns the dependencies of a process that pays 0.4 per job under a budget of 1. */
async function payer(
  url: string,
  state: string,
  { cost = '0.4', owner }: { cost?: string; owner?: Owner } = {},
): Promise<{ deps: JobDeps; budget: Budget }> {
  const bare = await depsFor(url, state, { retries: 0, owner });
  const budget = await budgetIn(state, bare.ledger);
  const deps: JobDeps = {
    ...bare,
    priceOf: () => Promise.resolve({ subject: 'a boat', ...(cost !== '' && { cost: { at_most: cost } }) }),
    allowances: () => Promise.resolve([{ name: 'clips', label: 'the budget clips', budget, limit }]),
  };
  return { deps, budget };
}

let boats = 0;

/** Submits a video with a new prompt under the budget. */
function buy(deps: JobDeps): Promise<Ran> {
  return run(deps, orderOf({ body: { model: 'vendor-h3', prompt: `boat ${(boats += 1)}` } }));
}

function shown({ spent, reserved }: BudgetState): { spent: string; reserved: string } {
  return { spent: formatDecimal(spent), reserved: formatDecimal(reserved) };
}

async function settled(budget: Budget): Promise<{ spent: string; reserved: string }> {
  await budget.settle();
  return shown(await budget.state());
}

const creates = (server: HttpServer): void => {
  server.create();
};

describe('a payment under a budget', () => {
  it('is counted as spent if it is accepted, and is refused with exit 12 if it exceeds the budget', async () => {
    const server = await httpServer();
    const { deps, budget } = await payer(server.url, freshFolder());
    expect([(await buy(deps)).exit, (await buy(deps)).exit]).toEqual([0, 0]);
    const refused = await buy(deps);
    expect(refused).toMatchObject({
      exit: 12,
      job: undefined,
      error: {
        code: 'budget',
        charged: 'no',
        retry: 'safe',
        budget: {
          name: 'clips',
          limit: '1',
          spent: '0.8',
          left: '0.2',
          cost_at_most: '0.4',
          exceeded_by: '0.2',
        },
      },
    });
    expect(refused.error?.message).toMatch(
      /--budget 1 is too low: this may cost up to 0\.4 credits, and 0\.2 is left/,
    );
    expect(await deps.ledger.listed()).toHaveLength(2);
    expect(server.created).toBe(2);
    expect(await settled(budget)).toEqual({ spent: '0.8', reserved: '0' });
  });

  it('records its cost and its reservations before the first byte', async () => {
    let seen: Promise<unknown> | undefined;
    const server = await httpServer((_, response) => {
      seen = jobsOf(deps.ledger).then(([job]) => deps.ledger.events(job?.id ?? ''));
      void seen.then(() => says({ error: { message: 'no' } }, 422)(_, response));
    });
    const { deps } = await payer(server.url, freshFolder());
    const { job } = await buy(deps);
    expect(await seen).toContainEqual(
      expect.objectContaining({
        type: 'sending',
        cost: { at_most: '0.4' },
        reservation: expect.stringMatching(`^${job?.id ?? ''}\\.`) as string,
        budgets: ['clips'],
      }),
    );
  });

  it.each([
    ['allowed', '0.4', 0],
    ['refused', '2', 12],
  ])(
    'is refused without ending the job if a concurrent run pays for the same job (that payment is %s)',
    async (_, cost, exit) => {
      const [server, state] = [await httpServer(), freshFolder()];
      const first = await payer(server.url, state, { cost: '2', owner: currentOwner() });
      const second = await payer(server.url, state, { cost, owner: currentOwner() });
      const { ledger } = first.deps;
      let other: Promise<Ran> | undefined;
      const beginOther = (): Promise<void> =>
        new Promise((resolve) => {
          const append = second.deps.ledger.append.bind(second.deps.ledger);
          second.deps.ledger.append = (id, event) => append(id, event).finally(resolve);
          const deadline = deadlineIn(1000, second.deps.clock);
          other = run(second.deps, orderOf({ key: 'k', deadline }));
        });
      // The first run claims the next attempt, so no other process sends the job during the removal.
      const claim = ledger.claim.bind(ledger);
      ledger.claim = async (name, content) => {
        const holder = await claim(name, content);
        if (name.startsWith('send.')) await beginOther();
        return holder;
      };
      expect((await run(first.deps, orderOf({ key: 'k' }))).exit).toBe(12);
      expect((await other)?.exit).toBe(exit);
      expect(server.created).toBe(exit === 0 ? 1 : 0);
      expect(await jobsOf(ledger)).toHaveLength(server.created);
    },
  );

  it('does not remove a job that was sent earlier if the payment is refused', async () => {
    const [server, state] = [await httpServer(says({}, 429)), freshFolder()];
    await run((await payer(server.url, state)).deps, orderOf({ key: 'k' }));
    const { deps } = await payer(server.url, state, { cost: '2' });
    const refused = await run(deps, orderOf({ key: 'k' }));
    expect(refused).toMatchObject({ exit: 12, job: { state: 'prepared', record: { attempts: 1 } } });
    expect(await jobsOf(deps.ledger)).toHaveLength(1);
  });

  it.each([
    ['is refused', 422, 4],
    ['is temporarily refused', 429, 6],
  ])('releases its reservation if it %s', async (_, status, exit) => {
    const server = await httpServer(says({ error: { message: 'no' } }, status));
    const { deps, budget } = await payer(server.url, freshFolder());
    expect(await buy(deps)).toMatchObject({ exit });
    expect(shown(await budget.state())).toEqual({ spent: '0', reserved: '0' });
  });

  it('keeps its reservation after a lost response until the user resolves the job', async () => {
    const server = await httpServer((_, response) => {
      creates(server);
      response.destroy();
    });
    const { deps, budget } = await payer(server.url, freshFolder());
    const { exit, job } = await buy(deps);
    expect(exit).toBe(7);
    expect(await settled(budget)).toEqual({ spent: '0', reserved: '0.4' });
    if (job === undefined) throw new Error('no job');
    await resolveJob(deps.ledger, job, { how: 'not-created' });
    expect(await settled(budget)).toEqual({ spent: '0', reserved: '0' });
  });
});

describe('the removal of a job', () => {
  it.each<[string, JobEvent[], { spent: string; reserved: string }]>([
    ['was never sent', [], { spent: '0', reserved: '0' }],
    [
      'is in doubt',
      [{ type: 'unknown', attempt: 1, error: { code: 'submit_unknown', message: '' } }],
      { spent: '0.4', reserved: '0' },
    ],
  ])("settles the job's reservation first if the job %s", async (_, events, standing) => {
    const { deps, budget } = await payer('http://127.0.0.1:1', freshFolder());
    const { job } = await run({ ...deps, allowances: () => Promise.resolve([]) });
    const jobId = job?.id ?? '';
    // The reservation's owner is on another host and cannot be checked, so only the ledger determines the outcome.
    const owner: Owner = { pid: 7, start: '1', host: 'afar' };
    const reservation = `${jobId}.afar`;
    await budget.reserve({ id: reservation, amount: parseAmount('0.4'), owner }, limit);
    if (events.length > 0)
      await deps.ledger.append(jobId, { type: 'sending', attempt: 1, owner: deadOwner(), reservation });
    for (const event of events) await deps.ledger.append(jobId, event);
    const other = `${newJobId(1)}.other`;
    await budget.reserve({ id: other, amount: parseAmount('0.1'), owner }, limit);
    const found = await deps.ledger.read(jobId);
    if (found === undefined) throw new Error('no job');
    expect(await removeJob(deps.ledger, found, true, () => Promise.resolve([budget]))).toBeUndefined();
    await budget.release(other);
    expect(shown(await budget.state())).toEqual(standing);
    expect(await deps.ledger.read(jobId)).toBeUndefined();
  });

  it("counts the job's reservation as spent if the removal is forced while another process may be about to send the job", async () => {
    const { deps, budget } = await payer('http://127.0.0.1:1', freshFolder());
    const { job } = await run({ ...deps, allowances: () => Promise.resolve([]) });
    if (job === undefined) throw new Error('no job');
    await deps.ledger.claim(`send.${job.id}.1`, JSON.stringify(currentOwner()));
    const amount = parseAmount('0.4');
    await budget.reserve({ id: `${job.id}.here`, amount, owner: currentOwner() }, limit);
    expect(await removeJob(deps.ledger, job, true, () => Promise.resolve([budget]))).toBeUndefined();
    expect(shown(await budget.state())).toEqual({ spent: '0.4', reserved: '0' });
  });
});

it('a job that could not be removed because a budget failed can still be sent', async () => {
  const server = await httpServer(says({}, 429));
  const deps = await depsFor(server.url, freshFolder(), { retries: 0, owner: currentOwner() });
  const { job } = await run(deps);
  if (job === undefined) throw new Error('no job');
  const failing = (): Promise<never> => Promise.reject(new Error('the budget cannot be read'));
  await expect(removeJob(deps.ledger, job, false, failing)).rejects.toThrow('the budget cannot be read');
  const unchangedJob = await deps.ledger.read(job.id);
  expect((await deps.ledger.events(job.id)).at(-1)?.type).toBe('unavailable');
  expect(unchangedJob && (await nextAttempt(deps.ledger, unchangedJob))).toBe('free');
  // On a full disk, no event can be recorded, so only this process knows that it sends nothing.
  const full = { ...deps.ledger, append: () => Promise.reject(new Error('the disk is full')) };
  await expect(removeJob(full, unchangedJob ?? job, false, failing)).rejects.toThrow(
    'the budget cannot be read',
  );
  expect(await nextAttempt(deps.ledger, unchangedJob ?? job)).toBe('unsent');
});

describe('the reservation of a dead or unreachable process', () => {
  it('is settled before the next payment, and does not block that payment', async () => {
    const server = await httpServer();
    const { deps, budget } = await payer(server.url, freshFolder());
    const { job } = await run({ ...deps, allowances: () => Promise.resolve([]) });
    await budget.reserve({ id: `${job?.id ?? ''}.dead`, amount: limit.amount, owner: deadOwner() }, limit);
    expect(await buy(deps)).toMatchObject({ exit: 0 });
  });
});
