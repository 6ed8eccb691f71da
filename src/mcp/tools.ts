import type { Session } from '../flows/session.ts';
import type { Authority } from './authority.ts';
import type { CheckBatch, StartedRun } from './batches.ts';
import type { Calls } from './calls.ts';
import type { Confirmation } from './confirmation.ts';
import type { Root } from './root.ts';

/** What the tools of one server work with. */
export interface Tools {
  session: Session;
  calls: Calls;
  root: Root;
  authority: Authority;
  checkBatch: CheckBatch;
  /** The runs of batches by their names, also those that have ended. */
  runs: Map<string, StartedRun>;
  /** Absent if no payment needs a person. */
  confirmation: Confirmation | undefined;
}
