import type { Clock, Deadline } from '../clock.ts';
import { MgwError, type ErrorCode, localError } from '../errors.ts';
import type { Failure, Reply } from '../exchange.ts';
import { backoffMs } from './retry.ts';
import { withRetryDelay } from './failures.ts';
import { attempt, corrupt, type Attempt, type AttemptOptions } from './download/attempt.ts';
import type { DownloadGateway } from './download/follow.ts';
import { mimeOf, mp4In } from '../media/mp4.ts';
import { PartFile } from '../files/part-file.ts';
import type { OutputLock } from '../files/output-lock.ts';
import type { SealedFile } from '../files/whole-file.ts';

/** A file's address, and whether the key may be sent to it. */
export interface DownloadSource {
  url: string;
  /** `own-site` sends the key if design 6 allows it for the address; `never` sends none. */
  key: 'own-site' | 'never';
}

/** The progress of a download. */
export interface DownloadProgress {
  bytes: number;
  total?: number;
  bytesPerSecond?: number;
}

/** Dependencies and limits of a download. */
export interface DownloadDeps {
  gateway: DownloadGateway;
  clock: Clock;
  /** The time at which the download is abandoned. Received bytes are kept for the next run. */
  deadline: Deadline;
  /** Aborts the download. Received bytes are kept for the next run. */
  signal?: AbortSignal;
  /** Time limit for connecting, in ms. Default: 10 s. */
  connectTimeoutMs?: number;
  /** The maximum time without a byte, in ms. Default: 60 s. */
  idleTimeoutMs?: number;
  /** The maximum number of consecutive attempts without progress before the download is abandoned. */
  retries: number;
  /** Whether a response that is not media reports that the result is not ready yet. */
  notReady?: (reply: Reply) => boolean;
  onProgress?: (progress: DownloadProgress) => void;
  /** Prints a line for the user. */
  note?: (text: string) => void;
}

/** The result of a download. */
export type DownloadOutcome =
  /** The file, ready to be published. */
  | { kind: 'done'; file: SealedFile; mime?: string }
  /** The address does not serve the file, or no longer does (401, 403, 404, 410 and other refusals). */
  | { kind: 'expired'; failure: Failure }
  | { kind: 'not-ready'; failure: Failure }
  /** A site other than the gateway's requires a key (401, 403), but mgw sends it no key. */
  | { kind: 'refused'; failure: Failure; origin: string };

/** The maximum pause that a gateway may request, in ms. */
const maxPauseMs = 300_000;

/**
 * Downloads a file into the `.part` file of an output. Continues an earlier download with a range request if a strong
 * validator proves that the file is the same. Checks the length and the MP4 boxes, hashes the file and flushes it to
 * disk. Retries failed attempts with backoff, and gives up after too many consecutive attempts without progress (design
 * 6, specification 7.1). Keeps an unfinished part if a later run can continue it.
 * @throws MgwError, charged 'yes': exit 8 at the deadline; 9 for an address that must not be fetched or does not serve
 * the file; 6 if reads keep failing; 10 if the disk fails. Also throws the signal's reason.
 */
export async function download(
  source: DownloadSource,
  output: OutputLock,
  deps: DownloadDeps,
): Promise<DownloadOutcome> {
  deps.signal?.throwIfAborted();
  const file = await PartFile.open(output, deps.clock);
  let savedPart: 'whole' | 'part' | 'nothing' = 'part';
  try {
    const outcome = await runAttempts(source, file, deps);
    if (outcome.kind === 'done') savedPart = 'whole';
    if (outcome.kind !== 'broken') return outcome;
    savedPart = 'nothing';
    throw outcome.error;
  } finally {
    await file.close(savedPart);
  }
}

/** The server delivered a corrupt file, which is discarded. */
interface BrokenFile {
  kind: 'broken';
  error: MgwError;
}

