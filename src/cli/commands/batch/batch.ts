import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { registerPlan } from './plan.ts';
import { registerRetry } from './retry.ts';
import { registerBatchStatus } from './status.ts';
import { registerRunBatch } from './run.ts';

const more = `
Examples:
  $ mgw batch plan clips.csv
  $ mgw batch run clips.csv
  $ mgw help batch
See mgw help batch for the file, its fields, and what becomes of a row.`;

/** `mgw batch plan|run|status|retry`. */
export function registerBatch(parent: Command, run: Run): void {
  const batch = parent
    .command('batch')
    .description('many jobs from one file, each paid for once')
    .addHelpText('after', more);
  registerPlan(batch, run);
  registerRunBatch(batch, run);
  registerBatchStatus(batch, run);
  registerRetry(batch, run);
}
