import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { registerPlan } from './plan.ts';
import { registerRetry } from './retry.ts';
import { registerBatchStatus } from './status.ts';
import { registerRunBatch } from './run.ts';

/** `mgw batch plan|run|status|retry`. */
export function registerBatch(parent: Command, run: Run): void {
  const batch = parent.command('batch').description('many jobs from one file; each row is paid for once');
  registerPlan(batch, run);
  registerRunBatch(batch, run);
  registerBatchStatus(batch, run);
  registerRetry(batch, run);
}
