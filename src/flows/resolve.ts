import type { Settings } from '../config/resolve.ts';
import { add, formatDecimal, parseDecimal } from '../decimal.ts';
import { messageOf, usageError, MgwError, toMgwError } from '../errors.ts';
import type { Exchange, SubmitVerdict } from '../exchange.ts';
import { lostProtocol, type Job, type JobState } from '../job.ts';
import { newTakeFlag, showCommand } from '../jobs/errors.ts';
import type { JobDeps } from '../jobs/order.ts';
import { isSenderDead, reconcile, shownState, unreachableSenderText } from '../jobs/reconcile.ts';
import { beginRun, type Began, recordFailedRun } from '../jobs/run.ts';
import { isObject, type JsonObject } from '../json.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { protocolNames } from '../protocols/registry.ts';
import { budgetsOfJob, type RecordedBudgets, withRecordedBudgets } from './budgets.ts';
import { withKeptFlags } from './next.ts';
import type { Delivered, FlowHooks } from './deliver.ts';
import { deliverFound } from './fetch.ts';
import { protocolOf, recordedJobHere } from './find-job.ts';
import { withSettings } from './settings.ts';
import type { Session } from './session.ts';
import { recordedBudget } from '../budget/budget.ts';
import { payAndDeliver, videoOrder, type VideoSubmission } from './submit-video.ts';
import { uploadFor } from './uploads.ts';
import { names } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';

/** Options for saving a resolved job's result, or for submitting the job again. */
export type ResolveOptions = Pick<VideoSubmission, 'target' | 'force' | 'deadline' | 'budget'>;

/**
 * Settles a submission whose response was lost, based on what the user found out (design 4). If the task exists and a
 * target is set, waits for the task and saves its result. `resubmit` submits, and pays for, the job again, but only at
 * the job's gateway.
 * @throws MgwError('usage') if there is no such job, the job belongs to a different gateway, or there is nothing to
 * resolve; otherwise as `submitVideo` and `fetch` do.
 */
export async function resolve(
  session: Session,
  ref: string,
  resolution: Resolution,
  options: ResolveOptions,
  hooks: FlowHooks = {},
): Promise<Delivered> {
  const [ledger, settings] = await Promise.all([session.ledger(), session.settings()]);
  // With --not-created, nothing is sent to the gateway.
  const sendsKey = resolution.how !== 'not-created';
  const wordsOf = (job: Job): string[] => ['jobs', 'resolve', job.id, ...flagsOf(resolution)];
  const recorded = await recordedJobHere(session, ref, wordsOf, sendsKey).catch((error: unknown) => {
    throw error instanceof MgwError ? withFlags(error, resolution) : error;
  });
  const isSpeech = recorded.protocol === 'tts';
  const isProtocolLost = recorded.protocol === lostProtocol;
  if (isSpeech || (isProtocolLost && options.target === undefined)) {
    const reconciled = await reconcile(ledger, recorded, () => unreadReply(recorded));
    noteSender(reconciled, resolution, session);
    return withoutFiles(
      await resolveJob(ledger, reconciled, isSpeech ? requireNotCreated(recorded, resolution) : resolution),
    );
  }
  if (isProtocolLost && resolution.how === 'adopted') throw lostProtocolError(recorded, resolution);
  const protocol = withSettings(protocolOf(recorded), settings);
  const job = await reconcile(ledger, recorded, (reply, body) => protocol.readSubmission(reply, body));
  noteSender(job, resolution, session);
  if (resolution.how === 'adopted') checkHandle(resolution.handle, job, protocol);
  if (resolution.how === 'resubmit') {
    const budgets = await budgetsOfJob(session, job);
    return submitAgain(job, protocol, options, session, hooks, budgets).catch((error: unknown) => {
      throw error instanceof MgwError ? withBudgetFlags(error, budgets, options.budget, settings) : error;
    });
  }
  const resolved = await resolveJob(ledger, job, resolution);
  if (options.target === undefined) return withoutFiles(resolved);
  const { target, force, deadline } = options;
  const file = { ask: 'file', target, force, deadline } as const;
  return deliverFound(resolved, protocol, 'fetch', file, await session.jobDeps(), hooks);
}

/** A job in doubt and the possible ways to resolve it. */
export interface Doubt {
  job: Job;
  ways: { resolution: Resolution['how']; command: string[]; meaning: string }[];
}

/**
 * Finds a job in doubt. Changes nothing.
 * @throws MgwError('usage') if there is no such job, or the job belongs to a different gateway or is not in doubt.
 */
