import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { asSentence } from '../http/failures.ts';
import { backoffMs } from '../http/retry.ts';
import { download, type DownloadOutcome, type DownloadProgress } from '../http/download.ts';
import type { OutputLock } from '../files/output-lock.ts';
import { checkFree, publish } from '../files/publish.ts';
import { isIntact, type SealedFile } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import type { Protocol, Source } from '../protocols/protocol.ts';
import { fetchCommand, goneError, interruptedError, isLoss, pendingError, showCommand } from './errors.ts';
import type { JobDeps } from './order.ts';
import { kindOf, type InlineMedia } from './inline-media.ts';
import { isSameOutput } from './output.ts';
import { observe } from './observe.ts';
import { markedCopy } from './mark.ts';
import { mismatchText, provenanceOf, receiptOf } from './receipt.ts';
import type { WatchedJob } from './watch.ts';

/** Options for saving results. */
export interface SaveOptions {
  /** Whether to overwrite an existing file at the target. */
  force: boolean;
  key: string;
  trustedOrigins: readonly string[];
  onProgress?: (progress: DownloadProgress) => void;
  /** If false, the file is temporary and is not recorded. */
  record?: boolean;
  /** Whether to mark an MP4 as AI-generated. */
  mark?: boolean | undefined;
  /** Whether the caller throws an error if a file differs from the request. If not, prints a note. */
  strict?: boolean | undefined;
}

interface ResultOptions extends SaveOptions {
  deadline: Deadline;
  intervalMs: number;
  inline: InlineMedia;
  lock: (place: Place) => Promise<OutputLock>;
}

/** A result's index and path. */
export interface Place {
  index: number;
  /** The result's number, for its record; see {@link JobFile}. */
  sample?: number | undefined;
  /** Absolute path. */
  path: string;
}

/** Maximum number of requests for a new URL. */
const maxRefreshes = 3;

/** Minimum size of a video, in bytes. No container has a shorter header. */
const minVideoBytes = 8;

/**
 * Saves one result of a finished job at `place`, measures it and records it. Requests a new URL if one has expired, and
 * waits for a result that is not ready.
 * @throws MgwError: exit 9 gone or broken, 10 cannot be saved here, 3 the result's URL requires the key but is not
 * trusted, 8 not ready at the deadline.
 */
export async function saveResult(
  watchedJob: WatchedJob,
  place: Place,
  protocol: Protocol,
  deps: JobDeps,
  options: ResultOptions,
): Promise<JobFile> {
  const { job } = watchedJob;
  const intact = await intactFile(job, place, options.force);
  if (intact !== undefined) return intact;
  const result = watchedJob.observation.results[place.index] ?? { sources: [] };
  if (result.sources.length === 0) throw noSourceError(watchedJob, place.index);
  const output = await options.lock(place);
  const { file: part, mime = result.mime } = await obtainResult(result.sources, place, {
    job,
    protocol,
    deps,
    options,
    watchedJob,
    output,
  });
  const receipt = receiptOf(part.path, job, protocol);
  const markedFile = options.mark ? await markedCopy(part, output, deps.note) : undefined;
  const { bytes, sha256 } = markedFile ?? part;
  const markFields = markedFile && { ...provenanceOf(markedFile.path), unmarked_sha256: part.sha256 };
  const file: JobFile = {
    path: place.path,
    ...(place.sample !== undefined && { sample: place.sample }),
    ...{ bytes, sha256, mime, ...receipt, ...markFields },
  };
  // Record the file before publishing it, so that a later run recognizes the file by its hash.
  if (options.record !== false) await deps.ledger.append(job.id, { type: 'file', file });
  const { assertLease } = output;
  await publish(markedFile ?? part, file.path, {
    force: options.force,
    isBegun: recordedAt(job, place) !== undefined,
    assertLease,
  });
  const { record = true, strict = false } = options;
  if (file.mismatches !== undefined && record && !strict) deps.note(mismatchText(file));
  return file;
}

