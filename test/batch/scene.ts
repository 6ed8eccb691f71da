import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newUser, type CliResult, type User } from '../support/cli.ts';
import { runHereAs } from '../support/one-process.ts';
import { startBatchGateway, type BatchGateway } from './gateway.ts';

/** The JSON output of an `mgw batch` command. */
export interface BatchJson {
  exit_code: number;
  batch: { name: string; rows: number; states: Record<string, number>; bad: number; files: number };
  rows: {
    line: number;
    id: string;
    state: string;
    output: string;
    next: string[];
    changes?: string[];
    message?: string;
  }[];
  problems: { line: number; message: string }[];
  cost: { at_most: string };
  error?: { next: string[] };
}

/** A gateway, and a user who runs batches on the gateway. */
export interface Scene {
  gateway: BatchGateway;
  user: User;
  /** Writes a manifest, and returns its absolute path. */
  file(name: string, text: string): string;
  /** Returns the path of the file `name` in the user's folder. */
  at(name: string): string;
  /** Runs an `mgw batch` command in this process, with its files in the user's folder. */
  batch(...args: string[]): Promise<CliResult>;
  /** Runs an `mgw batch` command with `--json`, and returns the parsed output. */
  read(...args: string[]): Promise<BatchJson>;
}

/** Flags of a run that polls an unfinished task only three times. */
export const shortWait = ['--timeout', '3s', '--poll-interval', '1s'];

/** Opens a scene with its own gateway, whose tasks are finished at the first poll. */
export async function openScene(): Promise<Scene> {
  const gateway = await startBatchGateway();
  gateway.polls = 0;
  const user = newUser(gateway.url);
  const at = (name: string): string => join(user.cwd, name);
  const args = (given: string[]): string[] => {
    const [command = '', ...rest] = given;
    const output = command === 'status' || rest.includes('-o') ? [] : ['-o', at('{id}.{ext}')];
    const isPaced = rest.includes('--poll-interval') || !['run', 'retry'].includes(command);
    const polls = isPaced ? [] : ['--poll-interval', '10ms'];
    return ['batch', command, ...rest, ...output, ...polls];
  };
  const batch = (...given: string[]): Promise<CliResult> => runHereAs(user, args(given));
  return {
    gateway,
    user,
    at,
    batch,
    file: (name, text) => {
      writeFileSync(at(name), text);
      return at(name);
    },
    read: async (...given) => (await batch(...given, '--json')).json as unknown as BatchJson,
  };
}

/** Returns a CSV of Protocol C rows with the given ids and prompts. */
export function clips(...rows: [id: string, prompt: string][]): string {
  const lines = rows.map(([id, prompt]) => `${id},c,vendor-h3-mini,5,${prompt}`);
  return ['id,protocol,model,duration,prompt', ...lines, ''].join('\n');
}
