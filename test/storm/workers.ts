import { fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import type { WorkerMessage, Task } from './worker.ts';

/** The result of a run. `code` is 137 if the run was killed. */
export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
  /** The number of disk operations if a crash was armed but the process survived. */
  operations: number;
}

// The path is relative to the current folder, because the storm is built elsewhere but started
// from the project's folder.
const bin = resolve('bin/mgw.js');

/** A pool of processes, each of which runs one command line at a time and can be killed during a run. */
export class Workers {
  readonly #path: string;
  readonly #cwd: string;
  readonly #idle: ChildProcess[] = [];
  readonly #all = new Set<ChildProcess>();

  /** @param path the path of the built worker */
  constructor(path: string, cwd: string) {
    this.#path = path;
    this.#cwd = cwd;
  }

  /** Runs a task, and kills its process `killAfterMs` ms after the start. */
  async run(task: Task, killAfterMs?: number): Promise<Ran> {
    const child = this.#idle.pop() ?? this.#start();
    const ran = await inChild(child, task, killAfterMs);
    // The failure may have changed the process's state, and a user's rerun would use a new process.
    if (ran.code !== 0 || task.crash !== undefined) child.kill('SIGKILL');
    else this.#idle.push(child);
    return ran;
  }

  /** Runs tasks in one process, one after the other, regardless of their results, and then ends it. */
  async inOne(use: (run: (task: Task) => Promise<Ran>) => Promise<void>): Promise<void> {
    const child = this.#start();
    try {
      await use((task) => inChild(child, task, undefined));
    } finally {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  }

  /** Ends all processes of the pool. */
  close(): void {
    for (const child of this.#all) child.kill('SIGKILL');
  }

  #start(): ChildProcess {
    const child = fork(this.#path, { cwd: this.#cwd, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.#all.add(child);
    child.once('exit', () => {
      this.#all.delete(child);
      const at = this.#idle.indexOf(child);
      if (at >= 0) this.#idle.splice(at, 1);
    });
    return child;
  }
}

function inChild(child: ChildProcess, task: Task, killAfterMs: number | undefined): Promise<Ran> {
  return new Promise((resolve) => {
    let timer: NodeJS.Timeout | undefined;
    const end = (ran: Ran): void => {
      clearTimeout(timer);
      child.off('message', hear).off('exit', died);
      resolve(ran);
    };
    let stdout = '';
    const died = (): void => end({ code: 137, stdout, stderr: '', operations: 0 });
    const hear = (message: WorkerMessage): void => {
      if ('code' in message) end({ ...message, stdout });
      else if ('printed' in message) stdout += message.printed;
      else if (killAfterMs !== undefined) timer = setTimeout(() => child.kill('SIGKILL'), killAfterMs);
    };
    child.on('message', hear).once('exit', died);
    child.send(task, (error) => (error ? died() : undefined));
  });
}

/** Runs a task in a new process, as a shell would. */
export function runAlone({ args, env }: Task, cwd: string, killAfterMs?: number): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [bin, ...args], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const [stdout, stderr]: [string[], string[]] = [[], []];
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk.toString()));
    // Delays the kill, because a process takes about 100 ms to start.
    const timer =
      killAfterMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), 90 + killAfterMs);
    child.once('close', (code) => {
      clearTimeout(timer);
      resolve({ code: code ?? 137, stdout: stdout.join(''), stderr: stderr.join(''), operations: 0 });
    });
  });
}