export async function findDoubt(session: Session, ref: string): Promise<Doubt> {
  const job = await recordedJobHere(session, ref, ({ id }) => ['jobs', 'resolve', id]);
  const state = shownState(job);
  if (state !== 'unknown' && !isInDoubt(job)) throw nothingToResolve(job, state);
  const adopt = ['--adopt', job.record.possibleHandle ?? 'HANDLE'];
  const allWays: Doubt['ways'] = [
    { resolution: 'adopted', command: adopt, meaning: 'the task exists: continue with it' },
    {
      resolution: 'not-created',
      command: ['--not-created'],
      meaning: 'nothing was created: the same command may submit it again',
    },
    {
      resolution: 'resubmit',
      command: ['--resubmit'],
      meaning: 'submit it again now: it may be charged twice',
    },
  ];
  const possibleWays = allWays.filter(({ resolution }) => isPossible(resolution, job));
  const resolve = ['mgw', 'jobs', 'resolve', job.id];
  return { job, ways: possibleWays.map((way) => ({ ...way, command: [...resolve, ...way.command] })) };
}

// A speech task cannot be adopted, and a job can be sent again only if its record is complete.
function isPossible(how: Resolution['how'], { protocol, record, request }: Job): boolean {
  if (how === 'not-created') return true;
  if (protocol === 'tts') return false;
  return how === 'adopted' || (!record.elided && record.damaged === 0 && isObject(request));
}

function withoutFiles(job: Job): Delivered {
  return { job, files: [], isResumed: true, delivered: async () => {} };
}

function flagsOf(resolution: Resolution): string[] {
  return resolution.how === 'adopted' ? ['--adopt', resolution.handle] : [`--${resolution.how}`];
}

// Adds the user's decision to the command for a job whose record is lost. Such a job cannot be sent again.
function withFlags(error: MgwError, resolution: Resolution): MgwError {
  const { code, next } = error;
  const isLost = code === 'submit_unknown' && next?.includes('resolve') === true;
  if (!isLost || resolution.how === 'resubmit') return error;
  return error.with({ next: [...next, ...flagsOf(resolution)] });
}

// A result can be fetched only with its protocol, so the user must first adopt the handle and then name the protocol.
function lostProtocolError(job: Job, resolution: Resolution): MgwError {
  const text = `The record of ${job.id} is damaged and does not contain the protocol. Adopt the handle without -o. Then run "mgw video PROTOCOL fetch ${job.id}" with its protocol (${protocolNames.join(', ')}).`;
  return usageError(text, ['mgw', 'jobs', 'resolve', job.id, ...flagsOf(resolution)]).with({ job });
}

// Returns the verdict on a recorded response that cannot be interpreted: the audio of a speech response is not recorded,
// and a response cannot be parsed if its protocol is unknown.
function unreadReply(job: Job): SubmitVerdict {
  const message = isSenderDead(job)
    ? 'The process ended before the response was read.'
    : 'The process that sent it cannot be reached from here and may still be reading the response.';
  return { kind: 'unknown', failure: { code: 'submit_unknown', message } };
}

// Warns before the job may be paid for twice.
function noteSender(job: Job, { how }: Resolution, session: Session): void {
  if (how !== 'adopted' && job.error?.message === unreachableSenderText)
    session.note(`${unreachableSenderText}. If the gateway accepts that submission, it is charged.`);
}

function requireNotCreated(job: Job, resolution: Resolution): Resolution {
  if (resolution.how === 'not-created') return resolution;
  throw usageError(
    `A speech job has no task at the gateway: use --not-created, or run mgw tts again with ${newTakeFlag(job)}.`,
  );
}

function checkHandle(handle: string, job: Job, protocol: Protocol): void {
  try {
    protocol.query(handle, job.model);
  } catch (error) {
    throw usageError(
      `--adopt: this is not a handle of Protocol ${protocol.name.toUpperCase()}: ${messageOf(error)}`,
    );
  }
}

async function submitAgain(
  job: Job,
  protocol: Protocol,
  { target, force, deadline, budget }: ResolveOptions,
  session: Session,
  hooks: FlowHooks,
  recorded: RecordedBudgets,
): Promise<Delivered> {
  const body = recordedRequest(job);
  const sessionDeps = await session.jobDeps();
  const { fingerprint, endpoint } = job.record;
  const prepare = uploadFor(session, protocol, body, new Map(), { endpoint });
  let uploading: Promise<Exchange> | undefined;
  const upload = prepare && (() => (uploading ??= prepare()));
  const exchange = protocol.submission(body, { endpoint });
  const video = { protocol, body, userBody: body, exchange, endpoint, upload, advice: [] };
  const ask = target === undefined ? 'accept' : 'file';
  const submission: VideoSubmission = {
    ...{ ask, target, force, deadline },
    ...{ key: job.key, fresh: false, sidecar: false },
  };
  // The record contains the body that was sent, not the one that the user specified, so keep the job's fingerprint.
  const order = { ...videoOrder(video, submission, sessionDeps), fingerprint };
  const deps = await withRecordedBudgets(sessionDeps, job, recorded, budget);
  await order.checkBeforePaying?.();
  // If a file is no longer in the store, the job must remain in doubt.
  await upload?.().catch((error: unknown) => {
    const failure = toMgwError(error);
    if (failure.code !== 'usage') throw error;
    const next = ['mgw', 'jobs', 'resolve', job.id, '--not-created'];
    throw failure.with({ next, job }, `${failure.message} First resolve the job with --not-created.`);
  });
  return payAndDeliver(order, video, submission, deps, hooks, (began) => beginAgain(job, deps, began));
}

