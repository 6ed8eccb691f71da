import type { Writable } from 'node:stream';
import type { Clock } from '../../clock.ts';
import type { JobState } from '../../job.ts';

/** What a person sees on stderr while something goes on. */
export interface Progress {
  /** A line that stays. */
  note(text: string): void;
  /** A job that is waited for, as it was seen last: a spinner on a terminal, else a line for each change. */
  waiting(job: Waiting): void;
  /** A job is not waited for any more. */
  ended(id: string): void;
  /** Shows an outstanding call on a terminal if nothing else is shown. Returns the function that ends it. */
  calling(what: string): () => void;
  /** How far a transfer is. */
  downloading(transfer: Transfer): void;
  /** How many of several things are done. */
  counting(count: Count): void;
  /** Does something to the terminal, such as writing data to it, with the spinner taken off it. */
  aside<T>(action: () => Promise<T>): Promise<T>;
  /** Something else draws from now on: only notes are shown. */
  giveWay(): void;
  /** Takes the spinner off the terminal, and ends the heartbeat. */
  stop(): void;
}

/** A job that is waited for. */
export interface Waiting {
  id: string;
  /** Its state as mgw names it, and the gateway's own word if that says more. */
  state: JobState;
  native?: string;
  /** 0 to 100, if the gateway gave one. */
  percent?: number;
  /** When it should have finished going by earlier jobs of its model, ms since 1970. */
  expectedAt?: number;
}

/** How far a download or a stream is. */
export interface Transfer {
  /** What is going on; `downloading` if it is not given. */
  what?: string;
  bytes: number;
  /** Where it is known. */
  total?: number;
  bytesPerSecond?: number;
}

/** How many of several things are done: `speaking`, 3 of 12 `pieces`. */
export interface Count {
  what: string;
  done: number;
  total: number;
  of: string;
}

/** How progress is shown. */
export interface ProgressOptions {
  stderr: Writable & { isTTY?: boolean; columns?: number };
  env: NodeJS.ProcessEnv;
  quiet: boolean;
  color: boolean;
  clock: Pick<Clock, 'now' | 'monotonic'>;
}
