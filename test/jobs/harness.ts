import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import { beginAgain } from '../../src/flows/resolve.ts';
import { createClient } from '../../src/http/client.ts';
import type { Job, Owner } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import type { JobDeps, Order } from '../../src/jobs/order.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { createOrResume } from '../../src/jobs/create-or-resume.ts';
import { type Began, inRun } from '../../src/jobs/run.ts';
import { submit } from '../../src/jobs/submit.ts';
import type { JsonObject } from '../../src/json.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Protocol } from '../../src/protocols/protocol.ts';
import { secretRedactor } from '../../src/redact.ts';
import { onEnd } from '../support/clean-ups.ts';
import { leaseOf } from '../support/lease.ts';

export const key = 'sk-canary-4d3c2b1a0f9e8d7c';

export interface FakeClock extends Clock {
  /** The durations of all sleeps so far, in ms. */
  pauses: number[];
  /** Runs during each sleep, with the sleep's number, counted from 1. */
  onSleep?: (count: number) => Promise<void> | void;
  /** Advances both the time of day and the monotonic time. */
  advance(ms: number): void;
  /** Moves the time of day by the given ms (negative: back). Does not change the monotonic time. */
  set(ms: number): void;
}

/** Returns a clock whose sleeps end immediately and advance its time. */
export function fakeClock(): FakeClock {
  let passed = 0;
  let epoch = 1_795_000_000_000;
  const clock: FakeClock = {
    pauses: [],
    now: () => epoch + passed,
    monotonic: () => passed,
    advance: (ms) => void (passed += ms),
    set: (ms) => void (epoch += ms),
    sleep: async (ms, signal) => {
      signal?.throwIfAborted();
      clock.pauses.push(ms);
      passed += Math.max(0, ms);
      await clock.onSleep?.(clock.pauses.length);
      await new Promise((resolve) => setImmediate(resolve));
      signal?.throwIfAborted();
    },
  };
  return clock;
}

let runs = 0;

/** Returns the identity of a dead process. No system has a process with its id. */
export function deadOwner(): Owner {
  return { pid: 2 ** 22 + 1, start: String((runs += 1)), host: currentOwner().host };
}

/** The dependencies of one simulated process, and its clock, notes and signals. */
export interface TestDeps extends JobDeps {
  notes: string[];
  soft: AbortController;
  hard: AbortController;
  clock: FakeClock;
}

/**
 * Returns the dependencies of a process that uses the gateway `url` and the state folder `state`. The process considers
 * every other process dead.
 */
export async function depsFor(
  url: string,
  state: string,
  more: Partial<JobDeps> & { owner?: Owner; clock?: FakeClock; connectTimeoutMs?: number } = {},
): Promise<TestDeps> {
  const { connectTimeoutMs, clock = fakeClock(), owner = deadOwner(), ...rest } = more;
  const client = createClient({ baseUrl: new URL(url), key, userAgent: 'test', connectTimeoutMs });
  onEnd(() => client.close());
  const [soft, hard, notes] = [new AbortController(), new AbortController(), [] as string[]];
  return {
    ledger: await openFileLedger(state, () => clock.now()),
    client,
    lease: leaseOf(owner),
    userAgent: 'test',
    gateway: 'test',
    account: 'test',
    redact: secretRedactor([key]),
    note: (text) => void notes.push(text),
    signals: { soft: soft.signal, hard: hard.signal },
    retries: 5,
    priceOf: () => Promise.resolve({ subject: 'a test' }),
    allowances: () => Promise.resolve([]),
    ...rest,
    clock,
    notes,
    soft,
    hard,
  };
}

/** Returns an order of Protocol C or of the given protocol. */
export function orderOf(more: Partial<Order> = {}, protocol: Protocol = c): Order {
  const body = (more.body ?? { model: 'vendor-h3', prompt: 'a paper boat' }) as JsonObject;
  return {
    protocol: protocol.name,
    model: protocol.modelOf(body),
    body,
    exchange: protocol.submission(body),
    auth: protocol.auth,
    read: (reply) => protocol.readSubmission(reply, body),
    fresh: false,
    goal: { command: 'submit', ask: 'accept' },
    deadline: { remainingMs: () => Infinity },
    ...more,
  };
}

/** The outcome of a submission by {@link run}. */
export interface Ran {
  exit: number;
  job?: Job;
  error?: MgwError;
  isResumed?: boolean;
  delivered?: () => Promise<void>;
}

/** Submits an order, and returns the outcome. An error that is not an MgwError fails the test. */
export function run(deps: JobDeps, order: Order = orderOf()): Promise<Ran> {
  return runFrom((began) => createOrResume(order, deps, began), deps, order);
}

/** Submits a job in doubt again like {@link run}. */
export function runAgain(deps: JobDeps, job: Job, order: Order = orderOf()): Promise<Ran> {
  return runFrom((began) => beginAgain(job, deps, began), deps, order);
}

async function runFrom(begin: (began: Began) => Promise<Job>, deps: JobDeps, order: Order): Promise<Ran> {
  try {
    const { value, job, delivered } = await inRun(order.goal, deps, begin, (found, own) =>
      submit(found, order, own),
    );
    return { exit: 0, job, isResumed: value.isResumed, delivered };
  } catch (error) {
    if (!(error instanceof MgwError)) throw error;
    return { exit: error.exitCode, error, job: error.job };
  }
}

/** Returns all jobs of a ledger, newest first. */
export async function jobsOf(ledger: Ledger): Promise<Job[]> {
  const jobs = await Promise.all((await ledger.ids()).map((id) => ledger.read(id)));
  return jobs.filter((job) => job !== undefined);
}

/** Returns the text of a state folder's only job file. */
export function jobText(state: string): string {
  const [name, ...others] = readdirSync(join(state, 'jobs'));
  if (name === undefined || others.length > 0) throw new Error('there is not exactly one job');
  return readFileSync(join(state, 'jobs', name), 'utf8');
}
