import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { usageError } from '../errors.ts';
import { bearer } from '../exchange.ts';
import { localError } from '../files/local-error.ts';
import { download } from '../http/download.ts';
import type { JobFile } from '../job.ts';
import { bestEffort, lockOutput } from '../jobs/lock-output.ts';
import { printableLine } from '../printable.ts';
import { isObjectUrl } from '../store-url.ts';
import type { Session } from './session.ts';

/** Results as local files. Those that are objects are downloaded from the store to temporary files. */
export class LocalCopies {
  readonly #session: Session;
  #folder: string | undefined;
  #count = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  /**
   * Returns the path of a local file with the content of a result.
   * @throws MgwError('store') if the store does not answer; exit 2 if the object is gone or differs from its record.
   */
  async pathOf(file: JobFile): Promise<string> {
    if (!isObjectUrl(file.path)) return file.path;
    const deps = await this.#session.jobDeps();
    const store = await deps.objects();
    const shown = printableLine(file.path, 200);
    if (!(await store.has(file.path, file)))
      throw usageError(`${shown} is not the object that was saved there, or it is gone.`);
    this.#folder ??= await mkdtemp(join(tmpdir(), 'mgw-')).catch((error: unknown) => {
      throw localError(error, tmpdir(), 'no');
    });
    this.#count += 1;
    const url = await store.address(file.path);
    const deadline = await this.#session.deadline();
    const lock = await lockOutput(join(this.#folder, `${this.#count}.mp4`), deps, {
      identity: file.sha256,
      deadline,
    });
    const { clock, signals, retries, userAgent, note } = deps;
    // The store is the user's own service, and may run on this machine.
    const gateway = { baseUrl: new URL(url), key: '', auth: bearer, trustedOrigins: [], userAgent };
    const how = { gateway, clock, deadline, signal: signals.soft, retries, note };
    const outcome = await download({ url, key: 'never' }, lock, how);
    if (outcome.kind !== 'done' || outcome.file.sha256 !== file.sha256)
      throw usageError(`${shown} could not be fetched as it was saved.`);
    return outcome.file.path;
  }

  /** Removes the temporary files. */
  async close(): Promise<void> {
    const folder = this.#folder;
    this.#folder = undefined;
    if (folder === undefined) return;
    await bestEffort(this.#session, () => rm(folder, { recursive: true, force: true }));
  }
}
