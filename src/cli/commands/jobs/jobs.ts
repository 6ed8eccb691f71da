import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { registerGallery } from './gallery.ts';
import { registerExport, registerImport } from './transfer.ts';
import { registerFetch } from './fetch.ts';
import { registerLs } from './ls.ts';
import { registerPrune } from './prune.ts';
import { registerRate } from './rate.ts';
import { registerResolve } from './resolve.ts';
import { registerRm } from './rm.ts';
import { registerShow } from './show.ts';
import { registerWait } from './wait.ts';

/** `mgw jobs ls|show|wait|fetch|resolve|rm|prune|export|import|gallery|rate`: the ledger. */
export function registerJobs(parent: Command, run: Run): void {
  const jobs = parent.command('jobs').description('what was submitted, and what became of it');
  for (const register of [
    registerLs,
    registerShow,
    registerWait,
    registerFetch,
    registerResolve,
    registerRm,
    registerPrune,
    registerExport,
    registerImport,
    registerGallery,
    registerRate,
  ])
    register(jobs, run);
}
