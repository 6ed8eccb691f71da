import { describe, expect, it } from 'vitest';
import { describePostgres } from '../ledger/postgres/place.ts';
import { newUser, type CliResult, type User } from '../support/cli.ts';
import { runHereAs } from '../support/one-process.ts';
import { httpServer, sendJson } from '../support/servers.ts';
import { budgetOf, isLinearizable, keyed, type BudgetInput, type Operation } from './linear.ts';

const slowly = 240_000;
const limit = 2;

/**
 * Starts a gateway that accepts everything. Returns a user, and `timed`, which runs a command and records the times of
 * its start and its end. On plain files, each command runs in a real process. In a database, a connection is enough.
 */
async function world(state?: string): Promise<{ user: User; timed: typeof timed }> {
  let count = 0;
  const server = await httpServer(({ method }, response) => {
    if (method === 'POST') count += 1;
    sendJson(response, { id: `task_${count}`, status: 'queued' });
  });
  const user = newUser(server.url, state === undefined ? {} : { MGW_STATE: state });
  const timed = async <Input, Output>(
    input: Input,
    args: string[],
    outputOf: (result: CliResult) => Output,
  ): Promise<Operation<Input, Output>> => {
    const startedAt = performance.now();
    const all = [...args, '--json'];
    const result = await (state === undefined ? user.run(all) : runHereAs(user, all));
    return { startedAt, endedAt: performance.now(), input, output: outputOf(result) };
  };
  return { user, timed };
}

const submit = (key: string, ...more: string[]): string[] => [
  ...['video', 'c', 'submit', `a ${key}`, '-m', 'vendor-h3', '--no-check', '--key', key, ...more],
];

function histories(stateOf: () => Promise<string | undefined>): void {
  it(
    'a budget grants exactly the amounts that fit, even to concurrent processes',
    { timeout: slowly },
    async () => {
      const { user, timed } = await world(await stateOf());
      await runHereAs(user, ['config', 'set', 'prices.c.vendor-h3', 'video=1']);
      await runHereAs(user, ['budget', 'set', 'little', String(limit)]);
      const reserve = (key: string): Promise<Operation<BudgetInput, boolean | number>> =>
        timed({ reserve: 1 }, submit(key, '--budget-name', 'little'), ({ code }) => {
          expect([0, 12]).toContain(code);
          return code === 0;
        });
      const look = (): Promise<Operation<BudgetInput, boolean | number>> =>
        timed('read', ['budget', 'ls'], ({ json }) => {
          const [{ spent, reserved }] = json['budgets'] as [{ spent: string; reserved: string }];
          return Number(spent) + Number(reserved);
        });
      const history = await Promise.all([...['a', 'b', 'c'].map(reserve), look()]);
      history.push(await look());
      expect(isLinearizable(history, 0, budgetOf(limit)), JSON.stringify(history)).toBe(true);
    },
  );

  it('a key belongs to one job until that job is removed', { timeout: slowly }, async () => {
    const { timed } = await world(await stateOf());
    const send = (): Promise<Operation<'submit' | 'remove', string>> =>
      timed('submit', submit('boat'), ({ code, json }) => {
        expect(code, JSON.stringify(json)).toBe(0);
        return json.job.handle ?? '';
      });
    // A removal is refused while the job is in use, or if the job does not exist.
    const remove = (handle: string): Promise<Operation<'submit' | 'remove', string>> =>
      timed('remove', ['jobs', 'rm', '@boat', '--force'], ({ code }) => (code === 0 ? handle : ''));
    const first = await Promise.all([send(), send()]);
    const second = await Promise.all([remove(first[0].output), send()]);
    const history = [...first, ...second, await send()];
    expect(isLinearizable(history, '', keyed), JSON.stringify(history)).toBe(true);
  });
}

describe('on plain files,', () => histories(() => Promise.resolve(undefined)));

describePostgres('on PostgreSQL,', (newPlace) =>
  histories(async () => {
    const place = await newPlace();
    await place.open();
    return `${place.server.url(place.database)}?connect_timeout=8`;
  }),
);
