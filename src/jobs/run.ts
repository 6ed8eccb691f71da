import { MgwError } from '../errors.ts';
import type { Ask, Job } from '../job.ts';
import type { JobDeps } from './gateway.ts';

/** Records that a run got what it was asked for: a repeat of its command is then a second take (design 4). */
export async function delivered(job: Job, run: string, ask: Ask, deps: JobDeps): Promise<void> {
  await deps.ledger.append(job.id, { type: 'delivered', run, ask });
}

/**
 * Records that a run ended before that, so that the same command resumes. Never throws: the error that ended
 * the run is the one to tell, and a dead run is recognised without this record too.
 */
export async function detached(job: Job, run: string, error: unknown, deps: JobDeps): Promise<void> {
  const exitCode = error instanceof MgwError ? error.exitCode : 1;
  try {
    await deps.ledger.append(job.id, { type: 'detached', run, exit_code: exitCode });
  } catch {
    deps.note(`That the run of ${job.id} ended could not be recorded.`);
  }
}
