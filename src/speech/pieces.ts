import { createHash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { localError } from '../http/local-error.ts';
import type { Job, JobFile } from '../job.ts';
import { findResumable } from '../jobs/create-or-resume.ts';
import { interruptedError } from '../jobs/errors.ts';
import { makeDurableFolder } from '../ledger/durable-file.ts';
import { isIntact } from '../jobs/intact.ts';
import { lease, type Lease } from '../jobs/lease.ts';
import { fingerprintOf } from '../jobs/order.ts';
import type { JsonObject } from '../json.ts';
import { FileSink } from './file-sink.ts';
import { mp3Frames } from './mp3.ts';
import { oggJoiner } from './ogg.ts';
import { piecesError, type PieceFailure } from './pieces-error.ts';
import type { AudioSink } from './sink.ts';
import { speak } from './speak.ts';
import type { SpeechDeps } from './take.ts';

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
  /** Gives the bytes of the next piece, in order, as they stand in the joined output. */
  join: (piece: Uint8Array, isLast: boolean) => Uint8Array;
  /** Told how many pieces are whole. */
  onPiece?: (whole: number) => void;
}

/** Several pieces, spoken and joined. */
export interface SpokenPieces {
  jobs: Job[];
  file?: JobFile;
  /** How many were there already, and cost nothing now. */
  reused: number;
}

/** How the pieces of one output are joined, by their format; undefined where that is not known. */
export function joinerFor(wireFormat: string): PiecesOrder['join'] | undefined {
  if (wireFormat === 'mp3') return mp3Frames;
  if (wireFormat === 'ogg_opus') return oggJoiner();
  return wireFormat === 'pcm' ? (piece) => piece : undefined;
}

/**
 * Speaks the pieces of a text, each a job of its own, and joins them in their order. Pieces that an earlier run
 * paid for are taken from their folder, so that running it again pays for what is missing only. Pieces that it left in
 * doubt are not sent again without `fresh`; the others are spoken all the same. The first failure of this run keeps
 * further pieces from being begun; those under way are finished, since they are paid for.
 * @throws PiecesError with the code of the piece that weighs most; MgwError where nothing was begun.
 */
export async function speakPieces(
  order: PiecesOrder,
  deps: SpeechDeps,
  sink: AudioSink,
): Promise<SpokenPieces> {
  const held = await hold(order, deps);
  try {
    await sink.open();
    // What was paid for is in it: its own name has to outlive a power cut as well.
    await makeDurableFolder(order.folder).catch((error: unknown) => {
      throw localError(error, order.folder, 'no');
    });
    return await new Pieces(order, quietly(deps), sink).speak();
  } finally {
    await sink.discard();
    await held.release();
  }
}

// Two processes that speak one text to one place: the second waits, and then finds the output there.
function hold(order: PiecesOrder, deps: SpeechDeps): Promise<Lease> {
  const name = `pieces.${createHash('sha256').update(order.folder).digest('hex').slice(0, 40)}`;
  const late = (): MgwError =>
    new MgwError('pending', `Another process still speaks to ${order.folder}.`, {
      charged: 'no',
      retry: 'resume',
    });
  return lease(name, deps, { deadline: order.deadline, late }).catch((error: unknown) => {
    throw deps.signals.soft.aborted ? interruptedError(deps.signals.soft, undefined, 'no') : error;
  });
}

// Several streams have the same thing to say when they are interrupted.
function quietly(deps: SpeechDeps): SpeechDeps {
  const said = new Set<string>();
  const note = (text: string): void => {
    if (!said.has(text)) deps.note(text);
    said.add(text);
  };
  return { ...deps, note, onAudio: undefined };
}

const notBegun = new Error('not begun');

/** The run over all pieces: state that lives for one run. */
class Pieces {
  readonly #order: PiecesOrder;
  readonly #deps: SpeechDeps;
  readonly #sink: AudioSink;
  readonly #jobs: (Job | undefined)[] = [];
  readonly #failures: PieceFailure[] = [];
  /** Each piece's file, in order; settled when its worker is done with it. */
  readonly #files: Deferred<JobFile>[];
  #next = 0;
  #whole = 0;
  #reused = 0;
  #stopped = false;

  constructor(order: PiecesOrder, deps: SpeechDeps, sink: AudioSink) {
    this.#order = order;
    this.#deps = deps;
    this.#sink = sink;
    this.#files = order.bodies.map(() => deferred<JobFile>());
  }