async function runAttempts(
  source: DownloadSource,
  file: PartFile,
  deps: DownloadDeps,
): Promise<DownloadOutcome | BrokenFile> {
  const options = optionsOf(file, deps);
  const countStalls = stallCounter(file);
  for (let brokenCount = 0; ;) {
    let result: Attempt | DownloadOutcome = await attempt(source, file, options);
    // Some servers refuse every request for a range, but serve the whole file.
    if (result.kind === 'expired' && file.validator !== undefined)
      result = await attempt(source, file, { ...options, ignorePart: true });
    if (result.kind === 'received') {
      const mp4 = mp4Of(file);
      const flaw = mp4?.flaw;
      if (flaw === undefined)
        return { kind: 'done', mime: mimeOf(mp4 !== undefined, result.contentType), file: await file.seal() };
      brokenCount += 1;
      if (brokenCount > 1)
        return { kind: 'broken', error: corrupt(`The downloaded file is corrupt: ${flaw}`) };
      await file.restart();
      result = {
        kind: 'again',
        failure: { code: 'result_corrupt', message: `the downloaded file is corrupt: ${flaw}` },
      };
    }
    if (result.kind !== 'again') return result;
    await pause(result.failure, countStalls(), deps);
  }
}

function optionsOf(file: PartFile, deps: DownloadDeps): AttemptOptions {
  const speed = speedometer(deps.clock, file.length);
  return {
    ...deps,
    connectTimeoutMs: deps.connectTimeoutMs ?? 10_000,
    idleTimeoutMs: deps.idleTimeoutMs ?? 60_000,
    notReady: deps.notReady ?? (() => false),
    onBytes: () => {
      const { length: bytes, total } = file;
      deps.onProgress?.({ bytes, total, bytesPerSecond: speed(bytes) });
    },
  };
}

function mp4Of({ descriptor, path }: PartFile): ReturnType<typeof mp4In> {
  try {
    return mp4In(descriptor);
  } catch (error) {
    throw localError(error, path, 'yes');
  }
}

// Returns a function to call after each attempt. The function returns the number of consecutive attempts without
// progress.
function stallCounter(file: PartFile): () => number {
  let maxLength = file.length;
  let stalledAttempts = 0;
  return () => {
    const { length, total = Infinity } = file;
    // A restart is progress only beyond the earlier length, and single bytes are not progress. Otherwise the download
    // might never end.
    const hasProgressed = length >= maxLength + Math.min(64 * 1024, Math.max(1, total / 100));
    if (hasProgressed) maxLength = length;
    stalledAttempts = hasProgressed ? 0 : stalledAttempts + 1;
    return stalledAttempts;
  };
}

async function pause(failure: Failure, tries: number, deps: DownloadDeps): Promise<void> {
  const { retryAfterMs: floorMs = 0, message } = failure;
  const leftMs = deps.deadline.remainingMs();
  if (leftMs <= 0) throw deadlineError(failure);
  if (tries > deps.retries || floorMs > maxPauseMs) throw failedError(failure);
  const ms = backoffMs(tries, { floorMs });
  deps.note?.(`${message}; trying again in ${(ms / 1000).toFixed(1)} s.`);
  await deps.clock.sleep(Math.min(ms, leftMs), deps.signal);
  if (ms >= leftMs) throw deadlineError(failure);
}

function deadlineError({ message }: Failure): MgwError {
  const text = `The download did not finish before the time limit: ${message}. Any received part is kept.`;
  return new MgwError('pending', text, { charged: 'yes', retry: 'resume' });
}

const incompleteCodes: readonly ErrorCode[] = ['result_corrupt', 'result_unavailable'];

function failedError(failure: Failure): MgwError {
  const { code, message, requestId } = failure;
  return new MgwError(code, withRetryDelay(`The download failed: ${message}.`, failure), {
    exit: incompleteCodes.includes(code) ? 'incomplete' : 'unavailable',
    charged: 'yes',
    retry: 'resume',
    requestId,
  });
}

const averagingMs = 3000;

/**
 * Returns a speed meter: a function of the number of bytes received so far. The function returns bytes per second,
 * weighted towards the last three seconds; undefined at first.
 */
export function speedometer(clock: Clock, bytes: number): (bytes: number) => number | undefined {
  const startedAt = clock.monotonic();
  let previous = { at: startedAt, bytes };
  let average = 0;
  let speed: number | undefined;
  return (received) => {
    const elapsed = clock.monotonic() - previous.at;
    if (elapsed <= 0) return speed;
    const current = (Math.max(0, received - previous.bytes) * 1000) / elapsed;
    const decay = Math.exp(-elapsed / averagingMs);
    average = average * decay + current * (1 - decay);
    previous = { at: clock.monotonic(), bytes: received };
    // Corrects for the average's initial value of zero.
    return (speed = average / (1 - Math.exp((startedAt - previous.at) / averagingMs)));
  };
}
