import type { Budget } from '../budget/budget.ts';
import type { BudgetKind } from '../budget/file-budget.ts';
import type { JobDeps } from '../jobs/order.ts';
import type { Protocol } from '../protocols/protocol.ts';
import type { ObjectStore } from '../store/object-store.ts';

/** The dependencies of a flow. */
export interface FlowDeps extends JobDeps {
  /** The API key; it is sent to result addresses on the gateway's own site. */
  key: string;
  trustedOrigins: readonly string[];
  /** The shortest pause between two polls of one job, ms. */
  pollIntervalMs: number;
  /** Returns the protocol with its settings. */
  configured: (protocol: Protocol) => Protocol;
  /** Opens the store for results. */
  objects: () => Promise<ObjectStore>;
  /** The folder in which results are complete before they are uploaded. Absolute path. */
  uploadFolder: string;
  /** Opens a budget of the ledger. @throws MgwError('local_io') if it cannot be opened. */
  openBudget: (kind: BudgetKind, name: string) => Promise<Budget>;
}
