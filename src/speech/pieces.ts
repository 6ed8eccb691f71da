import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { localError } from '../files/local-error.ts';
import type { OutputLock } from '../files/output-lock.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { findEarlier, jobsOf } from '../jobs/create-or-resume.ts';
import { claimantOf, lockOutput, bestEffort } from '../jobs/lock-output.ts';
import { fingerprintOf } from '../jobs/order.ts';
import type { JsonObject } from '../json.ts';
import { makeFolder } from '../files/make-folder.ts';
import { FileSink } from './file-sink.ts';
import { hashOfPieces, joinedPart, type Joiner } from './containers.ts';
import { piecesError, type PieceFailure } from './pieces-error.ts';
import { PiecesFolder } from './pieces-folder.ts';
import type { AudioSink } from './sink.ts';
import { speak } from './speak.ts';
import { withoutRepeats, type SpeechDeps } from './audio-stream.ts';

/** A long text, to be spoken in pieces that make one output. */
export interface PiecesOrder {
  /** The bodies of the pieces, in order. */
  bodies: readonly JsonObject[];
  /** Pays again for pieces that were cut off; pieces that are whole are never paid for again. */
  fresh: boolean;
  /** When everything ends. */
  deadline: Deadline;
  /** How many pieces are spoken at once. */
  concurrency: number;
  /** Where whole pieces are kept until all are; removed once the output is published. Absolute path. */
  folder: string;
  mime: string;
  join: Joiner;
  /** Told how many pieces are whole. */
  onPiece?: (whole: number) => void;
}

/** Several pieces, spoken and joined. */
export interface SpokenPieces {
  jobs: Job[];
  file?: JobFile;
  /** How many were there already, and cost nothing now. */
  reused: number;
  /** To be called once the person was told: until then the same command finds the output to be its own. */
  delivered: () => Promise<void>;
}

/**
 * Speaks the pieces of a text, each as a separate job, and joins them in order. Pieces that an earlier run
 * paid for are taken from their folder, so that running it again pays for what is missing only. Pieces that it left in
 * doubt are not sent again without `fresh`; the others are spoken anyway. The first failure of this run keeps
 * further pieces from being begun; those under way are finished, since they are paid for.
 * @throws PiecesError with the code of the piece that weighs most; MgwError if nothing was begun.
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
  // Two processes that speak one text to one place: the second waits, and then finds the output there.
  const output = await lockOutput(sink.target ?? folder, deps, { identity, deadline });
  sink.held = output;
  const release = (): Promise<void> => bestEffort(deps, () => output.release());
  try {
    const spoken = await new Pieces(order, withoutRepeats(deps), sink, output).speak();
    return { ...spoken, delivered: release };
  } catch (error) {
    await release();
    throw error;
  } finally {
    await sink.discard();
  }
}

type Untold = Omit<SpokenPieces, 'delivered'>;
const notBegun = new Error('not begun');

/** The run over all pieces: state that lives for one run. */
class Pieces {
  readonly #order: PiecesOrder;
  readonly #deps: SpeechDeps;
  readonly #sink: AudioSink;
  readonly #output: OutputLock;
  readonly #folder: PiecesFolder;
  readonly #jobs: (Job | undefined)[] = [];
  readonly #failures: PieceFailure[] = [];
  /** Each piece's file, in order; settled by its worker. */
  readonly #files: Promise<JobFile>[];
  readonly #settle: { resolve: (file: JobFile) => void; reject: (error: Error) => void }[] = [];
  #next = 0;
  #whole = 0;
  #reused = 0;
  #stopped = false;

