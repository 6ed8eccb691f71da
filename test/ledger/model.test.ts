import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { exitCodes, MgwError } from '../../src/errors.ts';
import type { Reply } from '../../src/exchange.ts';
import type { CallOptions, GatewayClient } from '../../src/http/client.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { isOpenFor, type Job, type Owner } from '../../src/job.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { attemptClaim } from '../../src/jobs/charge-outcome.ts';
import { observe } from '../../src/jobs/observe.ts';
import { resolveJob, type Resolution } from '../../src/flows/resolve.ts';
import { reconcile, shownState } from '../../src/jobs/reconcile.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { depsFor, fakeClock, orderOf, run, runAgain, type Ran, type TestDeps } from '../jobs/harness.ts';

/**
 * The gateway's reactions to a submission. With `accepts` and the reactions that begin with `made`, the gateway creates
 * and charges a task.
 */
const days = ['unsent', 'accepts', 'busy', 'refuses', 'breaks', 'made and broke', 'made and 500'] as const;
type Day = (typeof days)[number];
const creates = (day: Day): boolean => day === 'accepts' || day.startsWith('made');

/** The expected state of the job. The state determines what the next submission may do. */
interface Model {
  key: string | undefined;
  state: 'none' | 'prepared' | 'unknown' | 'accepted' | 'succeeded' | 'failed' | 'rejected';
  /** Whether a run has fetched the job's result. */
  isSettled: boolean;
  /** Whether a process died after claiming the next attempt and before sending. The next process records the death. */
  isClaimed: boolean;
  /** Whether the user entered the handle and the gateway has not returned the task since. */
  isUnconfirmed: boolean;
  /** Whether the user sent the job again while an earlier attempt was in doubt. */
  hasEarlierDoubt: boolean;
}

const goal = { command: 'submit', ask: 'accept' } as const;
const url = new URL('http://127.0.0.1:9');

/** One ledger and one gateway without a network. */
class World {
  readonly folder = mkdtempSync(join(tmpdir(), 'mgw-model-'));
  readonly handles: string[] = [];
  posts = 0;
  day: Day = 'accepts';
  seen = 'queued';
  /** Handles that the user has declared nonexistent, or replaced by a second task. */
  readonly disowned = new Set<string>();
  private readonly clock = fakeClock();

  private readonly client: GatewayClient = {
    baseUrl: url,
    exchange: (request, options) => (request.method === 'POST' ? this.post(options) : this.poll()),
    stream: () => Promise.reject(new Error('this test streams nothing')),
    downloadConnections: () => Promise.reject(new Error('this test fetches nothing')),
    close: () => undefined,
  };

  /** Starts a new process that considers all earlier processes dead. */
  async process(ledger = (real: Ledger): Ledger => real): Promise<TestDeps> {
    this.clock.advance(1000);
    const deps = await depsFor(url.href, this.folder, { client: this.client, retries: 0, clock: this.clock });
    const { owner } = await deps.lease();
    return { ...deps, ledger: ledger(withLiveOwner(deps.ledger, owner)) };
  }

  async job(): Promise<Job | undefined> {
    const { ledger } = await this.process();
    const [newest = ''] = await ledger.ids();
    return ledger.read(newest);
  }

