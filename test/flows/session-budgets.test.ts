import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { budgetPath } from '../../src/budget/file-budget.ts';
import { decimalOf, formatDecimal, zero } from '../../src/decimal.ts';
import {
  budgetsWithReservations,
  configuredAllowance,
  configuredBudgets,
  withBudget,
} from '../../src/flows/budgets.ts';
import { remaindersFor } from '../../src/cli/commands/batch/plan.ts';
import { sessionOfCall } from '../../src/flows/session.ts';
import { deadOwner } from '../jobs/harness.ts';
import { describePostgres } from '../ledger/postgres/place.ts';
import { freshFolder } from '../support/servers.ts';
import { flowDeps, jobWith, sessionIn } from './flow-deps.ts';

const owner = deadOwner();
const limit = { amount: decimalOf(5) };

describe("the budgets with a job's open reservations", () => {
  it('are opened once each, except a damaged one', async () => {
    const state = freshFolder();
    const session = sessionIn(state);
    const opened: string[] = [];
    const counting = {
      ...session,
      budget: (...[kind, name]: Parameters<typeof session.budget>) => {
        opened.push(`${kind} ${name}`);
        return session.budget(kind, name);
      },
    };
    const reserve = async (
      kind: 'standing' | 'command' | 'batch',
      name: string,
      id: string,
    ): Promise<void> => {
      const budget = await session.budget(kind, name);
      await budget.setLimit(limit);
      await budget.reserve({ id, amount: decimalOf(1), owner });
    };
    await reserve('standing', 'clips', 'job_1.a');
    await reserve('standing', 'clips', 'job_1.b');
    await reserve('command', 'clips', 'job_1.c');
    await reserve('batch', 'films', 'job_2.a');
    await reserve('batch', 'kept', 'job_1.d');
    await (await session.budget('batch', 'kept')).keep('job_1.d');
    writeFileSync(budgetPath(state, 'batch', 'broken'), '{"v":1}"}\n');
    const budgetsOf = await budgetsWithReservations(counting);
    expect(opened).toEqual([]);
    expect(await budgetsOf('job_1')).toHaveLength(2);
    expect(await budgetsOf('job_1')).toHaveLength(2);
    expect(await budgetsOf('job_3')).toEqual([]);
    expect(opened).toEqual(['standing clips', 'command clips']);
    expect(await budgetsOf('job_2')).toHaveLength(1);
    const unreadable = budgetPath(state, 'batch', 'folder');
    mkdirSync(unreadable);
    await expect((await budgetsWithReservations(session))('job_1')).rejects.toMatchObject({ code: 'EISDIR' });
  });
});

it("a session's budget releases a dead process's reservation for a job that was never sent", async () => {
  const session = sessionIn(freshFolder());
  const { id } = await jobWith(await session.ledger(), 'c');
  const budget = await session.budget('command', 'clips');
  await budget.reserve({ id: `${id}.a`, amount: decimalOf(1), owner }, limit);
  await budget.settle();
  expect((await budget.state()).reserved).toEqual(zero);
});

describe('the standing budget', () => {
  it('must have a limit, whether --budget-name or the profile selects the budget', async () => {
    const session = sessionIn(freshFolder(), {});
    const settings = await session.settings();
    const chosen = (source: 'flag' | 'profile', sandbox = false): typeof session => ({
      ...session,
      settings: () =>
        Promise.resolve({
          ...settings,
          budget: { value: 'clips', source },
          sandbox: { ...settings.sandbox, value: sandbox },
        }),
    });
    expect(await configuredAllowance(session)).toEqual([]);
    const missing = { code: 'usage', next: ['mgw', 'budget', 'set', 'clips', 'AMOUNT'] };
    await expect(configuredAllowance(chosen('flag'))).rejects.toMatchObject(missing);
    await expect(configuredAllowance(chosen('profile'))).rejects.toMatchObject(missing);
    await expect(configuredAllowance(chosen('flag', true))).rejects.toMatchObject(missing);
    expect(await configuredAllowance(chosen('profile', true))).toEqual([]);
    expect(await configuredBudgets(session)).toEqual([]);
    await (await session.budget('standing', 'clips')).setLimit(limit);
    expect(await configuredAllowance(chosen('flag'))).toMatchObject([
      { name: 'clips', label: 'the budget clips', raiseCommand: ['mgw', 'budget', 'set', 'clips'] },
    ]);
  });
});

