import type { Clock } from '../clock.ts';
import type { GatewayClient } from '../http/client.ts';
import type { Owner } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';

/** What every action on a job works with. */
export interface JobDeps {
  ledger: Ledger;
  client: GatewayClient;
  clock: Clock;
  owner: Owner;
  /** What `base_url` says in the records: the base URL, or the sandbox's constant name. */
  gateway: string;
  /** Keyed hash of the API key (design 4). */
  account: string;
  /** Takes the key out of a text before it is recorded. */
  redact: (text: string) => string;
  /** A line for the person at the terminal. */
  note: (text: string) => void;
  signals: Signals;
  userAgent: string;
  /** One HTTP call, ms; undefined takes the default of the kind of call. */
  requestTimeoutMs?: number;
  /** How often a refused or unsent request is tried again. */
  retries: number;
}

/** The two steps of an interruption: the first asks to stop, the second gives up what is outstanding. */
export interface Signals {
  soft: AbortSignal;
  hard: AbortSignal;
}

/** How long one submission may take where nothing else was asked, ms. */
export const submitTimeoutMs = 120_000;
/** How long one query may take where nothing else was asked, ms. */
export const queryTimeoutMs = 30_000;
