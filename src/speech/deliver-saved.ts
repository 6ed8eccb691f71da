import type { Deadline } from '../clock.ts';
import type { Job, JobFile } from '../job.ts';
import type { JobDeps } from '../jobs/deps.ts';
import { holdOutput, speechIdentity, tidily } from '../jobs/hold-output.ts';
import { savedSpeech } from './earlier-take.ts';
import { goneError } from './errors.ts';
import type { AudioSink } from './sink.ts';

/**
 * Puts the audio of a job that succeeded into another place, from wherever on this machine it is still whole; the gateway
 * is not asked, since it keeps no speech.
 * @returns the file, undefined where it went to a stream
 * @throws MgwError: exit 9 where it is nowhere, 8 where another process holds the output until the deadline, 10.
 */
export async function deliverSaved(
  job: Job,
  sink: AudioSink,
  deadline: Deadline,
  deps: JobDeps,
): Promise<JobFile | undefined> {
  const held =
    sink.target && (await holdOutput(sink.target, deps, { identity: speechIdentity, deadline, job }));
  if (held) sink.held = held;
  try {
    const recovered = await sink.recover(savedSpeech(job));
    if (recovered === undefined) throw goneError(job);
    const { file } = recovered;
    const isNew = file !== undefined && !job.files.some(({ path }) => path === file.path);
    if (isNew) await deps.ledger.append(job.id, { type: 'file', file });
    return file;
  } finally {
    if (held) await tidily(deps, () => held.release());
  }
}
