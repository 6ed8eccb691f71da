import { fork, spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** The members of a `ChildProcess` that are available even if another process started it. */
export interface Launched extends EventEmitter {
  /** Set soon after the start, long before the program's first line runs. */
  readonly pid?: number | undefined;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly exitCode: number | null;
  readonly signalCode: NodeJS.Signals | null;
  kill(signal?: NodeJS.Signals): boolean;
}

/** Options for starting a process. */
export interface LaunchOptions {
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** The ids of the user and the group that run the process (default: those of this process). */
  uid?: number;
  gid?: number;
}

/** A message from the launcher about a process. */
interface LauncherMessage {
  id: number;
  pid?: number;
  error?: string;
  code?: number | null;
  signal?: NodeJS.Signals | null;
}

/** The launcher process, and the path of its socket. */
let launcher: { child: ChildProcess; path: string } | undefined;
let count = 0;
const launched = new Map<number, Child>();

/**
 * Makes {@link launch} start processes through a small launcher process. On Linux, Node forks to start a process.
 * Forking a test process, which uses half a gigabyte, takes about 50 ms of CPU time. Forking the launcher takes 2 ms.
 */
export async function openLauncher(): Promise<void> {
  if (launcher !== undefined || process.platform !== 'linux') return;
  const path = join(tmpdir(), `mgw-launcher-${process.pid}`);
  const child = fork(resolve('test/support/launcher.mjs'), [path], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  });
  const died = once(child, 'exit').then(() => Promise.reject(new Error('the launcher ended')));
  await Promise.race([once(child, 'message'), died]);
  child.on('message', (message: LauncherMessage) => launched.get(message.id)?.hear(message));
  child.once('exit', () => {
    for (const each of launched.values()) each.hear({ id: each.id, error: 'the launcher ended' });
  });
  child.unref();
  child.channel?.unref();
  launcher = { child, path };
}

/** Starts a process with its three streams open. */
export function launch(command: string, args: string[], options: LaunchOptions): Launched {
  if (launcher === undefined) return spawn(command, args, { ...options, stdio: 'pipe' });
  const child = new Child(launcher.path);
  launcher.child.send({ id: child.id, command, args, options });
  return child;
}

class Child extends EventEmitter implements Launched {
  readonly id = (count += 1);
  pid: number | undefined;
  exitCode: number | null = null;
  signalCode: NodeJS.Signals | null = null;
  readonly stdin: Socket;
  readonly stdout: Socket;
  readonly stderr: Socket;

  constructor(path: string) {
    super();
    // The launcher identifies the three streams by the order of these connections.
    this.stdin = connect(path);
    this.stdout = connect(path);
    this.stderr = connect(path);
    launched.set(this.id, this);
  }

  kill(signal: NodeJS.Signals = 'SIGTERM'): boolean {
    if (this.exitCode !== null || this.signalCode !== null) return false;
    if (this.pid === undefined) {
      this.once('spawn', () => this.kill(signal));
      return true;
    }
    try {
      return process.kill(this.pid, signal);
    } catch (error) {
      // The process has exited, but the launcher's message about that has not arrived.
      if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
      throw error;
    }
  }

  hear({ pid, error, code, signal }: LauncherMessage): void {
    if (pid !== undefined) this.#begin(pid);
    else if (error !== undefined) this.#fail(error);
    else this.#exit(code ?? null, signal ?? null);
  }

  #begin(pid: number): void {
    this.pid = pid;
    this.emit('spawn');
  }

  #fail(error: string): void {
    launched.delete(this.id);
    this.emit('error', new Error(error));
  }

  #exit(code: number | null, signal: NodeJS.Signals | null): void {
    launched.delete(this.id);
    [this.exitCode, this.signalCode] = [code, signal];
    this.stdin.destroy();
    this.emit('exit', code, signal);
    const outputs = [this.stdout, this.stderr];
    for (const output of outputs) output.resume();
    void Promise.all(outputs.map(closed)).then(() => this.emit('close', code, signal));
  }
}

function closed(stream: Socket): Promise<unknown> {
  return stream.closed ? Promise.resolve() : new Promise((done) => stream.once('close', done));
}
