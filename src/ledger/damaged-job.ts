import { MgwError } from '../errors.ts';
import { lostFingerprint, lostProtocol, type Job, type JobRecord, type RecordedEvent } from '../job.ts';
import { foldJob } from './fold.ts';
import { timeOf } from './job-id.ts';

/**
 * The readable part of a record that has lost its beginning: enough to name it, to block a second submission, and to follow
 * its handle if that can be read. `text` is the whole file, readable or not.
 */
export function damagedJob(
  id: string,
  text: string,
  lines: readonly (RecordedEvent | undefined)[],
  lifeOf: JobRecord['lifeOf'],
): Job {
  const protocol = /"protocol":"([a-z][a-z0-9-]{0,31})"/.exec(text)?.[1] ?? lostProtocol;
  const prepared = {
    type: 'prepared' as const,
    at: new Date(timeOf(id)).toISOString(),
    protocol,
    base_url: '',
    fingerprint: lostFingerprint,
    account: '',
  };
  const job = foldJob(id, [prepared, undefined, ...lines], lifeOf);
  if (job === undefined) throw new MgwError('internal', 'a job without a beginning');
  job.error ??= { code: 'local_io', message: 'The record of this job is damaged.' };
  return job;
}
