import type { Command } from 'commander';
import { addCommands, type Run } from '../../command-tree.ts';

/** `mgw jobs ls|show|wait|fetch|resolve|rm|prune|export|import|gallery|rate`: manages the ledger's jobs. */
export function registerJobs(jobs: Command, run: Run): void {
  addCommands(jobs, run, {
    ls: {
      about: 'list jobs, newest first; with -q only their ids',
      load: async () => (await import('./ls.ts')).registerLs,
    },
    show: {
      about: 'show everything recorded about a job, and its history',
      load: async () => (await import('./show.ts')).registerShow,
    },
    wait: {
      about: 'wait until jobs have finished, and print each as it ends; saves nothing',
      load: async () => (await import('./wait.ts')).registerWait,
    },
    fetch: {
      about: 'wait for jobs of any protocol, and save their results',
      load: async () => (await import('./fetch.ts')).registerFetch,
    },
    resolve: {
      about: 'resolve a submission whose response was lost',
      load: async () => (await import('./resolve.ts')).registerResolve,
    },
    rm: {
      about: 'delete job records, so their keys can be reused; saved files are kept',
      load: async () => (await import('./prune.ts')).registerRm,
    },
    prune: {
      about: 'delete the records of old jobs that are no longer needed; prints their ids',
      load: async () => (await import('./prune.ts')).registerPrune,
    },
    export: {
      about: 'write jobs to stdout as JSON Lines (default: all jobs)',
      load: async () => (await import('./transfer.ts')).registerExport,
    },
    import: {
      about: 'import exported jobs; existing jobs are unchanged',
      load: async () => (await import('./transfer.ts')).registerImport,
    },
    gallery: {
      about: 'make a page to view, compare and rate results',
      load: async () => (await import('./gallery.ts')).registerGallery,
    },
    rate: {
      about: 'rate a result; mgw batch retry --rated uses the rating',
      load: async () => (await import('./rate.ts')).registerRate,
    },
  });
}
