import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { runAlone, Workers, type Ran } from './workers.ts';
import type { Crash } from './crash.ts';

/** The key of the storm; nothing but requests to the gateway may hold it. */
export const stormKey = 'sk-storm-7d793037a0760186574b0282f2f435e7';

/** Everything a storm takes place in; all of it is below `root`. */
export interface World {
  root: string;
  /** The folder of the ledger. */
  state: string;
  /** The gateway's own count of what was created and charged. */
  gateway: string;
  /** The folder of results. */
  out: string;
  sandbox: Sandbox;
  /** Every run so far. */
  runs: Ran[];
  /** Runs a command line, killed after so many ms if that is given. */
  run(args: string[], how?: RunOptions): Promise<Ran>;
  close(): Promise<void>;
  /** Removes everything. */
  remove(): void;
}

export interface RunOptions {
  killAfterMs?: number;
  /** In a process of its own, as a shell starts it. */
  isOwnProcess?: boolean;
  /** How the n-th operation on the disk fares; not in a process of its own. */
  crash?: Crash;
}

export interface WorldOptions {
  /** The built worker. */
  worker: string;
  seed?: number;
  /** How long a generation takes, ms. */
  paceMs: number;
  faults?: string[];
}

/** Opens a world with a gateway of its own. */
export async function openWorld({ worker, seed, paceMs, faults = [] }: WorldOptions): Promise<World> {
  const root = mkdtempSync(join(tmpdir(), 'mgw-storm-'));
  const [state, gateway, out] = ['state', 'gateway', 'out'].map((name) => join(root, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(out);
  const sandbox = await startSandbox({ stateDir: gateway, keys: [stormKey], paceMs, faults, seed });
  const env: NodeJS.ProcessEnv = {
    PATH: process.env['PATH'],
    HOME: root,
    TMPDIR: root,
    MGW_BASE_URL: sandbox.url,
    MGW_API_KEY: stormKey,
    MGW_STATE_DIR: state,
    MGW_CONFIG_DIR: join(root, 'config'),
  };
  const workers = new Workers(worker, root);
  const runs: Ran[] = [];
  const run: World['run'] = async (args, { killAfterMs, isOwnProcess, crash } = {}) => {
    const task = { args, env, crash };
    const ran = isOwnProcess ? await runAlone(task, root, killAfterMs) : await workers.run(task, killAfterMs);
    runs.push(ran);
    return ran;
  };
  const close = async (): Promise<void> => {
    workers.close();
    await sandbox.close();
  };
  const remove = (): void => rmSync(root, { recursive: true, force: true });
  return { root, state, gateway, out, sandbox, runs, run, close, remove };
}
