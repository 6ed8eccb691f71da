import { messageOf, MgwError } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { asSentence } from '../http/failures.ts';
import type { Job, JobFile } from '../job.ts';
import type { Signals } from '../payment/pay-once.ts';
import { resolveCommand, showCommand } from '../jobs/errors.ts';
import { ClosedPipe } from './sink.ts';
import { isOwnCallId } from './wire.ts';

/**
 * Exit 9: a stream that was billed and did not prove to be whole (design 8); 130 or 143 if a person gave it up.
 *
 * @param kept path of the partial audio, undefined if nothing is kept
 */
export function incompleteError(
  job: Job,
  why: string,
  kept: string | undefined,
  details: { signals?: Signals; cause?: unknown } = {},
): MgwError {
  const { signals, cause } = details;
  const text = `Speech is incomplete: ${why}. ${keptText(kept)} It was billed, and is ${notAgain(job)}`;
  const exit =
    signals?.hard.aborted === true
      ? signals.soft.reason === 'SIGTERM'
        ? 'terminated'
        : 'interrupted'
      : undefined;
  return new MgwError('speech_incomplete', text, { ...atCost(job), exit, cause });
}

/** Exit 7: nothing tells whether the call was taken; there is no task that could be adopted. */
export function unknownSpeechError(job: Job, why: string, requestId?: string): MgwError {
  const text = `${asSentence(why)} The gateway may have accepted and charged job ${job.id}; it is not sent again. Speech cannot be fetched afterwards: --new pays for another take. If the bill shows no charge, say so, and the same command sends it again.`;
  const next = resolveCommand(job);
  return new MgwError('submit_unknown', text, { charged: 'maybe', retry: 'never', next, requestId, job });
}

/** Exit 5: the gateway ended the stream with an error frame (specification 3.4). It may have been billed. */
export function failedSpeechError(failure: Failure, job: Job, kept: string | undefined): MgwError {
  const { code, message, nativeCode, requestId = gatewayIdOf(job) } = failure;
  const named = nativeCode === undefined || message.includes(nativeCode) ? '' : `Error ${nativeCode}: `;
  const audio = kept === undefined ? '' : ` ${keptText(kept)}`;
  return new MgwError(code, `${named}${asSentence(message)}${audio} It is ${notAgain(job)}`, {
    ...atCost(job),
    exit: 'failed',
    charged: 'maybe',
    requestId,
  });
}

/** Exit 10: the audio arrived and could not be written. A closed reader is exit 9. */
export function unwritableError(error: unknown, job: Job, kept: string | undefined): MgwError {
  if (error instanceof ClosedPipe) return incompleteError(job, messageOf(error), kept, { cause: error });
  if (!(error instanceof MgwError)) throw error;
  const text = `${error.message} The stream was given up. ${keptText(kept)} It was billed: --new pays for another take.`;
  return new MgwError(error.code, text, { ...atCost(job), cause: error });
}

/** Exit 9: speech that was whole once and is no longer there; it cannot be fetched again. */
export function deletedAudioError(job: Job): MgwError {
  const places = job.files.map((file) => file.path).join(', ') || 'standard output';
  const text = `Job ${job.id} was spoken and delivered to ${places}; it is not there unchanged, and speech cannot be fetched again. Another --key, or --new without one, pays for another take.`;
  return new MgwError('result_unavailable', text, atCost(job));
}

/** Exit 10: the speech was paid for and the ledger does not know it. */
export function unrecordedError(error: unknown, file: JobFile | undefined, end: string): MgwError {
  const saved = file === undefined ? end : `The speech itself is whole and saved as ${file.path}.`;
  const text = `That the gateway spoke could not be recorded: ${messageOf(error)} ${saved} Running the command again pays again.`;
  return new MgwError('local_io', text, { charged: 'yes', retry: 'never', cause: error });
}

function atCost(job: Job): { charged: 'yes'; retry: 'never'; next: string[]; requestId: string | undefined } {
  return {
    charged: 'yes',
    retry: 'never',
    next: showCommand(job),
    requestId: gatewayIdOf(job),
  };
}

// A handle that was made up here tells the gateway nothing.
function gatewayIdOf({ handle }: Job): string | undefined {
  return handle !== undefined && isOwnCallId(handle) ? undefined : handle;
}

// A key permanently names one submission.
function notAgain({ key }: Job): string {
  return `not sent again by itself: ${key === undefined ? '--new' : 'another --key'} pays for another take.`;
}

function keptText(kept: string | undefined): string {
  return kept === undefined ? 'No audio is kept.' : `What came is kept in ${kept}.`;
}
