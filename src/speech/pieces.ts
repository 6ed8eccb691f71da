import { readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { deadlineIn, type Deadline } from '../clock.ts';
import { MgwError, localError } from '../errors.ts';
import { type OutputLock, removeLeftovers, type Claimant } from '../files/output-lock.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { findEarlier, jobsOf } from '../jobs/create-or-resume.ts';
import { claimantOf, lockOutput, bestEffort, speechIdentity } from '../jobs/lock-output.ts';
import { fingerprintOf } from '../jobs/order.ts';
import { isSameOutput, pieceName } from '../jobs/output.ts';
import type { JsonObject } from '../json.ts';
import { checkBudgets, type PricedOrder } from '../payment/reserve.ts';
import { makeFolder, makeOwnFolder, removeIfEmpty } from '../files/make-folder.ts';
import { intactFileAt } from './earlier-run.ts';
import { FileSink } from './file-sink.ts';
import { hashOfPieces, joinedPart, type Joiner } from './containers.ts';
import { piecesError, type PieceFailure } from './errors.ts';
import type { AudioSink } from './sink.ts';
import { speak } from './speak.ts';
import { withoutRepeats, type SpeechDeps } from './audio-stream.ts';
import { speechModel } from './wire.ts';

/** Long text to speak in pieces that make up one output. */
export interface PiecesOrder {
  /** The bodies of the pieces, in order. */
  bodies: readonly JsonObject[];
  /** The bodies without the configured defaults. Default: `bodies`. */
  userBodies?: readonly JsonObject[] | undefined;
  /** Whether to pay again for pieces that were cut off. Complete pieces are never paid for again. */
  fresh: boolean;
  /** After this deadline, no further piece is started. */
  deadline: Deadline;
  /** Maximum number of concurrent pieces. */
  concurrency: number;
  /** Absolute path of the folder for complete pieces; removed when the output is published. */
  folder: string;
  mime: string;
  join: Joiner;
  /** Called with the number of complete pieces. */
  onPiece?: (completeCount: number) => void;
}

/** The result of speaking and joining several pieces. */
export interface SpokenPieces {
  jobs: Job[];
  file?: JobFile;
  /** The number of pieces reused from earlier runs. This run does not pay for them. */
  reused: number;
  /** Call this after reporting the result. Until then, the same command recognizes the output as its own. */
  delivered: () => Promise<void>;
}

/**
 * Speaks the pieces of long text, each as a separate job, and joins them in order. Pieces that an earlier run paid for
 * are read from their folder, so a rerun pays only for the missing ones. Pieces whose payment is in doubt are not sent
 * again without `fresh`; the others are still spoken. After any other failure, or after the deadline, no further piece
 * is started. Pieces in progress are finished, because they are paid for.
 * @throws PiecesError with the code of the worst error; MgwError if nothing was started.
 */
export async function speakPieces(
  order: PiecesOrder,
  deps: SpeechDeps,
  sink: AudioSink,
): Promise<SpokenPieces> {
  const { deadline, folder, bodies } = order;
  const identity = `pieces ${hashOfPieces(bodies)}`;
  if (sink.target === undefined)
    await makeFolder(dirname(folder)).catch((error: unknown) => {
      throw localError(error, folder, 'no');
    });
  // If two processes speak the same text to the same output, the second waits and then finds the output.
  const output = await lockOutput(sink.target ?? folder, deps, { identity, deadline });
  sink.lock = output;
  const release = (): Promise<void> => bestEffort(deps, () => output.release());
  const speech = await new Pieces(order, withoutRepeats(deps), sink, output)
    .speak()
    .finally(async () => {
      await sink.discard();
      await bestEffort(deps, () => removeIfEmpty(folder));
    })
    .catch(async (error: unknown) => {
      await release();
      throw error;
    });
  return { ...speech, delivered: release };
}

type UnreportedPieces = Omit<SpokenPieces, 'delivered'>;
const notStarted = new Error('not started');
/** How long pieces in progress may take after the deadline, in ms. */
const maxFinishMs = 300_000;

/** The state of one run over all pieces. */
class Pieces {
  readonly #order: PiecesOrder;
  readonly #deps: SpeechDeps;
  readonly #sink: AudioSink;
  readonly #output: OutputLock;
  readonly #finishBy: Deadline;
  readonly #jobs: (Job | undefined)[] = [];
  readonly #failures: PieceFailure[] = [];
  /** The file of each piece, in order. A piece's worker settles the piece's promise. */
  readonly #files: Promise<JobFile>[];
  readonly #settle: { resolve: (file: JobFile) => void; reject: (error: Error) => void }[] = [];
  #next = 0;
  /** The indexes of the complete pieces. */
  readonly #complete = new Set<number>();
  #reused = 0;
  #isStopped = false;

  constructor(order: PiecesOrder, deps: SpeechDeps, sink: AudioSink, output: OutputLock) {
    this.#order = order;
    this.#deps = deps;
    this.#sink = sink;
    this.#output = output;
    this.#finishBy = deadlineIn(order.deadline.remainingMs() + maxFinishMs, deps.clock);
    this.#files = order.bodies.map(
      (_, index) => new Promise((resolve, reject) => (this.#settle[index] = { resolve, reject })),
    );
    // The promises are awaited one after the other, so a rejection may be handled late.
    for (const file of this.#files) file.catch(() => undefined);
  }

  async speak(): Promise<UnreportedPieces> {
    const { folder } = this.#order;
    const published = await this.#findPublished();
    if (published !== undefined) return published;
    await this.#checkBudgets();
    await this.#sink.open(this.#output.metadata.sealed !== undefined);
    // Creates the folder durably, because it will contain paid audio.
    await makeOwnFolder(folder).catch((error: unknown) => {
      throw localError(error, folder, 'no');
    });
    const writing = this.#write().catch((error: unknown) => {
      this.#isStopped = true;
      return { error };
    });
    await Promise.all(Array.from({ length: this.#order.concurrency }, () => this.#runWorker()));
    for (const { reject } of this.#settle) reject(notStarted);
    const writeResult = await writing;
    if (this.#failures.length === 0 && writeResult !== undefined && writeResult.error !== notStarted)
      this.#failures.push({ index: undefined, error: writeResult.error });
    if (this.#failures.length > 0 || this.#complete.size < this.#files.length)
      throw await this.#createError();
    return { jobs: this.#startedJobs(), file: await this.#publish(), reused: this.#reused };
  }

  // Checks the total cost of the missing pieces: a budget that cannot pay for all of them pays for none.
  async #checkBudgets(): Promise<void> {
    const { allowances, priceOf } = this.#deps;
    const budgets = await allowances();
    if (budgets.length === 0) return;
    const orders: PricedOrder[] = [];
    for (const [index, body] of this.#order.bodies.entries()) {
      const complete = await intactFileAt(this.#target(index), await this.#findEarlierJobs(index));
      if (complete !== undefined || (await this.#isInDoubt(index))) continue;
      orders.push(await priceOf({ protocol: 'tts', model: speechModel, body }));
    }
    await checkBudgets(orders, budgets);
  }

  // Finds the output of an earlier run that was killed between publishing and reporting it.
  async #findPublished(): Promise<UnreportedPieces | undefined> {
    const { sealed } = this.#output.metadata;
    const { target: path } = this.#sink;
    if (this.#order.fresh || sealed === undefined || path === undefined) return undefined;
    const file = { path, ...sealed, mime: this.#order.mime };
    if (!(await isIntact(file))) return undefined;
    await this.#clear();
    const earlier = await Promise.all(this.#files.map((_, index) => this.#findEarlierJobs(index)));
    return { jobs: earlier.flatMap(([latest]) => latest ?? []), file, reused: earlier.length };
  }

  async #publish(): Promise<JobFile | undefined> {
    const savedFile = await this.#sink.complete();
    // Record the output before publishing it, so that a later run recognizes it.
    const record = ({ path, bytes, sha256 }: JobFile): Promise<void> =>
      this.#output.note({ sealed: { bytes, sha256 } }).catch((error: unknown) => {
        throw localError(error, path, 'yes');
      });
    const file = savedFile && (await this.#sink.publish(savedFile, record));
    await this.#clear();
    return file;
  }

  async #clear(): Promise<void> {
    const { folder, bodies } = this.#order;
    // Publishing a labelled output leaves its unlabelled part behind.
    const targets = [...bodies.map((_, index) => this.#target(index)), joinedPart(folder, bodies)];
    await bestEffort(this.#deps, async () => removePieces(targets, await claimantOf(this.#deps)));
  }

  async #runWorker(): Promise<void> {
    const { bodies, deadline, onPiece } = this.#order;
    const { soft } = this.#deps.signals;
    while (!this.#isStopped && !soft.aborted && deadline.remainingMs() > 0 && this.#next < bodies.length) {
      const index = this.#next++;
      let wasInDoubt = false;
      try {
        wasInDoubt = await this.#isInDoubt(index);
        this.#settle[index]?.resolve(await this.#speakPiece(index));
        this.#complete.add(index);
        onPiece?.(this.#complete.size);
      } catch (error) {
        this.#jobs[index] = error instanceof MgwError ? error.job : undefined;
        this.#failures.push({ index, error });
        // A piece that an earlier run left in doubt was not sent by this run, so the following pieces may succeed.
        if (!wasInDoubt) this.#isStopped = true;
      }
    }
  }

  async #speakPiece(index: number): Promise<JobFile> {
    const { mime, fresh, deadline } = this.#order;
    const target = this.#target(index);
    const earlier = await this.#findEarlierJobs(index);
    const complete = await intactFileAt(target, earlier);
    if (complete !== undefined) {
      this.#jobs[index] = complete.job;
      this.#reused += 1;
      return complete.file;
    }
    // Replace a file only if it is a broken file from an earlier run.
    const force = earlier.some((job) => job.files.some(({ path }) => isSameOutput(path, target)));
    const sink = new FileSink({ target, force, mime });
    const order = { ...this.#piece(index), fresh, deadline, finishBy: this.#finishBy, output: target };
    const { job, file, delivered } = await speak(order, this.#deps, sink);
    await delivered();
    this.#jobs[index] = job;
    if (file === undefined) throw new MgwError('internal', 'a piece of speech has no file');
    return file;
  }

  // The variant depends on the whole body, so that pieces of different voices are not joined.
  #piece(index: number): { protocol: 'tts'; body: JsonObject; userBody?: JsonObject; variant: string } {
    const [body = {}, userBody] = [this.#order.bodies[index], this.#order.userBodies?.[index]];
    const variant = pieceName(index, fingerprintOf({ protocol: 'tts', body }, this.#deps.gateway));
    return { protocol: 'tts', body, userBody, variant };
  }

  #target(index: number): string {
    return join(this.#order.folder, this.#piece(index).variant);
  }

  async #isInDoubt(index: number): Promise<boolean> {
    if (this.#order.fresh) return false;
    const goal = { command: 'submit', ask: 'file', output: this.#target(index) } as const;
    const submission = { ...this.#piece(index), goal, fresh: false, isOneShot: true };
    const { job } = await findEarlier(submission, this.#deps);
    return job !== undefined && job.state !== 'prepared';
  }

  #findEarlierJobs(index: number): Promise<Job[]> {
    return jobsOf(fingerprintOf(this.#piece(index), this.#deps.gateway), this.#deps);
  }

  // Writes the pieces in order, each as soon as it is complete, so that a listener need not wait for the last one.
  async #write(): Promise<void> {
    for (const [index, file] of this.#files.entries()) {
      const { path } = await file;
      const isLast = index === this.#files.length - 1;
      await this.#sink.write(this.#order.join(await readFile(path), isLast));
    }
  }

  #startedJobs(): Job[] {
    return this.#jobs.filter((job) => job !== undefined);
  }

  async #createError(): Promise<unknown> {
    const { folder, bodies } = this.#order;
    const isPaid = this.#complete.size > this.#reused;
    const counts = { completeCount: this.#complete.size, count: bodies.length };
    const failures = await Promise.all(this.#failures.map((failure) => this.#withWholeCost(failure)));
    const state = { failures, jobs: this.#startedJobs(), folder, isPaid };
    return piecesError({ ...state, ...counts, signal: this.#deps.signals.soft });
  }

  // If a budget refused one piece, reports the cost of all missing pieces instead.
  async #withWholeCost(failure: PieceFailure): Promise<PieceFailure> {
    if (!(failure.error instanceof MgwError) || failure.error.budget?.limit === undefined) return failure;
    return this.#checkBudgets().then(
      () => failure,
      (error: unknown) => ({ index: undefined, error }),
    );
  }
}

/**
 * Removes the pieces, and leftovers of runs that were killed or failed. The folder may also contain the user's own
 * files, so only names with the hash of the order are removed.
 * @throws file system errors.
 */
async function removePieces(targets: readonly string[], claimant: Claimant): Promise<void> {
  for (const target of targets) {
    for (const path of [target, `${target}.part`]) await rm(path, { force: true });
    await removeLeftovers(target, speechIdentity, claimant);
  }
}
