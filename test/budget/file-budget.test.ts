import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { BudgetLog } from '../../src/budget/file-budget.ts';
import type {
  Budget,
  Charge,
  ChargeOutcome,
  Decision,
  OutcomeOf,
  Reservation,
} from '../../src/budget/budget.ts';
import { add, compare, type Decimal, decimalOf, formatDecimal, zero } from '../../src/decimal.ts';
import { FileBudget } from '../../src/budget/file-budget.ts';
import { encodeBudgetEvent } from '../../src/budget/reservations.ts';

/** A file in memory, shared by processes whose steps run in an order that the test chooses. */
class World {
  text = '';
  /** The length of the text that survives a power cut. */
  synced = 0;
  now = Date.parse('2026-11-22T10:00:00Z');
  readonly #waiting: { alive: Alive; go: () => void }[] = [];

  /** Waits for the process's next turn. A dead process never gets a turn. */
  step(alive: Alive): Promise<void> {
    return new Promise((go) => this.#waiting.push({ alive, go }));
  }

  /** Performs one step. Returns false if no step is left. */
  async turn(chosen: number): Promise<boolean> {
    await new Promise((resolve) => setImmediate(resolve));
    const ready = this.#waiting.filter(({ alive }) => !alive.dead);
    const next = ready[chosen % ready.length];
    if (next === undefined) return false;
    this.#waiting.splice(this.#waiting.indexOf(next), 1);
    next.go();
    return true;
  }

  log(alive: Alive): BudgetLog {
    let offset = 0;
    return {
      append: async (text, sync) => {
        await this.step(alive);
        const torn = alive.dieInAppend;
        this.text += torn === undefined ? text : text.slice(0, torn % text.length);
        if (torn !== undefined) alive.dead = true;
        await this.step(alive);
        if (sync) this.synced = this.text.length;
      },
      read: async function* (this: World) {
        await this.step(alive);
        const read = this.text.slice(offset);
        offset = this.text.length;
        yield read;
      }.bind(this),
      close: () => Promise.resolve(),
    };
  }
}

interface Alive {
  dead: boolean;
  /** The number of characters of the next line that are written before the process dies. */
  dieInAppend?: number;
}

interface Job {
  id: string;
  amount: number;
  state: 'prepared' | 'sending' | 'accepted' | 'unknown';
  /** The gateway's response. */
  answer: 'accepts' | 'refuses' | 'loses';
}

/** A process's attempt at a job, as recorded in the ledger. */
interface Run {
  alive: Alive;
  ended: boolean;
  sent: 'no' | 'open' | 'accepted';
}

const text = formatDecimal;

function chargeOf(id: string, amount: number): Charge {
  return { id, amount: decimalOf(amount), owner: { pid: 7, start: '1', host: 'h' } };
}

/** Jobs, and a gateway that charges for them. */
class Shop {
  charged = 0;
  readonly #runs = new Map<string, Run>();

  constructor(
    readonly world: World,
    readonly jobs: Job[],
    readonly limit: number,
  ) {}

  budget(alive: Alive): Budget {
    const log = this.world.log(alive);
    const outcomeOf = ({ id }: Reservation): Promise<ChargeOutcome> => this.#outcomeOf(id, alive);
    return new FileBudget({ log, now: () => this.world.now, outcomeOf });
  }

  /** Runs a process that submits some jobs one after another and may die at any step. */
  async process(alive: Alive, mine: readonly Job[]): Promise<void> {
    const budget = this.budget(alive);
    for (const job of mine) if (job.state === 'prepared') await this.#submit(budget, job, alive);
  }

  async #submit(budget: Budget, job: Job, alive: Alive): Promise<void> {
    const run: Run = { alive, ended: false, sent: 'no' };
    const id = `${job.id}.${this.#runs.size}`;
    this.#runs.set(id, run);
    const charge = chargeOf(id, job.amount);
    const decision = await budget.reserve(charge, { amount: decimalOf(this.limit) });
    if (decision.fits) await this.#send(job, run);
    run.ended = true;
    await this.world.step(alive);
    if (run.sent === 'accepted') await budget.keep(id);
    else if (run.sent === 'no') await budget.release(id);
  }

