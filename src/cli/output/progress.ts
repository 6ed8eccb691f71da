import type { Writable } from 'node:stream';
import type { Clock } from '../../clock.ts';
import type { JobState } from '../../job.ts';

/** The progress display on stderr. */
export interface Progress {
  /** Prints a permanent line. */
  note(text: string): void;
  /** Shows the last state of a job that is waited for: a spinner on a terminal, otherwise a line for each change. */
  waiting(job: Waiting): void;
  /** Ends the display of a job. */
  ended(id: string): void;
  /** Shows an outstanding call on a terminal if nothing else is shown. Returns the function that ends it. */
  calling(what: string): () => void;
  /** Shows the progress of a transfer. */
  downloading(transfer: Transfer): void;
  /** Shows how many of several things are done. */
  counting(count: Count): void;
  /** Uses the terminal, for instance to write data, while the spinner is hidden. */
  aside<T>(action: () => Promise<T>): Promise<T>;
  /** Only shows notes from now on, since something else draws. */
  giveWay(): void;
  /** Removes the spinner from the terminal, and ends the heartbeat. */
  stop(): void;
}

/** A job that is waited for. */
export interface Waiting {
  id: string;
  /** Its state in mgw's terms, and the gateway's own word if that says more. */
  state: JobState;
  native?: string;
  /** 0 to 100, if the gateway gave one. */
  percent?: number;
  /** The estimated end, from earlier jobs of its model, ms since 1970. */
  expectedAt?: number;
}

/** The progress of a download or a stream. */
export interface Transfer {
  /** The activity; default `downloading`. */
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

/** The options of the display. */
export interface ProgressOptions {
  stderr: Writable & { isTTY?: boolean; columns?: number };
  env: NodeJS.ProcessEnv;
  quiet: boolean;
  color: boolean;
  clock: Pick<Clock, 'now' | 'monotonic'>;
}