// Returns the file that an earlier run published, or was about to publish, at the path.
function recordedAt(job: Job, { path }: Place): JobFile | undefined {
  return job.files.findLast((file) => isSameOutput(file.path, path));
}

// Returns the intact file that this job saved at `place` earlier; undefined if there is none. Throws if a different
// file exists there and `force` is false.
async function intactFile(job: Job, place: Place, force: boolean): Promise<JobFile | undefined> {
  const { path } = place;
  const recorded = recordedAt(job, place);
  if (recorded !== undefined && (await isIntact(recorded))) return { ...recorded, path };
  try {
    checkFree(path, { force, charged: 'yes', isBegun: recorded !== undefined });
    return undefined;
  } catch (error) {
    throw withNext(error, job);
  }
}

interface Work {
  job: Job;
  protocol: Protocol;
  deps: JobDeps;
  options: ResultOptions;
  watchedJob: WatchedJob;
  output: OutputLock;
}

/** A complete result in a temporary file next to its output. */
interface DownloadedResult {
  file: SealedFile;
  mime?: string;
}

async function obtainResult(
  firstSources: readonly Source[],
  place: Place,
  work: Work,
): Promise<DownloadedResult> {
  let sources = firstSources;
  for (let rounds = 0, refreshes = 0; ; rounds += 1) {
    const outcome = await trySources(sources, refreshes < maxRefreshes, work);
    if (outcome.kind === 'done') return outcome;
    if (outcome.kind === 'broken') throw outcome.error;
    if (outcome.kind === 'refused') throw untrustedSiteError(outcome, work.job);
    if (outcome.kind === 'expired' && refreshes >= maxRefreshes) throw goneError(outcome.failure, work.job);
    if (outcome.kind === 'expired') refreshes += 1;
    else if (rounds === 0) work.deps.note(`Not ready yet: ${asSentence(outcome.failure.message)}`);
    await pause(rounds, outcome.failure, work);
    sources = (await refreshSources(place.index, work)) ?? sources;
  }
}

/** The outcome of one source. `broken`: the source failed, and another attempt cannot help. */
type Outcome = DownloadOutcome | { kind: 'broken'; error: MgwError };
type FailedOutcome = Exclude<Outcome, { kind: 'done' }>;

// Tries a result's sources in order. If all fail, "not ready" takes precedence over "expired". An error of another
// source takes precedence over "expired" only if no new URL can be requested.
async function trySources(sources: readonly Source[], canRefresh: boolean, work: Work): Promise<Outcome> {
  const failures: FailedOutcome[] = [];
  for (const source of sources) {
    const outcome =
      source.kind === 'inline' ? inlineFile(source.index, work) : await downloadFrom(source, work);
    if (outcome.kind === 'done') return outcome;
    failures.push(outcome);
  }
  const lastKinds = canRefresh ? (['expired', 'broken'] as const) : (['broken', 'expired'] as const);
  const priority = ['not-ready', 'refused', ...lastKinds] as const;
  const reported = priority
    .map((kind) => failures.find((each) => each.kind === kind))
    .find((each) => each !== undefined);
  return (
    reported ?? {
      kind: 'expired',
      failure: { code: 'result_unavailable', message: 'the gateway returned no URL' },
    }
  );
}

function inlineFile(index: number, { job, watchedJob, options }: Work): Outcome {
  const file = options.inline.file(index);
  const broken = (reason: string): Outcome => ({
    kind: 'broken',
    error: corruptError(job, `the video inside the response is ${reason}`),
  });
  const fault = watchedJob.spooled[index]?.fault;
  if (file === undefined || fault !== undefined) return broken(`broken: ${fault ?? 'it is missing'}`);
  if (file.bytes === 0) return broken('empty');
  const kind = kindOf(file.path);
  if (kind.flaw !== undefined) return broken(kind.flaw);
  // A word that is sent instead of a video may also be valid Base64.
  if (file.bytes < minVideoBytes) return broken(`no video: ${file.bytes} bytes`);
  return { kind: 'done', file, mime: kind.mime };
}