  async #send(job: Job, run: Run): Promise<void> {
    await this.world.step(run.alive);
    // As in the ledger, only one of two runs can send a job.
    if (job.state !== 'prepared') return;
    job.state = 'sending';
    run.sent = 'open';
    await this.world.step(run.alive);
    if (job.answer !== 'refuses') this.charged += job.amount;
    expect(this.charged).toBeLessThanOrEqual(this.limit);
    await this.world.step(run.alive);
    job.state = job.answer === 'accepts' ? 'accepted' : job.answer === 'loses' ? 'unknown' : 'prepared';
    run.sent = job.answer === 'accepts' ? 'accepted' : job.answer === 'loses' ? 'open' : 'no';
  }

  async #outcomeOf(id: string, asking: Alive): Promise<ChargeOutcome> {
    const run = this.#runs.get(id);
    const isOver = run === undefined || run.ended || run.alive.dead;
    const outcome = run?.sent === 'no' && isOver ? 'none' : run?.sent === 'accepted' ? 'accepted' : 'open';
    // The state may change before the caller uses this outcome.
    await this.world.step(asking);
    return outcome;
  }
}

const job = fc.record({
  amount: fc.integer({ min: 1, max: 6 }),
  answer: fc.constantFrom<Job['answer'][]>('accepts', 'accepts', 'refuses', 'loses'),
});
const death = fc.option(fc.record({ turn: fc.nat(150), torn: fc.option(fc.nat(200), { nil: undefined }) }), {
  nil: undefined,
});

const scenario = fc.record({
  limit: fc.integer({ min: 1, max: 25 }),
  jobs: fc.array(job, { minLength: 1, maxLength: 8 }),
  /** Each process's jobs, and when the process dies. */
  processes: fc.array(fc.record({ takes: fc.array(fc.nat(7), { minLength: 1, maxLength: 6 }), death }), {
    minLength: 1,
    maxLength: 6,
  }),
  powerCut: fc.option(fc.record({ turn: fc.nat(150), keeps: fc.nat() }), { nil: undefined }),
  order: fc.infiniteStream(fc.nat(1000)),
});

type Scenario = typeof scenario extends fc.Arbitrary<infer T> ? T : never;

async function play({ limit, jobs, processes, powerCut, order }: Scenario): Promise<Shop> {
  const world = new World();
  const all = jobs.map((one, index): Job => ({
    ...one,
    id: `job${index}`,
    state: 'prepared',
  }));
  const shop = new Shop(world, all, limit);
  const alive = processes.map((): Alive => ({ dead: false }));
  const failures: unknown[] = [];
  const start = (one: Alive, mine: readonly Job[]): void => {
    shop.process(one, mine).catch((error: unknown) => failures.push(error));
  };
  processes.forEach(({ takes }, index) =>
    start(
      alive[index] ?? { dead: true },
      takes.map((at) => all[at % all.length]).filter((one) => one !== undefined),
    ),
  );
  const next = (): number => Number(order.next().value);
  for (let turn = 0; await world.turn(next()); turn += 1) {
    processes.forEach(({ death: at }, index) => {
      const one = alive[index];
      if (one === undefined || at?.turn !== turn) return;
      if (at.torn === undefined) one.dead = true;
      else one.dieInAppend = at.torn;
    });
    if (powerCut?.turn !== turn) continue;
    for (const one of alive) one.dead = true;
    const unsynced = world.text.length - world.synced;
    world.text = world.text.slice(0, world.synced + (powerCut.keeps % (unsynced + 1)));
  }
  // Start another process that submits all jobs again, as a user would.
  start({ dead: false }, all);
  while (await world.turn(next()));
  expect(failures).toEqual([]);
  return shop;
}

describe('a budget shared by processes', () => {
  it('is never exceeded, and contains exactly the amounts that were or may have been charged, regardless of how the processes interleave and when they die', async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async (one) => {
        const shop = await play(one);
        expect(shop.charged).toBeLessThanOrEqual(shop.limit);
        const alive = { dead: false };
        const budget = shop.budget(alive);
        const standing = budget.settle().then(() => budget.state());
        while (await shop.world.turn(0));
        const { spent, reserved } = await standing;
        const open = shop.jobs.filter(({ state }) => state === 'sending' || state === 'unknown');
        const kept = shop.jobs.filter(({ state }) => state === 'accepted');
        const sum = (jobs: Job[]): string => String(jobs.reduce((total, { amount }) => total + amount, 0));
        expect({ spent: text(spent), reserved: text(reserved) }).toEqual({
          spent: sum(kept),
          reserved: sum(open),
        });
      }),
      { numRuns: 120 },
    );
  });

  it('can be used to the last unit if no process dies', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.infiniteStream(fc.nat(1000)),
        fc.integer({ min: 1, max: 12 }),
        async (order, limit) => {
          const jobs = Array.from({ length: 12 }, () => ({ amount: 1, answer: 'accepts' as const }));
          const processes = [0, 1, 2].map((third) => ({
            takes: [0, 1, 2, 3].map((at) => 4 * third + at),
            death: undefined,
          }));
          const shop = await play({ limit, jobs, processes, powerCut: undefined, order });
          expect(shop.charged).toBe(limit);
        },
      ),
      { numRuns: 20 },
    );
  });
});

