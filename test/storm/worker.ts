import { PassThrough, Writable } from 'node:stream';
import { main } from '../../src/cli/main.ts';
import { hurried } from '../support/one-process.ts';
import { armCrash, countedOperations, type Crash } from './crash.ts';

/** A command line that a worker runs. */
export interface Task {
  args: string[];
  env: NodeJS.ProcessEnv;
  crash?: Crash;
  /** Whether to shorten the command's pauses. */
  isHurried?: boolean;
}

/** A worker's message: the command has started (the time until a kill counts from here), its output, or its result. */
export type WorkerMessage =
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

/** Runs a command line in this process for the parent process, which may kill this one. */
async function carryOut({ args, env, crash, isHurried }: Task): Promise<void> {
  say({ began: true });
  const output: string[] = [];
  const stdin = new PassThrough();
  stdin.end();
  // Sends the output immediately, so the output arrives even if the process is killed right afterwards.
  const stdout = new Printer((printed) => say({ printed }));
  const stderr = new Printer((text) => output.push(text));
  await armCrash(crash);
  const code = await main(args, { stdin, stdout, stderr, env, ...(isHurried && { clock: hurried() }) });
  const operations = countedOperations();
  await armCrash(undefined);
  say({ code, stderr: output.join(''), operations });
}

function say(what: WorkerMessage): void {
  process.send?.(what);
}

// Every run adds signal listeners, so the default limit would cause a warning.
process.setMaxListeners(0);
process.on('message', (task: Task) => void carryOut(task));
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
