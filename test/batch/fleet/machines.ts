import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../../src/clock.ts';
import { newUser, type CliResult, type User } from '../../support/cli.ts';
import { runHereAs } from '../../support/one-process.ts';
import { clips } from '../scene.ts';

// Replaces a process's host name with that of another machine.
const otherName = `require('node:os').hostname = () => process.env.MGW_TEST_HOST;\n`;

/** A fleet's machines. Each has its own name and folders; all share the state and the gateway. */
export class Machines {
  /** A folder that all machines can write to. */
  readonly shared = mkdtempSync(join(tmpdir(), 'mgw-shared-'));
  readonly #gateway: string;
  readonly #state: string;
  #count = 0;

  constructor(gateway: string, state: string) {
    this.#gateway = gateway;
    writeFileSync(join(this.shared, 'host-name.cjs'), otherName);
    this.#state = state;
  }

  /** Adds a machine. */
  machine(state = this.#state): User {
    this.#count += 1;
    return newUser(this.#gateway, {
      MGW_STATE: state,
      MGW_TEST_HOST: `machine-${this.#count}`,
      NODE_OPTIONS: `--require=${join(this.shared, 'host-name.cjs')}`,
    });
  }

  /** Writes a manifest that all machines can read, and returns its path. Row `row-0` has the prompt `prompt 0`. */
  manifest(rows: number, name = 'clips.csv'): string {
    const path = join(this.shared, name);
    const all = Array.from({ length: rows }, (_, n): [string, string] => [`row-${n}`, `prompt ${n}`]);
    writeFileSync(path, clips(...all));
    return path;
  }

  /** The output option of a batch that saves into the shared folder. */
  get output(): string[] {
    return ['-o', join(this.shared, 'out', '{id}.{ext}')];
  }
}

/** Runs a command in this process with `--json`, and returns its result with the parsed output. */
export async function read(
  user: User,
  ...args: string[]
): Promise<Omit<CliResult, 'json'> & { view: Record<string, unknown> }> {
  const { code, stdout, stderr } = await runHereAs(user, [...args, '--json'], '', systemClock);
  return { code, stdout, stderr, view: JSON.parse(stdout || '{}') as Record<string, unknown> };
}
