import type { Job } from '../job.ts';
import { fetchCommand, showCommand } from '../jobs/errors.ts';
import type { ShownState } from './data.ts';

/** The command that gets a job on, as an argument vector; undefined where there is nothing to do. */
export function wayOn(job: Job, state: ShownState, hasFiles: boolean): string[] | undefined {
  switch (state) {
    case 'succeeded':
      return hasFiles ? undefined : fetched(job);
    case 'queued':
    case 'running':
      return fetched(job);
    case 'unknown':
      return resolved(job);
    case 'failed':
    case 'filtered':
    case 'rejected':
      return retried(job);
    case 'prepared':
    case 'sending':
      return showCommand(job);
  }
}

// Speech leaves nothing at the gateway that could be fetched.
function fetched(job: Job): string[] {
  return job.protocol === 'tts' ? retried(job) : [...fetchCommand(job), '-o', `${job.id}.mp4`];
}

function resolved(job: Job): string[] {
  const resolve = ['mgw', 'jobs', 'resolve', job.id];
  if (job.protocol === 'tts') return [...resolve, '--not-created'];
  return [...resolve, '--adopt', job.record.possibleHandle ?? 'HANDLE'];
}

function retried(job: Job): string[] {
  const [batch, row] = job.key?.split('/') ?? [];
  if (batch === undefined || row === undefined) return showCommand(job);
  return ['mgw', 'batch', 'retry', batch, '--id', row];
}