  async isClaimed(job: Job): Promise<boolean> {
    const { ledger } = await this.process();
    return (await ledger.claimed(attemptClaim(job))) !== undefined;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  private async post(options: CallOptions): Promise<Reply> {
    if (this.day === 'unsent') throw TransportError.unsent(new Error('refused'), url);
    await options.onConnected?.();
    this.posts += 1;
    if (creates(this.day)) this.handles.push(`task_${this.handles.length + 1}`);
    switch (this.day) {
      case 'accepts':
        return reply(200, { task_id: this.handles.at(-1), status: 'queued' });
      case 'busy':
        return reply(429, { error: { message: 'too many requests' } });
      case 'refuses':
        return reply(400, { error: { message: 'invalid prompt' } });
      case 'made and 500':
        return reply(500, { error: { message: 'internal error' } });
      case 'breaks':
      case 'made and broke':
        throw TransportError.sent(new Error('reset'), url);
    }
  }

  private poll(): Promise<Reply> {
    return Promise.resolve(
      this.seen === 'trouble' ? reply(502, 'bad gateway') : reply(200, { status: this.seen }),
    );
  }
}

// Returns a ledger whose jobs consider only this owner alive.
function withLiveOwner(ledger: Ledger, { start }: Owner): Ledger {
  const read = async (id: string): Promise<Job | undefined> => {
    const job = await ledger.read(id);
    return (
      job && {
        ...job,
        record: { ...job.record, lifeOf: (other) => (other.start === start ? 'alive' : 'dead') },
      }
    );
  };
  return { ...ledger, read };
}

function reply(status: number, body: unknown): Reply {
  return { status, headers: {}, text: JSON.stringify(body), complete: true };
}

function stateAfter(day: Day, { key, state, isClaimed, hasEarlierDoubt }: Model): Model['state'] {
  if (day === 'accepts') return 'accepted';
  if (hasEarlierDoubt) return 'unknown';
  if (day === 'refuses') return 'rejected';
  // A job that was rejected under a key remains rejected until its next attempt is claimed.
  const isStillRefused = key !== undefined && state === 'rejected' && !isClaimed;
  if (day === 'unsent') return isStillRefused ? 'rejected' : 'prepared';
  return day === 'busy' ? 'prepared' : 'unknown';
}

/** Whether the next submission continues with the job and sends nothing (design 4). */
function resumes({ key, state, isSettled: settled }: Model): boolean {
  if (state === 'accepted' || state === 'succeeded') return key !== undefined || !settled;
  return state === 'failed' && key !== undefined;
}

/** Checks that the record is complete and that no paid task is lost. */
async function expectSound(world: World, model: Model): Promise<void> {
  const job = await world.job();
  expect(stateOf(job)).toBe(model.state);
  if (job !== undefined) expect([!isOpenFor(job, goal), job.record.damaged]).toEqual([model.isSettled, 0]);
  const { ledger } = await world.process();
  const jobs = await Promise.all((await ledger.ids()).map((id) => ledger.read(id)));
  const handles = jobs.map((each) => each?.handle);
  const lost = world.handles.filter((handle) => !handles.includes(handle) && !world.disowned.has(handle));
  if (lost.length > 0) expect([model.state, lost.length]).toEqual(['unknown', 1]);
}

function stateOf(job: Job | undefined): Model['state'] {
  if (job === undefined) return 'none';
  const state = shownState(job);
  return state === 'queued' || state === 'running' || state === 'sending' ? 'accepted' : state;
}

function isInDoubt({ state, isUnconfirmed }: Model): boolean {
  return state === 'unknown' || isUnconfirmed;
}

type Command = fc.AsyncCommand<Model, World>;

class Submit implements Command {
  constructor(
    readonly day: Day,
    readonly ends: 'well' | 'early',
  ) {}
  check = (): boolean => true;
  toString = (): string => `Submit(${this.day}, ends ${this.ends})`;

  async run(model: Model, world: World): Promise<void> {
    world.day = this.day;
    const [posts, isBlocked, isResumed] = [world.posts, model.state === 'unknown', resumes(model)];
    const deps = await world.process();
    const ran = await run(deps, orderOf({ key: model.key }));
    const isSent = !isBlocked && !isResumed && this.day !== 'unsent';
    expect(world.posts - posts, 'POSTs').toBe(isSent ? 1 : 0);
    if (isBlocked) expect(ran.exit).toBe(exitCodes.unknown);
    else if (!isResumed)
      Object.assign(model, {
        state: stateAfter(this.day, model),
        isSettled: false,
        isClaimed: false,
        isUnconfirmed: false,
        hasEarlierDoubt: model.hasEarlierDoubt && this.day !== 'accepts',
      });
    if (ran.exit === 0 && this.ends === 'well') {
      await ran.delivered?.();
      model.isSettled = true;
    }
    await expectSound(world, model);
  }
}

/** Sends a job in doubt again, because the user decided to. */
class Resubmit implements Command {
  constructor(
    readonly day: Day,
    readonly ends: 'well' | 'early',
  ) {}
  check = (model: Readonly<Model>): boolean => isInDoubt(model);
  toString = (): string => `Resubmit(${this.day}, ends ${this.ends})`;

