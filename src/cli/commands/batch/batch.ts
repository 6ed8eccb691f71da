import type { Command } from 'commander';
import { list, type Run } from '../../command-tree.ts';

const more = `
Examples:
  $ mgw batch plan clips.csv
  $ mgw batch run clips.csv
  $ mgw help batch
See mgw help batch for the file, its fields and the states of rows.`;

/** `mgw batch plan|run|enqueue|status|ls|join|retry`: runs many jobs from one file. */
export function registerBatch(batch: Command, run: Run): void {
  batch.addHelpText('after', more);
  list(batch, run, {
    plan: {
      about: 'check every row, and show what would be done and what it would cost; nothing is sent',
      load: async () => (await import('./plan.ts')).registerPlan,
    },
    run: {
      about: 'run every row: submit, wait, save; a rerun continues and pays for no row twice',
      load: async () => (await import('./run.ts')).registerRunBatch,
    },
    enqueue: {
      about: 'queue every row for the workers of a fleet; a rerun adds only new rows',
      load: async () => (await import('./enqueue.ts')).registerEnqueue,
    },
    status: {
      about: 'show the state of every row from local records; exit 0 if all are done, else 11',
      load: async () => (await import('./status.ts')).registerBatchStatus,
    },
    ls: {
      about: 'list the batches that were run here, with their rows and cost',
      load: async () => (await import('./ls.ts')).registerBatchLs,
    },
    join: {
      about: 'join the finished videos in the order of the file, with ffmpeg; nothing is paid',
      load: async () => (await import('./join.ts')).registerJoin,
    },
    retry: {
      about: 'pay again for a new take of rows that failed, were rated low or were changed',
      load: async () => (await import('./retry.ts')).registerRetry,
    },
  });
}
