import { basename } from 'node:path';
import { messageOf, MgwError, exitCodes, type ExitName } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { asSentence } from '../http/failures.ts';
import type { Job, JobFile } from '../job.ts';
import type { Signals } from '../payment/pay-once.ts';
import { newTakeFlag, resolveCommand, showCommand } from '../jobs/errors.ts';
import { ClosedPipe } from './sink.ts';
import { isOwnCallId } from './wire.ts';

/**
 * Exit 9: the stream is not proven to be complete (design 8). Exit 130 or 143 if the user interrupted the stream.
 * @param partPath the path of the partial audio; undefined if none was saved
 * @param details `hasAudio`: whether audio is known to have arrived, which proves that the call was charged
 */
export function incompleteError(
  job: Job,
  why: string,
  partPath: string | undefined,
  details: { hasAudio: boolean; signals?: Signals; cause?: unknown },
): MgwError {
  const { hasAudio, signals, cause } = details;
  const chargedText = hasAudio ? 'was charged' : 'may have been charged';
  const text = `Speech is incomplete: ${asSentence(why)} ${keptAudioText(partPath)} The call ${chargedText} and is ${notResentText(job)}`;
  const exit =
    signals?.hard.aborted === true
      ? signals.soft.reason === 'SIGTERM'
        ? 'terminated'
        : 'interrupted'
      : undefined;
  const charged = hasAudio ? 'yes' : 'maybe';
  return new MgwError('speech_incomplete', text, { ...chargedDetails(job), charged, exit, cause });
}

/** Exit 7: it is unknown whether the call was accepted. There is no task to adopt. */
export function unknownSpeechError(job: Job, why: string, requestId?: string): MgwError {
  const text = `${asSentence(why)} The gateway may have accepted and charged job ${job.id}; it is not sent again. Speech cannot be fetched afterwards: ${newTakeFlag(job)} pays for another take. If the bill shows no charge, resolve the job as not created. The same command then sends it again.`;
  const next = resolveCommand(job);
  return new MgwError('submit_unknown', text, { charged: 'maybe', retry: 'never', next, requestId, job });
}

/** Exit 5: the gateway ended the stream with an error frame (specification 3.4). The call may have been charged. */
export function failedSpeechError(failure: Failure, job: Job, partPath: string | undefined): MgwError {
  const { code, message, nativeCode, requestId = gatewayIdOf(job) } = failure;
  const codePrefix = nativeCode === undefined || message.includes(nativeCode) ? '' : `Error ${nativeCode}: `;
  const audioText = partPath === undefined ? '' : ` ${keptAudioText(partPath)}`;
  return new MgwError(
    code,
    `${codePrefix}${asSentence(message)}${audioText} The call is ${notResentText(job)}`,
    {
      ...chargedDetails(job),
      exit: 'failed',
      charged: 'maybe',
      requestId,
    },
  );
}

/** Exit 10: the audio arrived but could not be written. Exit 9 if the reader closed the pipe. */
export function unwritableError(error: unknown, job: Job, partPath: string | undefined): MgwError {
  if (error instanceof ClosedPipe)
    return incompleteError(job, messageOf(error), partPath, { hasAudio: true, cause: error });
  if (!(error instanceof MgwError)) throw error;
  const text = `${error.message} mgw stopped reading the stream. ${keptAudioText(partPath)} The call was charged: ${newTakeFlag(job)} pays for another take.`;
  return new MgwError(error.code, text, { ...chargedDetails(job), cause: error });
}

/** Exit 9: the file with the complete speech was deleted or changed, and speech cannot be fetched again. */
export function deletedAudioError(job: Job): MgwError {
  const places = job.files.map((file) => file.path).join(', ') || 'standard output';
  const text = `Job ${job.id} was delivered to ${places}, but the file is missing or changed, and speech cannot be fetched again. Another --key, or --new without one, pays for another take.`;
  return new MgwError('result_unavailable', text, chargedDetails(job));
}

/** Exit 9: the job's file was a piece of long text, and mgw removes the pieces after it has joined them. */
export function joinedPieceError(job: Job, { path }: JobFile, output = 'standard output'): MgwError {
  const text = `Job ${job.id} is piece ${Number.parseInt(basename(path), 10)} of a long text. mgw removes the pieces after joining them into ${output}.`;
  return new MgwError('result_unavailable', text, chargedDetails(job));
}

/** Exit 10: the speech was paid for, but the ledger has no record of it. */
export function unrecordedError(error: unknown, file: JobFile | undefined, audioText: string): MgwError {
  const savedText =
    file === undefined ? audioText : `The speech itself is complete and saved as ${file.path}.`;
  const text = `Could not record that the gateway sent speech: ${messageOf(error)} ${savedText} Running the command again pays again.`;
  return new MgwError('local_io', text, { charged: 'yes', retry: 'never', cause: error });
}

