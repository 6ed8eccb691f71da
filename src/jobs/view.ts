import type { Job } from '../job.ts';
import { shownState } from './reconcile.ts';

/** A job as users see it: without the ledger's bookkeeping. */
export type JobView = Omit<Job, 'record'>;

/** The job object of `--json`: the members of design 2 in their order, absent if there is nothing to say. */
export function jobView(job: Job): JobView {
  return {
    id: job.id,
    protocol: job.protocol,
    model: job.model,
    key: job.key,
    handle: job.handle,
    state: shownState(job),
    native_status: job.native_status,
    progress: job.progress,
    error: job.error,
    base_url: job.base_url,
    created_at: job.created_at,
    submitted_at: job.submitted_at,
    finished_at: job.finished_at,
    fetched_at: job.fetched_at,
    files: job.files,
    cost: job.cost,
    tags: job.tags,
    rating: job.rating,
    note: job.note,
    rated_at: job.rated_at,
    usage: job.usage,
    details: job.details,
    request: job.request,
  };
}
