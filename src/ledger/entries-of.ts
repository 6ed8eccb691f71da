import { lostFingerprint, type Job } from '../job.ts';
import type { IndexEntry } from './index-lines.ts';

/** All that a job goes by. */
export function entriesOf(id: string, job: Job | undefined): IndexEntry[] {
  const { key, handle, record } = job ?? {};
  const fingerprint = record?.fingerprint === lostFingerprint ? undefined : record?.fingerprint;
  const values = { fingerprint, key, handle };
  return Object.entries(values).flatMap(([kind, value]) =>
    value ? [{ kind: kind as IndexEntry['kind'], value, id }] : [],
  );
}