function chargedDetails(job: Job) {
  return { charged: 'yes', retry: 'never', next: showCommand(job), requestId: gatewayIdOf(job) } as const;
}

// Returns the gateway's id for the call; undefined if mgw generated the handle, because the gateway does not know such
// a handle.
function gatewayIdOf({ handle }: Job): string | undefined {
  return handle !== undefined && isOwnCallId(handle) ? undefined : handle;
}

function notResentText(job: Job): string {
  return `not sent again automatically: ${newTakeFlag(job)} pays for another take.`;
}

function keptAudioText(partPath: string | undefined): string {
  return partPath === undefined ? 'No audio was saved.' : `The received audio was saved in ${partPath}.`;
}

/** A piece that failed. `index` is undefined if the joined output failed, or a budget for all missing pieces. */
export interface PieceFailure {
  index: number | undefined;
  error: unknown;
}

/** The progress of a run over several pieces. */
interface PiecesState {
  failures: readonly PieceFailure[];
  /** The number of complete pieces. */
  completeCount: number;
  count: number;
  folder: string;
  /** Whether this run paid for any complete piece. */
  isPaid: boolean;
  jobs: Job[];
  signal: AbortSignal;
}

/** Thrown if some pieces of long text are incomplete. */
export class PiecesError extends MgwError {
  /** The jobs of the pieces that were started. */
  readonly jobs: Job[];

  constructor(error: MgwError, message: string, state: PiecesState) {
    super(error.code, message, {
      exit: exitNameOf(error),
      charged: state.isPaid ? 'yes' : error.charged,
      retry: error.retry === 'safe' && state.completeCount > 0 ? 'resume' : error.retry,
      next: error.next,
      requestId: error.requestId,
      budget: error.budget,
      parts: 'pieces',
      cause: error.cause ?? error,
    });
    this.jobs = state.jobs;
  }
}

// The worst errors come first: those that may cost money twice, then those that cost money for nothing.
const exitsByPriority: readonly ExitName[] = ['unknown', 'incomplete', 'failed', 'local', 'auth', 'rejected'];

/** Returns the error for a run over several pieces: the worst piece's error, and the number of saved pieces. */
export function piecesError(state: PiecesState): unknown {
  const { failures, completeCount, count, folder, signal } = state;
  const unexpected = failures.find(
    ({ error }) => !(error instanceof MgwError) && !(error instanceof ClosedPipe),
  );
  if (unexpected !== undefined) return unexpected.error;
  const [worst] = [...failures].sort(
    (one, other) => rank(one.error) - rank(other.error) || (one.index ?? -1) - (other.index ?? -1),
  );
  const error = worst === undefined ? stoppedError(signal) : asMgwError(worst.error);
  const moreText = failures.length > 1 ? ` (and ${failures.length - 1} more)` : '';
  const pieceText = worst?.index === undefined ? '' : `Piece ${worst.index + 1} of ${count}${moreText}: `;
  const retryText = exitsInDoubt.has(exitNameOf(error)) ? '; --new pays only for the others' : '';
  const keptText =
    completeCount === 0
      ? ''
      : ` ${completeCount} of ${count} pieces are complete and saved in ${folder}${retryText}.`;
  return new PiecesError(error, `${pieceText}${asSentence(error.message)}${keptText}`, state);
}

// The exits of pieces that may have been charged. These pieces are sent again only with --new.
const exitsInDoubt = new Set<ExitName>(['unknown', 'incomplete', 'failed']);

function asMgwError(error: unknown): MgwError {
  if (error instanceof MgwError) return error;
  return new MgwError('speech_incomplete', messageOf(error), { charged: 'yes', cause: error });
}

// The user interrupted the run, or its deadline passed.
function stoppedError(signal: AbortSignal): MgwError {
  if (!signal.aborted)
    return new MgwError('pending', 'The timeout passed before all pieces were spoken.', { retry: 'resume' });
  const exit = signal.reason === 'SIGTERM' ? 'terminated' : 'interrupted';
  return new MgwError('pending', 'Interrupted before all pieces were spoken.', { exit, retry: 'resume' });
}

function rank(error: unknown): number {
  const index = error instanceof MgwError ? exitsByPriority.indexOf(exitNameOf(error)) : 1;
  return index === -1 ? exitsByPriority.length : index;
}

function exitNameOf(error: MgwError): ExitName {
  const names = Object.keys(exitCodes) as ExitName[];
  return names.find((name) => exitCodes[name] === error.exitCode) ?? 'internal';
}
