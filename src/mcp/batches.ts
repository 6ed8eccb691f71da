import type { MgwError } from '../errors.ts';
import type { FlowDeps } from '../flows/flow-deps.ts';
import type { Root } from './root.ts';

/** How an agent names a batch. */
export interface AskedBatch {
  /** The path of its manifest. */
  manifest: string;
  name?: string | undefined;
  output?: string | undefined;
}

/** A batch whose rows were all checked; nothing was sent. */
export interface CheckedBatch {
  name: string;
  /** What is shown of it: counts, cost, problems, rows. */
  view: Record<string, unknown>;
  /** What the open rows cost at most, an exact decimal; undefined if a price is unknown. */
  atMost: string | undefined;
  /** Whether any row is open. */
  isOpen: boolean;
  /** Why it cannot run: invalid rows. */
  refusal: MgwError | undefined;
  /** A hash of everything it asks for. */
  request: string;
  /**
   * Carries out the open rows, and no row whose request has changed since the check.
   * @returns why it stopped before its end, undefined if it did not
   */
  run(deps: FlowDeps): Promise<MgwError | undefined>;
}

/** Opens batches by the code of `mgw batch`; files are read and written below the root only. */
export type CheckBatch = (asked: AskedBatch, root: Root, kind: 'plan' | 'status') => Promise<CheckedBatch>;

/** The run of a batch that this server has started. */
export interface StartedRun {
  isRunning: boolean;
  error?: MgwError;
}
