import { exitCodes, type Charged, type MgwError } from '../../errors.ts';

/** What a command came to: printed in one place, as text or as one JSON document (design 2). */
export interface Outcome {
  /** Members of the JSON document in addition to `ok`, `exit_code` and `error`. */
  json: Record<string, unknown>;
  /** What goes to stdout where `--json` is not given: data only, no newline at the end. */
  text?: string;
  /** Why it is not ok. */
  error?: MgwError;
  /** Records that it was said; not called where it could not be. Only what cost money has such a record. */
  printed?: () => Promise<void>;
  /** What it cost, where a repetition pays again: said where the outcome itself cannot be printed. */
  paid?: Charged;
  /** True where it is that of a command that ran jobs: a workflow is told of it. */
  isRun?: boolean;
  /** Help that goes to stderr above the error. */
  help?: string;
  /** True where the command has already written its data itself. */
  silent?: boolean;
  /** Overrides the exit code: `partial` where some of several jobs are not ok. */
  exitCode?: number;
}

/** The exit code of an outcome. */
export function exitCodeOf(outcome: Outcome): number {
  return outcome.exitCode ?? outcome.error?.exitCode ?? exitCodes.ok;
}