  async run(model: Model, world: World): Promise<void> {
    world.day = this.day;
    const [posts, job] = [world.posts, (await world.job()) as Job];
    for (const handle of world.handles) world.disowned.add(handle);
    const ran = await runAgain(await world.process(), job, orderOf({ key: model.key }));
    expect(world.posts - posts, 'POSTs').toBe(this.day === 'unsent' ? 0 : 1);
    const isAccepted = this.day === 'accepts';
    Object.assign(model, {
      state: isAccepted ? 'accepted' : 'unknown',
      isSettled: false,
      isClaimed: false,
      isUnconfirmed: false,
      hasEarlierDoubt: !isAccepted,
    });
    if (ran.exit === 0 && this.ends === 'well') {
      await ran.delivered?.();
      model.isSettled = true;
    }
    await expectSound(world, model);
  }
}

/** A submission (the first, or another one that the user decided on) whose process dies at one of its ledger calls. */
class DieSubmitting implements Command {
  constructor(
    readonly day: Day,
    readonly at: number,
    readonly isDone: boolean,
    readonly isAgain = false,
  ) {}
  check = (model: Readonly<Model>): boolean => !this.isAgain || isInDoubt(model);
  toString = (): string =>
    `Die(${this.day}, ${this.isDone ? 'after' : 'before'} call ${this.at}, ${this.isAgain ? 'again' : 'first'})`;

  async run(model: Model, world: World): Promise<void> {
    world.day = this.day;
    const [posts, made, before] = [world.posts, world.handles.length, { ...model }];
    const inDoubt = this.isAgain ? await world.job() : undefined;
    if (this.isAgain) for (const handle of world.handles) world.disowned.add(handle);
    await new Promise<void>((resolve, reject) => {
      const deadly = (ledger: Ledger): Ledger => dying(ledger, this.at, this.isDone, resolve);
      const living = world.process(deadly).then((deps) => this.submit(deps, model, inDoubt));
      living.then(
        () => resolve(),
        (error: unknown) => (error instanceof MgwError ? resolve() : reject(error as Error)),
      );
    });
    const sent = world.posts - posts;
    const isNothingToSend = !this.isAgain && (before.state === 'unknown' || resumes(before));
    expect(sent).toBeLessThanOrEqual(isNothingToSend ? 0 : 1);
    await this.recover(world);
    const job = await world.job();
    model.state = stateOf(job);
    model.isSettled = job !== undefined && !isOpenFor(job, goal);
    model.isClaimed = job !== undefined && (await world.isClaimed(job));
    model.isUnconfirmed = job?.record.isUnconfirmed === true;
    model.hasEarlierDoubt = job?.record.hasEarlierDoubt === true;
    if (sent > 0 && this.day === 'breaks') expect(model.state).toBe('unknown');
    if (world.handles.length > made) expect(model.state).toMatch(/unknown|accepted/);
    await expectSound(world, model);
  }

  private submit(deps: TestDeps, { key }: Model, inDoubt: Job | undefined): Promise<Ran> {
    return inDoubt === undefined ? run(deps, orderOf({ key })) : runAgain(deps, inDoubt, orderOf({ key }));
  }

  // Performs the first step of the next command on the job.
  private async recover(world: World): Promise<void> {
    const [job, { ledger }] = [await world.job(), await world.process()];
    if (job !== undefined) await reconcile(ledger, job, (answer) => c.readSubmission(answer, {}));
  }
}

function dying(ledger: Ledger, at: number, isDone: boolean, died: () => void): Ledger {
  let calls = 0;
  const wrapped = Object.entries(ledger).map(([name, method]) => [
    name,
    async (...args: unknown[]): Promise<unknown> => {
      calls += 1;
      if (calls < at) return (method as (...args: unknown[]) => Promise<unknown>)(...args);
      if (calls === at && isDone) await (method as (...args: unknown[]) => Promise<unknown>)(...args);
      died();
      return new Promise(() => undefined);
    },
  ]);
  return Object.fromEntries(wrapped) as Ledger;
}

class Resolve implements Command {
  constructor(readonly how: Resolution['how']) {}
  check = (model: Readonly<Model>): boolean => model.state !== 'none';
  toString = (): string => `Resolve(${this.how})`;

  async run(model: Model, world: World): Promise<void> {
    const [job, { ledger }] = [(await world.job()) as Job, await world.process()];
    const lost = world.handles.at(-1) ?? 'task_by_hand';
    const resolution: Resolution =
      this.how === 'adopted' ? { how: 'adopted', handle: lost } : { how: this.how };
    const done = await resolveJob(ledger, job, resolution).catch((error: unknown) => error);
    const isSame = job.handle !== undefined && this.how === 'adopted' && job.handle === lost;
    const isOpen = isInDoubt(model);
    expect(done instanceof MgwError).toBe(!isOpen && !isSame);
    if (isOpen) {
      model.isUnconfirmed = this.how === 'adopted';
      model.hasEarlierDoubt = this.how === 'resubmit';
      // Without a run, no process sends the job again.
      model.state = ({ adopted: 'accepted', 'not-created': 'rejected', resubmit: 'unknown' } as const)[
        this.how
      ];
      // Any earlier delivery was of the task that the user has just replaced.
      if (!isSame) model.isSettled = false;
      if (this.how !== 'adopted') for (const handle of world.handles) world.disowned.add(handle);
    }
    await expectSound(world, model);
  }
}

class Poll implements Command {
  constructor(readonly seen: 'queued' | 'in_progress' | 'completed' | 'failed' | 'what?' | 'trouble') {}
  check = (model: Readonly<Model>): boolean => /accepted|succeeded|failed/.test(model.state);
  toString = (): string => `Poll(${this.seen})`;

