import { exitCodes, MgwError, messageOf, type ExitName } from '../errors.ts';
import { asSentence } from '../http/failures.ts';
import type { Job } from '../job.ts';
import { ClosedPipe } from './sink.ts';

/** A piece that failed; without an index the output that all pieces go to. */
export interface PieceFailure {
  index: number | undefined;
  error: unknown;
}

/** How far a run over several pieces came. */
export interface PiecesState {
  failures: readonly PieceFailure[];
  /** Pieces that are whole. */
  whole: number;
  count: number;
  folder: string;
  /** True if this run paid for a piece that is whole. */
  paid: boolean;
  jobs: Job[];
  signal: AbortSignal;
}

/** Speech in pieces that did not all become whole. */
export class PiecesError extends MgwError {
  /** The jobs of the pieces, as far as they were begun. */
  readonly jobs: Job[];

  constructor(error: MgwError, message: string, state: PiecesState) {
    super(error.code, message, {
      exit: exitNameOf(error),
      charged: state.paid ? 'yes' : error.charged,
      retry: error.retry === 'safe' && state.whole > 0 ? 'resume' : error.retry,
      next: error.next,
      requestId: error.requestId,
      budget: error.budget,
      cause: error.cause ?? error,
    });
    this.jobs = state.jobs;
  }
}

// What may cost money twice weighs most, then what was paid for in vain.
const weight: readonly ExitName[] = ['unknown', 'incomplete', 'failed', 'local', 'auth', 'rejected'];

/** The error of a run over several pieces: that of the piece that weighs most, with what is kept. */
export function piecesError(state: PiecesState): unknown {
  const { failures, whole, count, folder, signal } = state;
  const stray = failures.find(({ error }) => !(error instanceof MgwError) && !(error instanceof ClosedPipe));
  if (stray !== undefined) return stray.error;
  const [worst] = [...failures].sort(
    (one, other) => rank(one.error) - rank(other.error) || (one.index ?? -1) - (other.index ?? -1),
  );
  const error = worst === undefined ? interrupted(signal) : asMgwError(worst.error);
  const others = failures.length > 1 ? ` (and ${failures.length - 1} more)` : '';
  const where = worst?.index === undefined ? '' : `Piece ${worst.index + 1} of ${count}${others}: `;
  const again = inDoubt.has(exitNameOf(error)) ? 'running it again with --new' : 'running it again';
  const kept =
    whole === 0
      ? ''
      : ` ${whole} of ${count} pieces are whole and kept in ${folder}: ${again} pays for the others only.`;
  return new PiecesError(error, `${where}${asSentence(error.message)}${kept}`, state);
}

// Pieces that may have been billed, and are not sent again without being asked for.
const inDoubt = new Set<ExitName>(['unknown', 'incomplete', 'failed']);

function asMgwError(error: unknown): MgwError {
  if (error instanceof MgwError) return error;
  return new MgwError('speech_incomplete', messageOf(error), { charged: 'yes', cause: error });
}

function interrupted(signal: AbortSignal): MgwError {
  const exit = signal.reason === 'SIGTERM' ? 'terminated' : 'interrupted';
  return new MgwError('pending', 'Interrupted before every piece was spoken.', { exit, retry: 'resume' });
}

function rank(error: unknown): number {
  const place = error instanceof MgwError ? weight.indexOf(exitNameOf(error)) : 1;
  return place === -1 ? weight.length : place;
}

function exitNameOf(error: MgwError): ExitName {
  const names = Object.keys(exitCodes) as ExitName[];
  return names.find((name) => exitCodes[name] === error.exitCode) ?? 'internal';
}
