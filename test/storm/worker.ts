import { PassThrough, Writable } from 'node:stream';
import { main } from '../../src/cli/main.ts';
import { hurried } from '../support/one-process.ts';
import { armCrash, countedOperations, type Crash } from './crash.ts';

/** One command line for a worker. */
export interface Task {
  args: string[];
  env: NodeJS.ProcessEnv;
  crash?: Crash;
  /** Shortens its pauses. */
  isHurried?: boolean;
}

/** A message of a worker: its start (from which the time until the kill counts), its output, or its result. */
export type Said =
  { began: true } | { printed: string } | { code: number; stderr: string; operations: number };

class Printer extends Writable {
  readonly #print: (text: string) => void;
  constructor(print: (text: string) => void) {
    super();
    this.#print = print;
  }
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#print(chunk.toString());
    done();
  }
}

/** Runs command lines in this process one after the other for its parent, which may kill it. */
async function carryOut({ args, env, crash, isHurried }: Task): Promise<void> {
  say({ began: true });
  const said: string[] = [];
  const stdin = new PassThrough();
  stdin.end();
  // The output must arrive even if the process is killed immediately after it.
  const stdout = new Printer((printed) => say({ printed }));
  const stderr = new Printer((text) => said.push(text));
  await armCrash(crash);
  const code = await main(args, { stdin, stdout, stderr, env, ...(isHurried && { clock: hurried() }) });
  const operations = countedOperations();
  await armCrash(undefined);
  say({ code, stderr: said.join(''), operations });
}

function say(what: Said): void {
  process.send?.(what);
}

// Every run adds listeners for signals.
process.setMaxListeners(0);
process.on('message', (task: Task) => void carryOut(task));
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