  constructor(order: PiecesOrder, deps: SpeechDeps, sink: AudioSink, output: OutputLock) {
    this.#order = order;
    this.#deps = deps;
    this.#sink = sink;
    this.#output = output;
    this.#folder = new PiecesFolder(order.folder);
    this.#files = order.bodies.map(
      (_, index) => new Promise((resolve, reject) => (this.#settle[index] = { resolve, reject })),
    );
    // They are awaited one after the other: a rejection is handled when its turn comes.
    for (const file of this.#files) file.catch(() => undefined);
  }

  async speak(): Promise<Untold> {
    const published = await this.#published();
    if (published !== undefined) return published;
    await this.#sink.open(this.#output.metadata.sealed !== undefined);
    await this.#folder.open();
    const writing = this.#write().catch((error: unknown) => {
      this.#stopped = true;
      return { error };
    });
    await Promise.all(Array.from({ length: this.#order.concurrency }, () => this.#work()));
    for (const { reject } of this.#settle) reject(notBegun);
    const written = await writing;
    if (this.#failures.length === 0 && written !== undefined && written.error !== notBegun)
      this.#failures.push({ index: undefined, error: written.error });
    if (this.#failures.length > 0 || this.#whole < this.#files.length) {
      await bestEffort(this.#deps, () => this.#folder.leave());
      throw this.#error();
    }
    return { jobs: this.#known(), file: await this.#publish(), reused: this.#reused };
  }

  // Finds the output of an earlier run that was killed after publishing it and before reporting it.
  async #published(): Promise<Untold | undefined> {
    const { sealed } = this.#output.metadata;
    const { target: path } = this.#sink;
    if (this.#order.fresh || sealed === undefined || path === undefined) return undefined;
    const file = { path, ...sealed, mime: this.#order.mime };
    if (!(await isIntact(file))) return undefined;
    await this.#clear();
    const earlier = await Promise.all(this.#files.map((_, index) => this.#earlier(index)));
    return { jobs: earlier.flatMap(([latest]) => latest ?? []), file, reused: earlier.length };
  }

  async #publish(): Promise<JobFile | undefined> {
    const kept = await this.#sink.complete();
    // Recorded before it is published, so that a later run recognises the output.
    const record = ({ path, bytes, sha256 }: JobFile): Promise<void> =>
      this.#output.note({ sealed: { bytes, sha256 } }).catch((error: unknown) => {
        throw localError(error, path, 'yes');
      });
    const file = kept && (await this.#sink.publish(kept, record));
    await this.#clear();
    return file;
  }

  async #clear(): Promise<void> {
    const { folder, bodies } = this.#order;
    const targets = [...this.#files.keys()].map((index) => this.#target(index));
    // A marked output leaves its unmarked part.
    targets.push(joinedPart(folder, bodies));
    await bestEffort(this.#deps, async () => this.#folder.clear(targets, await claimantOf(this.#deps)));
  }

  async #work(): Promise<void> {
    const { bodies, onPiece } = this.#order;
    while (!this.#stopped && !this.#deps.signals.soft.aborted && this.#next < bodies.length) {
      const index = this.#next++;
      let isOld = false;
      try {
        isOld = await this.#isInDoubt(index);
        this.#settle[index]?.resolve(await this.#one(index));
        this.#whole += 1;
        onPiece?.(this.#whole);
      } catch (error) {
        this.#jobs[index] = error instanceof MgwError ? error.job : undefined;
        this.#failures.push({ index, error });
        // What an earlier run left in doubt was not sent now, and says nothing about the pieces after it.
        if (!isOld) this.#stopped = true;
      }
    }
  }

  async #one(index: number): Promise<JobFile> {
    const { mime, fresh, deadline } = this.#order;
    const target = this.#target(index);
    const earlier = await this.#earlier(index);
    for (const job of earlier) {
      const file = job.files.find(({ path }) => path === target);
      if (file === undefined || !(await isIntact(file))) continue;
      this.#jobs[index] = job;
      this.#reused += 1;
      return file;
    }
    // What an earlier run put there, and is not whole any more, is replaced; nothing else is.
    const force = earlier.some((job) => job.files.some(({ path }) => path === target));
    const sink = new FileSink({ target, force, mime });
    const order = { ...this.#piece(index), fresh, deadline, output: target };
    const { job, file, delivered } = await speak(order, this.#deps, sink);
    await delivered();
    this.#jobs[index] = job;
    if (file === undefined) throw new MgwError('internal', 'a piece of speech has no file');
    return file;
  }

  #piece(index: number): { body: JsonObject; variant: string } {
    return { body: this.#order.bodies[index] ?? {}, variant: `piece ${index + 1}` };
  }

  #fingerprint(index: number): string {
    return fingerprintOf({ protocol: 'tts', ...this.#piece(index) }, this.#deps.gateway);
  }

  #target(index: number): string {
    return this.#folder.target(index, this.#fingerprint(index));
  }

  async #isInDoubt(index: number): Promise<boolean> {
    if (this.#order.fresh) return false;
    const goal = { command: 'submit', ask: 'file', output: this.#target(index) } as const;
    const submission = { ...this.#piece(index), protocol: 'tts', goal, fresh: false } as const;
    const { job } = await findEarlier({ ...submission, isOneShot: true }, this.#deps);
    return job !== undefined && job.state !== 'prepared';
  }

  #earlier(index: number): Promise<Job[]> {
    return jobsOf(this.#fingerprint(index), this.#deps);
  }

  // In order and as soon as each is there: a listener at the other end need not wait for the last one.
  async #write(): Promise<void> {
    for (const [index, file] of this.#files.entries()) {
      const { path } = await file;
      const isLast = index === this.#files.length - 1;
      await this.#sink.write(this.#order.join(await readFile(path), isLast));
    }
  }

  #known(): Job[] {
    return this.#jobs.filter((job) => job !== undefined);
  }

  #error(): unknown {
    const { folder, bodies } = this.#order;
    const paid = this.#whole > this.#reused;
    const [failures, whole, jobs, signal] = [
      this.#failures,
      this.#whole,
      this.#known(),
      this.#deps.signals.soft,
    ];
    return piecesError({ failures, whole, count: bodies.length, folder, paid, jobs, signal });
  }
}