/**
 * Begins a run that sends a job in doubt again. Records the run before the user's decision, so that the job is in doubt
 * again if this process dies.
 * @throws MgwError as {@link resolveJob} does.
 */
export async function beginAgain(job: Job, deps: JobDeps, began: Began): Promise<Job> {
  const runningJob = await beginRun(job, deps)(began);
  try {
    return await resolveJob(deps.ledger, runningJob, { how: 'resubmit' });
  } catch (error) {
    await recordFailedRun(job, began.run, error, deps);
    throw error;
  }
}

// Adds the recorded budgets to an error's `next`. If the recorded limit is too low and no `--budget` was typed, sets
// `lacks` to a sufficient `--budget` instead.
function withBudgetFlags(
  error: MgwError,
  { standing, limit }: RecordedBudgets,
  typed: string | undefined,
  { budget: chosen }: Pick<Settings, 'budget'>,
): MgwError {
  const { name = '', limit: low = '0', exceeded_by: excess } = error.budget ?? {};
  const isOwn = recordedBudget(name).kind !== 'standing';
  if (isOwn && typed === undefined && excess !== undefined)
    return error.with({ lacks: ['--budget', formatDecimal(add(parseDecimal(low), parseDecimal(excess)))] });
  const budgetName = chosen.source === 'flag' ? undefined : standing.find((each) => each !== chosen.value);
  return error.next === undefined
    ? error
    : error.with({ next: withKeptFlags(error.next, { budget: typed ?? limit, budgetName }) });
}

function recordedRequest({ id, key, record, request }: Job): JsonObject {
  if (!record.elided && isObject(request)) return request;
  throw usageError(
    `The record of ${id} lacks part of the request body, which was too large or contained the API key. Run the original command with ${newTakeFlag({ key })}.`,
  );
}

function nothingToResolve(job: Job, state: JobState): MgwError {
  return usageError(`Job ${job.id} is ${state}; there is nothing to resolve.`, showCommand(job)).with({
    job,
  });
}

/** The user's decision about an `unknown` job (design 4). */
export type Resolution = { how: 'adopted'; handle: string } | { how: 'not-created' } | { how: 'resubmit' };

// Whether the user may resolve the job. An adopted handle may be wrong until the gateway has returned its task.
function isInDoubt({ state, record }: Job): boolean {
  const wasResubmitted = state === 'prepared' && record.hasEarlierDoubt === true;
  return state === 'unknown' || record.isUnconfirmed === true || wasResubmitted;
}

/**
 * Records the user's decision about a submission in doubt: the task's handle, that no task exists, or that the
 * submission is sent again. Replaces an earlier decision if the gateway has never returned its task. Sends nothing.
 * @throws MgwError('usage') if there is nothing to resolve, MgwError('conflict') if the job has a different handle.
 */
export async function resolveJob(ledger: Ledger, job: Job, resolution: Resolution): Promise<Job> {
  if (resolution.how === 'adopted' && job.handle === resolution.handle) return job;
  if (job.handle !== undefined && !isInDoubt(job)) {
    const text = `Job ${job.id} was accepted as ${job.handle}; there is nothing to resolve.`;
    throw new MgwError('conflict', text, { next: showCommand(job), job });
  }
  if (!isInDoubt(job)) throw nothingToResolve(job, job.state);
  if (resolution.how === 'resubmit' && job.record.damaged > 0) {
    throw usageError(
      `The record of ${job.id} is damaged, so its request cannot be sent again. The job may already be paid for. To pay for a new one, run its command again with ${newTakeFlag(job)}.`,
    );
  }
  // If two users decide at the same time, the later decision must not undo an attempt that the earlier decision
  // started.
  const { how } = resolution;
  const attempt = await lastAttempt(ledger, job);
  await ledger.append(job.id, { type: 'resolved', attempt, how, instead_of: job.handle });
  if (how === 'adopted') {
    const { handle } = resolution;
    await ledger.append(job.id, { type: 'accepted', handle, adopted: true, instead_of: job.handle });
  }
  return (await ledger.read(job.id)) ?? job;
}

// Returns the number of the last attempt. A damaged record may lack attempts, so their claims are checked too.
async function lastAttempt(ledger: Ledger, { id, record }: Job): Promise<number> {
  let attempt = record.attempts;
  while (record.damaged > 0 && (await ledger.claimed(names.attempt(id, attempt + 1))) !== undefined)
    attempt += 1;
  return attempt;
}
