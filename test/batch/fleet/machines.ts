import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../../src/clock.ts';
import { newUser, type CliResult, type User } from '../../support/cli.ts';
import { runHereAs } from '../../support/one-process.ts';
import { clips } from '../scene.ts';

// Gives a process the host name of another machine.
const otherName = `require('node:os').hostname = () => process.env.MGW_TEST_HOST;\n`;

/** Machines of a fleet: each has its own name and folders; all share the state and the gateway. */
export class Machines {
  /** The folder that all machines can write to. */
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

  /** A file of rows that all of them can read: `row-0` has the prompt `prompt 0`. */
  manifest(rows: number, name = 'clips.csv'): string {
    const path = join(this.shared, name);
    const all = Array.from({ length: rows }, (_, n): [string, string] => [`row-${n}`, `prompt ${n}`]);
    writeFileSync(path, clips(...all));
    return path;
  }

  /** The output of a batch. */
  get output(): string[] {
    return ['-o', join(this.shared, 'out', '{id}.{ext}')];
  }
}

/** The JSON output of a command, which runs in this process. */
export async function read(
  user: User,
  ...args: string[]
): Promise<Omit<CliResult, 'json'> & { view: Record<string, unknown> }> {
  const { code, stdout, stderr } = await runHereAs(user, [...args, '--json'], '', systemClock);
  return { code, stdout, stderr, view: JSON.parse(stdout || '{}') as Record<string, unknown> };
}
