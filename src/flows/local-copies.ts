import { randomUUID } from 'node:crypto';
import { extname } from 'node:path';
import type { Deadline } from '../clock.ts';
import { usageError } from '../errors.ts';
import { bearer } from '../exchange.ts';
import { unlinkAll } from '../files/claim-log.ts';
import type { OutputLock } from '../files/output-lock.ts';
import { download } from '../http/download.ts';
import type { JobFile } from '../job.ts';
import { bestEffort, lockOutput } from '../jobs/lock-output.ts';
import { printableLine } from '../printable.ts';
import type { AudioSink, RecoveredAudio } from '../speech/sink.ts';
import { isObjectUrl } from '../store-url.ts';
import type { FlowDeps } from './settings.ts';
import { copyPrefix, localPath } from './object-output.ts';
import { type Session, transferDeadline } from './session.ts';

/** Provides results as local files. Objects are downloaded from the store to temporary files. */
export class LocalCopies {
  readonly #deps: FlowDeps;
  readonly #deadline: Deadline;
  readonly #locks: OutputLock[] = [];

  constructor(deps: FlowDeps, deadline: Deadline) {
    this.#deps = deps;
    this.#deadline = deadline;
  }

  /**
   * Returns the path of a local file with a result's content.
   * @throws MgwError('store') if the store does not respond; exit 2 if the object was deleted or differs from its
   * record.
   */
  async pathOf(file: JobFile): Promise<string> {
    if (!isObjectUrl(file.path)) return file.path;
    const deps = this.#deps;
    const deadline = this.#deadline;
    const store = await deps.objects();
    const displayPath = printableLine(file.path, 200);
    if (!(await store.has(file.path, file)))
      throw usageError(`${displayPath} was replaced or deleted after it was saved.`);
    const url = await store.address(file.path);
    const target = await localPath(`${copyPrefix}${randomUUID()}${extname(file.path)}`, deps);
    const lock = await lockOutput(target, deps, { identity: copyPrefix, deadline });
    this.#locks.push(lock);
    const { clock, signals, retries, userAgent, note } = deps;
    // The store is the user's own service and may run on this machine, so its URL is trusted like a gateway's.
    const gateway = { baseUrl: new URL(url), key: '', auth: bearer, trustedOrigins: [], userAgent };
    const downloadOptions = { gateway, clock, deadline, signal: signals.soft, retries, note };
    const outcome = await download({ url, key: 'never' }, lock, downloadOptions);
    if (outcome.kind !== 'done' || outcome.file.sha256 !== file.sha256)
      throw usageError(`${displayPath} no longer has the saved content.`);
    return outcome.file.path;
  }

  /** Removes the temporary files. */
  async close(): Promise<void> {
    for (const lock of this.#locks.splice(0))
      await bestEffort(this.#deps, () => {
        unlinkAll(lock.target, [lock.metadata.part ?? '']);
        lock.release();
      });
  }
}

/** Returns local copies of a session's results. The store is opened only if a result is an object. */
export async function copiesIn(session: Session): Promise<LocalCopies> {
  return new LocalCopies(await session.jobDeps(), await transferDeadline(session));
}

/**
 * Delivers speech that exists only as an object in the store.
 * @param recover delivers a local file
 * @returns undefined if the store has none of the candidates
 * @throws MgwError('store') if the store does not respond.
 */
export async function recoverObject(
  candidates: readonly JobFile[],
  recover: AudioSink['recover'],
  deps: FlowDeps,
  deadline: Deadline,
): Promise<RecoveredAudio | undefined> {
  const store = await deps.objects();
  const copies = new LocalCopies(deps, deadline);
  try {
    for (const file of candidates)
      if (isObjectUrl(file.path) && (await store.has(file.path, file)))
        return await recover([{ ...file, path: await copies.pathOf(file) }]);
    return undefined;
  } finally {
    await copies.close();
  }
}
