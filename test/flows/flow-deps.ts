import { join } from 'node:path';
import { resolveSettings } from '../../src/config/resolve.ts';
import type { Profile } from '../../src/config/schema.ts';
import { openSession, type Session } from '../../src/flows/session.ts';
import type { FlowDeps } from '../../src/flows/settings.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import type { Job, JobEvent } from '../../src/job.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { newJobId } from '../../src/ledger/names.ts';
import { onEnd } from '../support/clean-ups.ts';
import { depsFor, fakeClock, key, type TestDeps } from '../jobs/harness.ts';

/** Returns the dependencies of a flow in one process, with its records in `state`, without a gateway or a store. */
export async function flowDeps(
  state: string,
  more: Partial<FlowDeps> = {},
): Promise<FlowDeps & Pick<TestDeps, 'notes'>> {
  const deps = await depsFor('http://127.0.0.1:1', state);
  return {
    ...deps,
    key,
    settings: resolveSettings({ flags: {}, env: {}, file: { profiles: {} } }),
    trustedOrigins: [],
    pollIntervalMs: 5000,
    withSettings: (protocol) => protocol,
    objects: () => Promise.reject(new Error('there is no store')),
    openBudget: () => Promise.reject(new Error('there is no budget')),
    uploadFolder: join(state, 'uploads'),
    ...more,
  };
}

/** Returns a client that answers every exchange with an empty response, and a function that counts the exchanges. */
export function countingClient(): { client: GatewayClient; callCount: () => number } {
  let count = 0;
  const client = {
    exchange: () => {
      count += 1;
      return Promise.resolve({ status: 200, headers: {}, text: '', complete: true });
    },
  } as unknown as GatewayClient;
  return { client, callCount: () => count };
}

let made = 0;

/** Creates a job with the given events after `prepared`. */
export async function jobWith(ledger: Ledger, protocol: string, ...events: JobEvent[]): Promise<Job> {
  const id = newJobId(1_795_000_000_000 + (made += 1));
  const prepared = { type: 'prepared', base_url: '', fingerprint: '', account: '' } as const;
  await ledger.create(id, [{ ...prepared, protocol, model: 'vendor-h3' }, ...events]);
  const job = await ledger.read(id);
  if (job === undefined) throw new Error('there is no job');
  return job;
}

/**
 * Returns a session with its records in `state`, whose pauses end immediately. `more` replaces members of the session,
 * and `profile` contains its settings.
 */
export function sessionIn(
  state: string,
  env: NodeJS.ProcessEnv = {},
  more: Partial<Session> = {},
  profile: Profile = {},
): Session & { notes: string[] } {
  const own = { MGW_STATE_DIR: state, MGW_API_KEY: key, MGW_BASE_URL: 'http://127.0.0.1:1' };
  const file = { profiles: { default: profile } };
  const settings = resolveSettings({ flags: {}, env: { ...own, ...env }, file });
  const [soft, hard, notes] = [new AbortController(), new AbortController(), [] as string[]];
  const session = openSession({
    clock: fakeClock(),
    settings: () => Promise.resolve(settings),
    note: (text) => void notes.push(text),
    signals: () => ({ soft: soft.signal, hard: hard.signal }),
  });
  onEnd(() => session.close());
  return { ...session, ...more, notes };
}