function downloadFrom(
  source: Exclude<Source, { kind: 'inline' }>,
  { job, protocol, deps, options, output }: Work,
): Promise<Outcome> {
  const { baseUrl, downloadConnections, trace } = deps.client;
  const key = source.kind === 'url' ? source.key : 'own-site';
  return download({ url: addressOf(source, baseUrl), key }, output, {
    gateway: {
      baseUrl,
      key: options.key,
      auth: protocol.auth,
      trustedOrigins: options.trustedOrigins,
      userAgent: deps.userAgent,
      downloadConnections,
      trace,
    },
    clock: deps.clock,
    deadline: options.deadline,
    signal: deps.signals.soft,
    retries: deps.retries,
    notReady: (reply) => protocol.notReady(reply),
    onProgress: options.onProgress,
    note: deps.note,
  }).catch((thrown: unknown) => {
    if (deps.signals.soft.aborted) throw interruptedError(deps.signals.soft, job, 'yes');
    const error = withNext(thrown, job);
    if (isLoss(error)) return { kind: 'broken', error };
    throw error;
  });
}

function addressOf(source: Exclude<Source, { kind: 'inline' }>, baseUrl: URL): string {
  return source.kind === 'url' ? source.url : baseUrl.href.replace(/\/$/, '') + source.path;
}

// Adds the command to run next. If a download fails, the job is still paid for, and its result can be fetched again
// unless the failure is permanent.
function withNext(error: unknown, job: Job): unknown {
  if (!(error instanceof MgwError) || error.next !== undefined) return error;
  return error.with({ next: error.retry === 'never' ? showCommand(job) : fetchCommand(job) });
}

async function pause(rounds: number, failure: Failure, { job, deps, options }: Work): Promise<void> {
  const { deadline, intervalMs } = options;
  const ms = backoffMs(rounds, { baseMs: intervalMs, capMs: 10_000, floorMs: failure.retryAfterMs });
  await deps.clock.sleep(Math.min(ms, deadline.remainingMs()), deps.signals.soft).catch((error: unknown) => {
    throw deps.signals.soft.aborted ? interruptedError(deps.signals.soft, job, 'yes') : error;
  });
  if (deadline.remainingMs() <= 0) throw pendingError(job, { requestId: failure.requestId }, failure);
}

// Returns new sources only if the job is still reported as succeeded: a different status does not invalidate the
// result. Media in the new response are discarded, so that they cannot replace media saved from the first response.
async function refreshSources(index: number, { job, protocol, deps }: Work): Promise<Source[] | undefined> {
  const { verdict } = await observe(job, protocol, deps);
  const isSuccess = verdict.kind === 'observation' && verdict.state === 'succeeded';
  const sources = isSuccess ? (verdict.results[index]?.sources ?? []) : [];
  const urlSources = sources.filter((source) => source.kind !== 'inline');
  return urlSources.length > 0 ? urlSources : undefined;
}

/** Exit 9: the gateway returned no URL for a result. */
function noSourceError({ job, observation }: WatchedJob, index: number): MgwError {
  const reason = observation.warning ?? `the gateway returned no URL for file ${index + 1}.`;
  return new MgwError('result_unavailable', `A result of ${job.id} is not available: ${reason}`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
    requestId: observation.requestId,
  });
}

/** Exit 9: the response is not a video. */
function corruptError(job: Job, reason: string): MgwError {
  return new MgwError('result_corrupt', `The result of ${job.id} is unusable: ${reason}.`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
  });
}

/** Exit 3: an untrusted site requires the key. */
function untrustedSiteError({ failure, origin }: { failure: Failure; origin: string }, job: Job): MgwError {
  const text = `The result is at ${origin}, which requires a key (${failure.message}). mgw did not send the gateway's key to this origin. If you trust it: --trust-origin ${origin}`;
  return new MgwError('auth', text, {
    charged: 'yes',
    retry: 'resume',
    next: [...fetchCommand(job), '--trust-origin', origin],
  });
}
