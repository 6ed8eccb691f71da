import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { runAlone, Workers, type Ran } from './workers.ts';
import type { Crash } from './crash.ts';

/** The storm's API key. Only requests to the gateway may contain the key. */
export const stormKey = 'sk-storm-7d793037a0760186574b0282f2f435e7';

/** The environment of a storm. All its files are below `root`. */
export interface World {
  root: string;
  /** The path of the ledger's folder. */
  state: string;
  /** The path of the gateway's own record of tasks and charges. */
  gateway: string;
  /** The path of the output folder. */
  out: string;
  sandbox: Sandbox;
  /** The results of every run so far. */
  runs: Ran[];
  /** Runs a command line until it exits. */
  run(args: string[], how?: RunOptions): Promise<Ran>;
  close(): Promise<void>;
  /** Removes all files of the storm. */
  remove(): void;
}

export interface RunOptions {
  killAfterMs?: number;
  /** Whether to run the command in a separate process, as a shell does. */
  isOwnProcess?: boolean;
  /** The incident at one of the command's disk operations. Has no effect in a separate process. */
  crash?: Crash;
}

export interface WorldOptions {
  /** The path of the built worker. */
  worker: string;
  seed?: number;
  /** The duration of a video generation, in ms. */
  paceMs: number;
  faults?: string[];
}

/** Opens a storm's environment with its own gateway. */
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
