import { join } from 'node:path';
import { deadlineIn } from '../../src/clock.ts';
import { createClient } from '../../src/http/client.ts';
import type { Job, JobFile } from '../../src/job.ts';
import { fetchResults } from '../../src/jobs/fetch.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import type { JobDeps } from '../../src/jobs/order.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { watch, type WatchedJob, type WatchOptions } from '../../src/jobs/watch.ts';
import { protocolNamed } from '../../src/protocols/registry.ts';
import { canaryKey, type CliJson } from '../support/cli.ts';
import { leaseOf } from '../support/lease.ts';
import { TestClock } from '../support/test-clock.ts';
import type { Scene } from './scene.ts';

/** Waits for jobs by the test's own clock, with the scene's sockets and ledger. */
export interface Clocked {
  clock: TestClock;
  /** Waits for a finished job's result, and saves it to the scene's output. */
  save: (job: CliJson['job'], onProgress: (bytes: number) => void) => Promise<JobFile[]>;
  /** Waits for a submitted job, as `fetch` does. */
  wait: (job: CliJson['job'], options?: Partial<WatchOptions>) => Promise<WatchedJob>;
}

/**
 * Creates a clock for a scene, set to the current time. Pauses end immediately and advance the clock. Pauses of at
 * least `long` ms end only when the test ends them.
 */
export async function clocked(scene: Scene, long = Infinity): Promise<Clocked> {
  const clock = new TestClock(long);
  clock.advance(Date.now() - clock.now());
  const ledger = await openFileLedger(join(scene.user.cwd, 'state'), () => clock.now());
  const baseUrl = new URL(scene.gateway.url);
  const client = createClient({ baseUrl, key: canaryKey, userAgent: 'mgw/test' });
  scene.onEnd(() => client.close());
  const deps: JobDeps = {
    ledger,
    client,
    clock,
    lease: leaseOf(currentOwner()),
    gateway: scene.gateway.url,
    account: 'test',
    redact: (text) => text,
    note: () => undefined,
    signals: { soft: new AbortController().signal, hard: new AbortController().signal },
    userAgent: 'mgw/test',
    retries: 5,
    priceOf: () => Promise.resolve({ subject: 'a test' }),
    allowances: () => Promise.resolve([]),
  };
  const waiting = { deadline: deadlineIn(30 * 60_000, clock), intervalMs: 5000, isImmediate: false };
  const jobOf = async ({ id }: CliJson['job']): Promise<Job> => {
    const job = await ledger.read(id);
    if (job === undefined) throw new Error(`there is no job ${id}`);
    return job;
  };
  return {
    clock,
    wait: async (named, options) => {
      const job = await jobOf(named);
      return watch(job, protocolNamed(job.protocol), deps, { ...waiting, ...options });
    },
    save: async (named, onProgress) => {
      const job = await jobOf(named);
      return fetchResults(job, protocolNamed(job.protocol), deps, {
        ...waiting,
        target: { kind: 'file', path: scene.out },
        toStdout: () => Promise.resolve(),
        force: false,
        key: canaryKey,
        trustedOrigins: [],
        onProgress: ({ bytes }) => onProgress(bytes),
      });
    },
  };
}
