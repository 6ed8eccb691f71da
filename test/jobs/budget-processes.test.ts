import { fork } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'rolldown';
import { beforeAll, expect, it } from 'vitest';
import { openBudget } from '../../src/budget/file-budget.ts';
import { formatDecimal, parseAmount } from '../../src/decimal.ts';
import { chargeOutcome } from '../../src/jobs/charge-outcome.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { httpServer, type HttpServer } from '../support/servers.ts';

/**
 * The source of a process that submits ten videos at a cost of 1 each, a few at a time, and reports
 * how each submission ended.
 */
const program = `
  import * as mgw from './mgw.mjs';
  const [, , url, state, name] = process.argv;
  const never = new AbortController().signal;
  const ledger = await mgw.openFileLedger(state, Date.now);
  const budget = await mgw.openBudget(state + '/budget.jsonl', {
    now: Date.now,
    outcomeOf: (reservation) => mgw.chargeOutcome(ledger, reservation),
  });
  const deps = {
    ledger,
    client: mgw.createClient({ baseUrl: new URL(url), key: 'a-key-of-tests', userAgent: 'test' }),
    clock: mgw.systemClock,
    lease: () => Promise.resolve({ owner: mgw.currentOwner(), assertLease: () => undefined }),
    userAgent: 'test',
    gateway: 'test',
    account: 'test',
    redact: (text) => text,
    note: () => undefined,
    signals: { soft: never, hard: never },
    retries: 0,
    priceOf: () => Promise.resolve({ what: 'a boat', cost: { at_most: '1' } }),
    allowances: () => Promise.resolve([{ name: 'clips', label: 'the budget clips', budget }]),
  };
  const buy = async (prompt) => {
    const body = { model: 'vendor-h3', prompt };
    const goal = { command: 'submit', ask: 'accept' };
    const order = {
      protocol: 'c', model: body.model, body, goal, fresh: false,
      exchange: mgw.c.submission(body),
      auth: mgw.c.auth,
      read: (reply) => mgw.c.readSubmission(reply, body),
      deadline: { remainingMs: () => Infinity },
    };
    const begin = (began) => mgw.createOrResume(order, deps, began);
    try {
      const { delivered } = await mgw.inRun(goal, deps, begin, (job, own) => mgw.submit(job, order, own));
      await delivered();
      return 0;
    } catch (error) {
      return error.exitCode ?? String(error.stack);
    }
  };
  let next = 0;
  const work = async () => {
    while (next < 10) process.send(await buy(name + ' ' + next++));
  };
  await Promise.all([work(), work(), work()]);
  process.disconnect();
`;

const modules = [
  'budget/file-budget',
  'clock',
  'http/client',
  'jobs/charge-outcome',
  'jobs/create-or-resume',
  'jobs/run',
  'jobs/submit',
  'ledger/file-ledger',
  'ledger/owner',
  'protocols/c/protocol',
];

let folder: string;

beforeAll(async () => {
  folder = freshFolder();
  const entry = join(folder, 'entry.ts');
  writeFileSync(entry, modules.map((name) => `export * from '${process.cwd()}/src/${name}.ts';`).join('\n'));
  await build({
    input: entry,
    platform: 'node',
    external: [/^node:/],
    output: { file: join(folder, 'mgw.mjs'), format: 'esm', codeSplitting: false },
    logLevel: 'silent',
  });
  writeFileSync(join(folder, 'program.mjs'), program);
});

interface Shop {
  server: HttpServer;
  state: string;
  /** Returns the spent and reserved amounts according to the ledger. */
  standing: () => Promise<{ spent: string; reserved: string }>;
}

async function shop(limit: string): Promise<Shop> {
  const [server, state] = [await httpServer(), join(freshFolder(), 'state')];
  const ledger = await openFileLedger(state, () => Date.now());
  const budget = await openBudget(join(state, 'budget.jsonl'), {
    now: () => Date.now(),
    outcomeOf: (reservation) => chargeOutcome(ledger, reservation),
  });
  onEnd(() => budget.close());
  await budget.setLimit({ amount: parseAmount(limit) });
  const standing = async (): Promise<{ spent: string; reserved: string }> => {
    await budget.settle();
    const { spent, reserved } = await budget.state();
    return { spent: formatDecimal(spent), reserved: formatDecimal(reserved) };
  };
  return { server, state, standing };
}

/**
 * Runs one process, and kills it with SIGKILL when `isEnough` returns true. `isEnough` is called for each request to
 * the gateway and each result.
 */
function buyer({ server, state }: Shop, name: string, isEnough = (): boolean => false): Promise<unknown[]> {
  const child = fork(join(folder, 'program.mjs'), [server.url, state, name]);
  const ends: unknown[] = [];
  child.on('message', (end) => {
    ends.push(end);
    if (isEnough()) child.kill('SIGKILL');
  });
  return new Promise((resolve) => child.once('close', () => resolve(ends)));
}

it('processes that are killed at any moment never exceed a budget, and can use it up', async () => {
  const own = await shop('24');
  const ends: unknown[] = [];
  let killed = 0;
  for (let round = 0; own.server.created < 24 && round < 4; round += 1) {
    const names = Array.from({ length: 3 }, (_, index) => `killed ${round} ${index}`);
    await Promise.all(
      names.map((name, index) => {
        let seen = 0;
        const last = 1 + ((index * 7 + round * 3) % 5);
        const isKilled = (): boolean => {
          const enough = (seen += 1) === last;
          if (enough) killed += 1;
          return enough;
        };
        return buyer(own, name, index === 2 ? undefined : isKilled).then((each) => ends.push(...each));
      }),
    );
    expect(own.server.created).toBeLessThanOrEqual(24);
  }
  ends.push(...(await buyer(own, 'the last one')));
  expect(killed).toBeGreaterThan(2);
  expect(own.server.created).toBeLessThanOrEqual(24);
  // Each submission is either accepted, or refused because of the budget.
  expect(ends.filter((end) => end !== 0 && end !== 12)).toEqual([]);
  // The price of each task is spent, or still reserved if its process died before the response arrived. Nothing else is
  // reserved.
  const { spent, reserved } = await own.standing();
  expect(Number(spent) + Number(reserved)).toBe(24);
  expect(Number(spent)).toBeLessThanOrEqual(own.server.created);
}, 120_000);
