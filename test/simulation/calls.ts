import type { Status } from './disk.ts';

/** A request of a simulated process to the machine: a system call that it waits for, or a wait for its next event. */
export interface Asked {
  /** A system call; absent if the process has nothing more to do before its next event. */
  call?: Call | undefined;
  /** The operations that it started since its last request, and those that it cancelled. */
  begun: Begun[];
  ended: number[];
  /** The exit code, once the process has ended. */
  exit?: number | undefined;
}

export interface Call {
  name: string;
  args: unknown[];
}

/** An operation that causes one or more events: a system call, a timer, a connection, a request. */
export interface Begun extends Call {
  id: number;
}

/** The machine's reply: the result of the call, an event, a command line to run, or that the process is dead. */
export interface Replied {
  now: number;
  monotonic: number;
  value?: unknown;
  error?: { code: string } | undefined;
  /** The operation of the event. */
  id?: number | undefined;
  start?: Start;
  isDead?: boolean;
}

/** A process to start. */
export interface Start {
  args: string[];
  env: Record<string, string>;
  pid: number;
  seed: number;
  /** undici's connect hook does not run, as if another program had replaced it. */
  isHookless: boolean;
}

export type { Status };
