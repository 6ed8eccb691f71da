import type { Command } from 'commander';
import { addCommands, type Run } from '../../command-tree.ts';

const helpText = `
Examples:
  $ mgw batch plan clips.csv
  $ mgw batch run clips.csv
  $ mgw help batch
See mgw help batch for the file format, its fields and the row states.`;

/** `mgw batch plan|run|enqueue|status|ls|join|retry`: runs many jobs from one file. */
export function registerBatch(batch: Command, run: Run): void {
  batch.addHelpText('after', helpText);
  addCommands(batch, run, {
    plan: {
      about: 'check every row, and show what a run would do and cost; sends nothing',
      load: async () => (await import('./plan.ts')).registerPlan,
    },
    run: {
      about: 'run every row: submit, wait, save; a rerun continues, and never pays twice for a row',
      load: async () => (await import('./run.ts')).registerRunBatch,
    },
    enqueue: {
      about: 'queue every row for workers; a rerun adds only new rows',
      load: async () => (await import('./enqueue.ts')).registerEnqueue,
    },
    status: {
      about: 'show the recorded state of every row; exit 0 if all rows are done, else 11',
      load: async () => (await import('./status.ts')).registerBatchStatus,
    },
    ls: {
      about: 'list the batches run here, with their rows and cost',
      load: async () => (await import('./ls.ts')).registerBatchLs,
    },
    join: {
      about: 'join the finished videos with ffmpeg, in file order; free of charge',
      load: async () => (await import('./join.ts')).registerJoin,
    },
    retry: {
      about: 'remake rows that failed, were rated low or were changed, and pay again',
      load: async () => (await import('./retry.ts')).registerRetry,
    },
  });
}