  async run(model: Model, world: World): Promise<void> {
    const [job, posts] = [(await world.job()) as Job, world.posts];
    world.seen = this.seen;
    await observe(job, c, await world.process());
    expect(world.posts, 'a poll that submits').toBe(posts);
    if (this.seen !== 'trouble') model.isUnconfirmed = false;
    if (model.state !== 'succeeded' && this.seen !== 'trouble')
      model.state = this.seen === 'completed' ? 'succeeded' : this.seen === 'failed' ? 'failed' : 'accepted';
    await expectSound(world, model);
  }
}

/** A write that a power cut tears before the call returns. */
class Tear implements Command {
  check = (model: Readonly<Model>): boolean => model.state !== 'none';
  toString = (): string => 'Tear';

  async run(model: Model, world: World): Promise<void> {
    const job = (await world.job()) as Job;
    appendFileSync(join(world.folder, 'jobs', `${job.id}.jsonl`), '{"v":1,"at":"2026-11-20T19:18:3');
    await expectSound(world, model);
  }
}

const day = fc.constantFrom(...days);
const commands: fc.Arbitrary<Command>[] = [
  fc.tuple(day, fc.constantFrom('well' as const, 'early' as const)).map(([d, ends]) => new Submit(d, ends)),
  fc.tuple(day, fc.constantFrom('well' as const, 'early' as const)).map(([d, ends]) => new Resubmit(d, ends)),
  fc
    .tuple(day, fc.integer({ min: 1, max: 16 }), fc.boolean(), fc.boolean())
    .map(([d, at, done, again]) => new DieSubmitting(d, at, done, again)),
  fc.constantFrom<Resolution['how'][]>('adopted', 'not-created', 'resubmit').map((how) => new Resolve(how)),
  fc
    .constantFrom<Poll['seen'][]>('queued', 'in_progress', 'completed', 'failed', 'what?', 'trouble')
    .map((seen) => new Poll(seen)),
  fc.constant(new Tear()),
];

/** Performs the steps in a new world, and compares the world with the model after each step. */
async function walk(key: string | undefined, steps: Iterable<Command>): Promise<void> {
  const world = new World();
  const model: Model = {
    key,
    state: 'none',
    isSettled: false,
    isClaimed: false,
    isUnconfirmed: false,
    hasEarlierDoubt: false,
  };
  try {
    await fc.asyncModelRun(() => ({ model, real: world }), steps);
  } finally {
    world.remove();
  }
}

it.each([undefined, 'boat'])(
  'the ledger matches a reference model after each step of a random walk (key: %s)',
  async (key) => {
    const walks = fc.commands(commands, { size: 'small', maxCommands: 14 });
    await fc.assert(
      fc.asyncProperty(walks, (steps) => walk(key, steps)),
      { numRuns: 30 },
    );
  },
);

// Random walks rarely reach this state.
it('a job is open for its command again after the user takes back a wrong handle that was delivered', async () => {
  const lost = new Submit('made and broke', 'well');
  for (const how of ['adopted', 'not-created', 'resubmit'] as const)
    await walk('boat', [
      ...[lost, new Resolve('adopted'), new Submit('accepts', 'well')],
      ...[new Resolve(how), new Submit('unsent', 'early'), new Submit('accepts', 'well')],
    ]);
});

// Random walks rarely reach this state: only three of the fourteen calls leave a claim without its event.
it.each(['unsent', 'accepts'] as const)(
  'the next process continues a refused job if a process dies at any step of sending it again (next submission: %s)',
  async (then) => {
    const refused = new Submit('refuses', 'well');
    for (let at = 1; at <= 14; at += 1)
      for (const isDone of then === 'unsent' ? [true] : [false, true])
        await walk('boat', [refused, new DieSubmitting('refuses', at, isDone), new Submit(then, 'well')]);
  },
);
