import type { Status } from './disk.ts';

/** A simulated process's request to the machine: a system call, or a wait for the next event. */
export interface ProcessRequest {
  /** The system call; absent if the process has nothing to do before its next event. */
  call?: Call | undefined;
  /** The operations that the process has started since its last request. `ended` lists those that it has cancelled. */
  started: Operation[];
  ended: number[];
  /** The exit code if the process has ended. */
  exit?: number | undefined;
}

export interface Call {
  name: string;
  args: unknown[];
}

/** An operation that causes one or more events: a system call, a timer, a connection or a request. */
export interface Operation extends Call {
  id: number;
}

/** The machine's reply: the call's result, an event, a command line to run, or the death of the process. */
export interface Replied {
  now: number;
  monotonic: number;
  value?: unknown;
  error?: { code: string } | undefined;
  /** The id of the operation that caused the event. */
  id?: number | undefined;
  start?: Start;
  isDead?: boolean;
}

/** The parameters of a process to start. */
export interface Start {
  args: string[];
  env: Record<string, string>;
  pid: number;
  seed: number;
  /** Whether undici's connect hook does not run, as if another program had replaced it. */
  isHookless: boolean;
}

export type { Status };