/** Returns a budget that no other process uses. `outcomes` contains the outcomes that the ledger proves, by id. */
function alone(
  text = '',
  outcomes: Record<string, ChargeOutcome | Decimal> = {},
): { budget: Budget; file: { text: string; now: number; ofOther: string; split: number } } {
  // `ofOther` is text that another process appends just after this one. Each read is split after `split` characters.
  const file = { text, now: Date.parse('2026-11-30T23:00:00Z'), ofOther: '', split: 0 };
  let offset = 0;
  const log: BudgetLog = {
    append: (more) => {
      file.text += more + file.ofOther;
      file.ofOther = '';
      return Promise.resolve();
    },
    // eslint-disable-next-line @typescript-eslint/require-await
    read: async function* () {
      const read = file.text.slice(offset);
      offset = file.text.length;
      yield read.slice(0, file.split);
      yield read.slice(file.split);
    },
    close: () => Promise.resolve(),
  };
  const outcomeOf: OutcomeOf = ({ id }) => Promise.resolve(outcomes[id] ?? 'open');
  return { budget: new FileBudget({ log, now: () => file.now, outcomeOf }), file };
}

const ask = (budget: Budget, id: string, amount: number): Promise<Decision> =>
  budget.reserve(chargeOf(id, amount));

describe('a budget', () => {
  it('grants nothing if it was never set', async () => {
    expect(await ask(alone().budget, 'a', 0)).toEqual({
      fits: false,
      state: { limit: undefined, spent: zero, reserved: zero },
    });
  });

  it('reports its spent and reserved amounts if it refuses an amount', async () => {
    const { budget } = alone();
    await budget.setLimit({ amount: decimalOf(10) });
    await ask(budget, 'a', 6);
    await ask(budget, 'b', 3);
    await budget.keep('a');
    const refused = await ask(budget, 'c', 2);
    expect(refused).toMatchObject({
      fits: false,
      state: { spent: { digits: 6n }, reserved: { digits: 3n } },
    });
    expect(await ask(budget, 'd', 1)).toEqual({ fits: true });
  });

  it.each(['day', 'month'] as const)('resets every %s at the start of the next one, in UTC', async (per) => {
    const { budget, file } = alone();
    await budget.setLimit({ amount: decimalOf(5), per });
    expect(await ask(budget, 'a', 5)).toEqual({ fits: true });
    await budget.keep('a');
    file.now = Date.parse('2026-11-30T23:59:59.999Z');
    expect(await ask(budget, 'b', 1)).toMatchObject({ fits: false });
    file.now += 1;
    expect(await ask(budget, 'c', 5)).toEqual({ fits: true });
    expect(await budget.state()).toMatchObject({ spent: zero, reserved: { digits: 5n } });
  });

  it('includes the amounts spent under a daily limit when the limit becomes monthly', async () => {
    const { budget, file } = alone();
    await budget.setLimit({ amount: decimalOf(5), per: 'day' });
    file.now = Date.parse('2026-11-29T12:00:00Z');
    await ask(budget, 'a', 4);
    file.now = Date.parse('2026-11-30T12:00:00Z');
    await budget.setLimit({ amount: decimalOf(5), per: 'month' });
    expect(await ask(budget, 'b', 2)).toMatchObject({ fits: false });
    expect(await ask(budget, 'c', 1)).toEqual({ fits: true });
  });

  it('checks the outcomes of earlier reservations before it refuses an amount', async () => {
    const outcomes: Record<string, ChargeOutcome> = {};
    const { budget } = alone('', outcomes);
    await budget.setLimit({ amount: decimalOf(5) });
    await ask(budget, 'dead', 2);
    await ask(budget, 'paid', 2);
    await ask(budget, 'unknown', 1);
    expect(await ask(budget, 'a', 2)).toMatchObject({ fits: false });
    Object.assign(outcomes, { dead: 'none', paid: 'accepted' });
    expect(await ask(budget, 'a', 3)).toMatchObject({ fits: false });
    expect(await ask(budget, 'a', 2)).toEqual({ fits: true });
    expect(await budget.state()).toMatchObject({ spent: { digits: 2n }, reserved: { digits: 3n } });
  });

  it("grants a dead process's amount to the first reservation that needs it", async () => {
    const { budget } = alone('', { dead: 'none' });
    await budget.setLimit({ amount: decimalOf(2) });
    await ask(budget, 'dead', 2);
    expect(await ask(budget, 'a', 2)).toEqual({ fits: true });
  });

  it('uses the final amounts that are known from the ledger', async () => {
    const { budget } = alone('', { a: decimalOf(5), b: decimalOf(1) });
    await budget.setLimit({ amount: decimalOf(8) });
    for (const id of ['a', 'b']) await ask(budget, id, 4);
    expect(await ask(budget, 'c', 3)).toMatchObject({ fits: false, state: { spent: { digits: 6n } } });
    expect(await ask(budget, 'c', 2)).toEqual({ fits: true });
  });

  // Each outcome requires a ledger read, and there may be thousands of reservations.
  it('does not look up an outcome while there is room', async () => {
    const { budget, file } = alone('', { dead: 'none' });
    await budget.setLimit({ amount: decimalOf(9) });
    for (const id of ['dead', 'a', 'b']) expect(await ask(budget, id, 2)).toEqual({ fits: true });
    expect(file.text).not.toContain('release');
  });

  it('is the same for every reader of its file, regardless of how the reads are split', async () => {
    const first = alone();
    await first.budget.setLimit({ amount: decimalOf(4) });
    await ask(first.budget, 'a', 3);
    const whole = first.file.text;
    for (let split = 1; split < whole.length; split += 1) {
      const { budget, file } = alone(whole);
      file.split = split;
      expect(text((await budget.state()).reserved), String(split)).toBe('3');
    }
    await ask(first.budget, 'b', 1);
    for (let length = whole.length; length < first.file.text.length - 1; length += 1) {
      const { budget } = alone(first.file.text.slice(0, length));
      const standing = await budget.state();
      expect(text(add(standing.spent, standing.reserved)), String(length)).toBe('3');
      expect(await ask(budget, 'c', 1)).toEqual({ fits: true });
    }
  });

  it('is not used if any bit of a line has changed', async () => {
    const { budget, file } = alone();
    await budget.setLimit({ amount: decimalOf(100) });
    await ask(budget, 'a', 3);
    const line = file.text.lastIndexOf('{');
    for (let at = line; at < file.text.lastIndexOf('"}'); at += 1) {
      const changed = String.fromCharCode(file.text.charCodeAt(at) ^ 1);
      const damaged = alone(file.text.slice(0, at) + changed + file.text.slice(at + 1)).budget;
      await expect(ask(damaged, 'b', 1), String(at)).rejects.toThrow('damaged');
      // The second call fails as well, although the budget has already read the line.
      await expect(ask(damaged, 'b', 1)).rejects.toThrow('damaged');
    }
  });

  it('grants a reservation even if another process settles the reservation before it is read back', async () => {
    const { budget, file } = alone();
    await budget.setLimit({ amount: decimalOf(2) });
    const at = new Date(file.now).toISOString();
    file.ofOther = `\n${encodeBudgetEvent({ type: 'keep', id: 'a' }, at)}\n`;
    expect(await ask(budget, 'a', 2)).toEqual({ fits: true });
    expect(await budget.state()).toMatchObject({ spent: { digits: 2n }, reserved: zero });
  });

  it('does not grant an amount that it cannot read back', async () => {
    const { budget } = alone();
    const deaf: BudgetLog = {
      append: () => Promise.resolve(),
      read: async function* () {},
      close: () => Promise.resolve(),
    };
    const lost = new FileBudget({ log: deaf, now: () => 0, outcomeOf: () => Promise.resolve('open') });
    await expect(ask(lost, 'a', 0)).rejects.toThrow('a line that was just written cannot be read');
    expect(compare((await budget.state()).spent, zero)).toBe(0);
  });
});