describe('the remaining budget of a batch', () => {
  const remainders = async (
    amount: string | undefined,
    name: string | undefined,
    prepare: (session: ReturnType<typeof sessionIn>) => Promise<void> = () => Promise.resolve(),
  ): Promise<[string[], string]> => {
    const state = freshFolder();
    const session = sessionIn(state);
    const settings = await session.settings();
    await prepare(session);
    const chosen = { ...settings, budget: { value: name, source: 'flag' as const } };
    const found = await remaindersFor(
      { ...session, settings: () => Promise.resolve(chosen) },
      'films',
      amount,
    );
    const shown = found.map(
      ({ label, remaining, limit: of }) => `${label}: ${formatDecimal(remaining)} of ${formatDecimal(of)}`,
    );
    return [shown, state];
  };

  it('depends on the batch budget and the standing budget, and reading the amount creates neither', async () => {
    const [none, state] = await remainders('3', 'clips');
    expect(none).toEqual(['the budget of the batch films: 3 of 3']);
    expect(existsSync(dirname(budgetPath(state, 'batch', 'films')))).toBe(false);
    const [unnamed] = await remainders(undefined, undefined, async (session) => {
      await (await session.budget('standing', 'undefined')).setLimit(limit);
    });
    expect(unnamed).toEqual([]);
    const [used] = await remainders('3', 'clips', async (session) => {
      for (const [kind, name] of [
        ['standing', 'clips'],
        ['batch', 'films'],
      ] as const) {
        const budget = await session.budget(kind, name);
        await budget.setLimit(limit);
        for (const id of ['a', 'b']) await budget.reserve({ id, amount: decimalOf(2), owner });
        await budget.keep('a');
      }
    });
    expect(used).toEqual(['the budget clips: 1 of 5', 'the budget of the batch films: 0 of 3']);
  });
});

it('a command or batch is charged to both its own budget and the standing budget', async () => {
  const session = sessionIn(freshFolder());
  const standing = [
    { name: 'clips', label: 'the budget clips', budget: await session.budget('standing', 'clips') },
  ];
  const deps = await flowDeps(freshFolder(), {
    allowances: () => Promise.resolve(standing),
    openBudget: (kind, name) => session.budget(kind, name),
  });
  expect(await (await withBudget(deps, 'command', 'f', undefined)).allowances()).toBe(standing);
  expect(await (await withBudget(deps, 'command', 'f', '1.5')).allowances()).toMatchObject([
    { name: 'clips' },
    { name: '--budget', label: 'the budget of this command', limit: { amount: { digits: 15n } } },
  ]);
  expect(await (await withBudget(deps, 'batch', 'films', '2')).allowances()).toMatchObject([
    { name: 'clips' },
    { name: 'batch films', label: 'the budget of the batch films' },
  ]);
});

it('a session with a deadline passes the deadline to its client', async () => {
  const deadline = { remainingMs: () => 7 };
  const session = sessionIn(freshFolder());
  const within = sessionOfCall(session, deadline, session.signals());
  expect(await within.deadline()).toBe(deadline);
  expect((await within.client()).deadline).toBe(deadline);
});

describePostgres('the database of a session', (newPlace) => {
  it("a session provides its budgets, their remaining amounts, and a job's reservations, and closes its database even if it used no job", async () => {
    const place = await newPlace();
    await place.open();
    const [session, unused] = [1, 2].map(() =>
      sessionIn(freshFolder(), { MGW_STATE: place.server.url(place.database) }),
    );
    if (session === undefined || unused === undefined) expect.unreachable();
    const ledger = await session.ledger();
    const budget = await session.budget('standing', 'clips');
    await budget.setLimit(limit);
    await budget.reserve({ id: 'job_1.a', amount: decimalOf(2), owner: (await ledger.lease()).owner });
    expect(await configuredBudgets(session)).toEqual(['clips']);
    const budgetsOf = await budgetsWithReservations(session);
    expect([await budgetsOf('job_1'), await budgetsOf('job_2')]).toEqual([[budget], []]);
    const named = { value: 'clips', source: 'flag' as const };
    const settings = { ...(await session.settings()), budget: named };
    const own = { ...session, settings: () => Promise.resolve(settings) };
    expect(await remaindersFor(own, 'films', undefined)).toEqual([
      { label: 'the budget clips', limit: limit.amount, remaining: decimalOf(3) },
    ]);
    const database = await unused.database();
    expect(await database?.query('SELECT 1 AS one')).toEqual([{ one: 1 }]);
    await unused.closeLedger();
    await expect(database?.query('SELECT')).rejects.toMatchObject({ retry: 'safe' });
  });
});