  async speak(): Promise<SpokenPieces> {
    const { concurrency, folder } = this.#order;
    const writing = this.#write().catch((error: unknown) => {
      this.#stopped = true;
      return { error };
    });
    await Promise.all(Array.from({ length: concurrency }, () => this.#work()));
    for (const { reject } of this.#files) reject(notBegun);
    const written = await writing;
    if (this.#failures.length === 0 && written !== undefined && written.error !== notBegun)
      this.#failures.push({ index: undefined, error: written.error });
    if (this.#failures.length > 0 || this.#whole < this.#files.length) throw this.#error();
    const kept = await this.#sink.complete();
    const file = kept && (await this.#sink.publish(kept));
    await rm(folder, { recursive: true, force: true });
    return { jobs: this.#known(), file, reused: this.#reused };
  }

  async #work(): Promise<void> {
    const { bodies, onPiece } = this.#order;
    while (!this.#stopped && !this.#deps.signals.soft.aborted && this.#next < bodies.length) {
      const index = this.#next++;
      let isOld = false;
      try {
        isOld = await this.#isInDoubt(index);
        this.#files[index]?.resolve(await this.#one(index));
        this.#whole += 1;
        onPiece?.(this.#whole);
      } catch (error) {
        this.#jobs[index] = error instanceof MgwError ? error.job : undefined;
        this.#failures.push({ index, error });
        // What an earlier run left in doubt was not sent now, and says nothing about the pieces behind it.
        if (!isOld) this.#stopped = true;
      }
    }
  }

  async #one(index: number): Promise<JobFile> {
    const { mime, fresh, deadline } = this.#order;
    const piece = this.#piece(index);
    const target = this.#target(index);
    const kept = await this.#keptPiece(piece, target);
    if (kept !== undefined) {
      this.#jobs[index] = kept.job;
      this.#reused += 1;
      return kept.file;
    }
    const sink = new FileSink({ target, force: true, mime });
    const order = { ...piece, fresh, deadline, output: target };
    const { job, file, delivered } = await speak(order, this.#deps, sink);
    await delivered();
    this.#jobs[index] = job;
    if (file === undefined) throw new MgwError('internal', 'a piece of speech has no file');
    return file;
  }

  #piece(index: number): PieceBody {
    return { body: this.#order.bodies[index] ?? {}, variant: `piece ${index + 1}` };
  }

  #target(index: number): string {
    return join(this.#order.folder, String(index + 1).padStart(4, '0'));
  }

  async #isInDoubt(index: number): Promise<boolean> {
    if (this.#order.fresh) return false;
    const goal = { command: 'submit', ask: 'file', output: this.#target(index) } as const;
    const submission = {
      ...this.#piece(index),
      protocol: 'tts',
      goal,
      fresh: false,
      isOneShot: true,
    } as const;
    const { job } = await findResumable(submission, this.#deps);
    return job !== undefined && job.state !== 'prepared';
  }

  async #keptPiece(piece: PieceBody, target: string): Promise<{ job: Job; file: JobFile } | undefined> {
    const { ledger } = this.#deps;
    const fingerprint = fingerprintOf({ protocol: 'tts', ...piece }, this.#deps.gateway);
    for (const id of await ledger.lookup('fingerprint', fingerprint)) {
      const job = await ledger.read(id);
      const file = job?.files.find(({ path }) => path === target);
      if (job?.record.fingerprint === fingerprint && file && (await isIntact(file))) return { job, file };
    }
    return undefined;
  }

  // In order and as soon as each is there: a listener at the other end need not wait for the last one.
  async #write(): Promise<void> {
    for (const [index, { promise }] of this.#files.entries()) {
      const { path } = await promise;
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
    return piecesError({
      failures: this.#failures,
      whole: this.#whole,
      count: bodies.length,
      folder,
      paid,
      jobs: this.#known(),
      signal: this.#deps.signals.soft,
    });
  }
}

type PieceBody = { body: JsonObject } & { variant: string };

interface Deferred<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: Error) => void;
}

function deferred<T>(): Deferred<T> {
  const made: Partial<Deferred<T>> = {};
  const promise = new Promise<T>((resolve, reject) => Object.assign(made, { resolve, reject }));
  // Nobody may be waiting for it any more when it fails.
  promise.catch(() => undefined);
  return { ...(made as Deferred<T>), promise };
}
