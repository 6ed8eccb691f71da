import { exitCodes, messageOf, MgwError } from '../errors.ts';
import type { Reply, SubmitVerdict } from '../exchange.ts';
import type { AttemptMoney, Job, JobEvent, Owner, RecordedReply } from '../job.ts';
import { failureInDoubt } from '../ledger/fold.ts';
import { notAcceptedError } from '../payment/errors.ts';
import { payOnce, type PaymentRecord } from '../payment/pay-once.ts';
import { abandonClaim, attemptClaim, eventOfEndedProcess, nextAttempt } from './charge-outcome.ts';
import type { JobDeps, Order } from './order.ts';
import {
  interruptedError,
  pendingError,
  rejectedError,
  unknownError as taskUnknownError,
  unrecordedHandleError,
} from './errors.ts';
import { isRunElsewhere } from './liveness.ts';
import { withoutSignatures } from '../redact.ts';
import { eventOf, liveRuns, redactTexts, reconcile, shownState } from './reconcile.ts';

const maxRecordedReply = 64 * 1024;

/** An accepted job. */
export interface SubmittedJob {
  job: Job;
  /** Whether an earlier submission was resumed, so this run sent nothing. */
  isResumed: boolean;
}

/** Thrown if another process is sending the job's next attempt or has sent it. This process sent nothing. */
class SentElsewhere extends Error {}

/**
 * Sends a job until the gateway accepts or rejects it, or waits for another process to do so (design 5). Does nothing
 * if the job was accepted earlier.
 * @throws MgwError: exit 3 or 4 rejected, 6 never sent, 7 unknown, 8 another process is still sending, 10 cannot be
 * recorded, 12 over a budget, 130/143 interrupted.
 */
export async function submit(original: Job, order: Order, deps: JobDeps): Promise<SubmittedJob> {
  const { ledger } = deps;
  const { unknownError = taskUnknownError } = order;
  let job = await reconcile(ledger, original, order.read);
  // A rejection recorded by an earlier run does not end this run. A new rejection does.
  const earlierRejection = job.state === 'rejected' ? job.record.attempts : undefined;
  for (;;) {
    if (job.handle !== undefined) return { job, isResumed: true };
    if (shownState(job) === 'unknown') throw unknownError(job, job.error?.message ?? 'The record is damaged');
    if (job.state === 'rejected' && job.record.attempts !== earlierRejection) throw rejectedError(job);
    const next = job.state === 'sending' ? 'claimed' : await nextAttempt(ledger, job);
    if (next === 'claimed') {
      await waitForOther(job, order, deps);
    } else if (next === 'free' && (await isLeftToOther(job, deps))) {
      deps.onWaitForOther?.();
      await waitForOther(job, order, deps, otherRunPauseMs);
    } else if (next === 'unsent' || next === 'unknown') {
      await ledger.append(job.id, eventOfEndedProcess(job, next));
    } else if (next === 'free') {
      const accepted = await pay(job, order, deps);
      if (accepted !== undefined) return { job: accepted, isResumed: false };
    }
    job = await reconcile(ledger, await currentJob(job, deps), order.read);
  }
}

/** How often to read a job while another process continues it, in ms. */
const otherRunPauseMs = 500;

async function isLeftToOther(job: Job, { lease, onWaitForOther }: JobDeps): Promise<boolean> {
  return onWaitForOther !== undefined && isRunElsewhere(job, (await lease()).owner);
}

async function waitForOther(
  job: Job,
  { deadline }: Order,
  { ledger, clock, signals }: JobDeps,
  ms = 100,
): Promise<void> {
  if (deadline.remainingMs() <= 0) throw pendingError(job, { charged: 'maybe' });
  await ledger.flush();
  await clock.sleep(ms, signals.soft).catch(() => {
    throw interruptedError(signals.soft, job, 'maybe');
  });
}

// Reads the job again. Throws if the job was removed.
async function currentJob(job: Job, { ledger }: Pick<JobDeps, 'ledger'>): Promise<Job> {
  const latest = await ledger.read(job.id);
  if (latest !== undefined) return latest;
  const text = `Job ${job.id} was removed before it was sent. Nothing was sent.`;
  throw new MgwError('local_io', text, { charged: 'no', retry: 'safe', next: ['mgw', 'jobs', 'ls'] });
}

/** Pays for a job and returns the accepted job; undefined if another process is sending it. */
async function pay(job: Job, order: Order, deps: JobDeps): Promise<Job | undefined> {
  // A gateway may quote an upload's URL, including its signature.
  const redact =
    order.upload === undefined ? deps.redact : (text: string) => withoutSignatures(deps.redact(text));
  const attempts = new Attempts(job, { ...deps, redact });
  try {
    const exchange = await order.upload?.().catch((error: unknown) => {
      throw deps.signals.soft.aborted ? interruptedError(deps.signals.soft, job, 'no') : error;
    });
    const purchase = { ...(await deps.priceOf(order)), name: job.id };
    // Acquire the lease before connecting: a process that is suspended in between must not send when it resumes.
    const lease = await deps.lease();
    const paymentDeps = { ...deps, lease: () => Promise.resolve(lease) };
    const payment = {
      ...order,
      exchange: exchange ?? order.exchange,
      purchase,
      read: (reply: Reply) => order.read(reply, order.body),
    };
    const { verdict, tries } = await payOnce(payment, attempts, paymentDeps);
    if (verdict.kind === 'accepted') return attempts.accepted(verdict.handle, verdict.warning);
    const { message, requestId } = redactTexts(verdict.failure, redact);
    if (verdict.kind === 'unknown')
      throw (order.unknownError ?? taskUnknownError)(attempts.job, message, requestId);
    throw notAcceptedError(redactTexts(verdict, redact), tries).with({ job: attempts.job });
  } catch (error) {
    if (error instanceof SentElsewhere) return undefined;
    throw await withEarlierDoubt(error, attempts.job, order, deps);
  }
}

const exitsInDoubt = new Set<number>([exitCodes.auth, exitCodes.rejected, exitCodes.unavailable]);

// If the user sent the job again, a refusal proves nothing about the earlier attempt. The job is then still in doubt,
// unless another run is about to send it.
async function withEarlierDoubt(error: unknown, job: Job, order: Order, deps: JobDeps): Promise<unknown> {
  if (!(error instanceof MgwError)) return error;
  if (!job.record.hasEarlierDoubt || error.charged !== 'no') return error.with({ job });
  const { ledger, note } = deps;
  const message = failureInDoubt(error.message);
  try {
    const [latest, { owner }] = [await ledger.read(job.id), await deps.lease()];
    const isRunByOther =
      latest && liveRuns(latest).some(({ owner: { instance } }) => instance !== owner.instance);
    if (latest?.state === 'prepared' && !isRunByOther)
      await ledger.append(job.id, { type: 'unknown', error: { code: error.code, message } });
  } catch (reason) {
    note(`Could not record why job ${job.id} is still in doubt: ${messageOf(reason)}`);
  }
  const doubt = (order.unknownError ?? taskUnknownError)(job, message, error.requestId);
  if (exitsInDoubt.has(error.exitCode)) return doubt;
  const { charged, retry, next } = doubt;
  return error.with({ charged, retry, next: error.next ?? next, job });
}

/** The attempts of one run to send a job, recorded in the ledger. */
class Attempts implements PaymentRecord {
  job: Job;
  readonly #deps: JobDeps;
  /** The current attempt's number; 0 before the first attempt. */
  #attempt = 0;

  constructor(job: Job, deps: JobDeps) {
    this.job = job;
    this.#deps = deps;
  }

  async sending(money: AttemptMoney, owner: Owner): Promise<void> {
    const { ledger } = this.#deps;
    if (this.#attempt > 0) await this.#reload();
    const { handle, state, record } = this.job;
    if (handle !== undefined || (this.#attempt > 0 && state !== 'prepared')) throw new SentElsewhere();
    const claim = attemptClaim(this.job);
    if ((await ledger.claim(claim, JSON.stringify(owner))) !== undefined) throw new SentElsewhere();
    this.#attempt = record.attempts + 1;
    try {
      // Read the job after claiming the attempt: a process that sees an accepted job without a later claim assumes that
      // nothing more is sent.
      await this.#reload();
      if (this.job.handle !== undefined) throw new SentElsewhere();
      await ledger.append(this.job.id, { type: 'sending', attempt: this.#attempt, owner, ...money });
      await ledger.confirm(claim);
    } catch (error) {
      await this.#abandon(claim, error);
      throw error;
    }
  }

  // An attempt that could not be recorded is not sent. Its claim remains, so record for other processes that it was
  // abandoned.
  async #abandon(claim: string, error: unknown): Promise<void> {
    abandonClaim(claim);
    if (error instanceof SentElsewhere) return;
    const event: JobEvent = {
      type: 'unavailable',
      attempt: this.#attempt,
      error: { code: 'local_io', message: 'The attempt could not be recorded, and nothing was sent' },
    };
    await this.#deps.ledger.append(this.job.id, event).catch(() => undefined);
  }

  // If the response cannot be recorded, prints a note instead of throwing. The verdict's event does not depend on this
  // record and may still fit on a nearly full disk.
  async reply(reply: Reply): Promise<void> {
    const event: JobEvent = { type: 'reply', attempt: this.#attempt, reply: this.#recordable(reply) };
    await this.#deps.ledger.append(this.job.id, event).catch((error: unknown) => {
      this.#deps.note(`Could not record the response: ${messageOf(error)}`);
    });
  }

  async verdict(verdict: SubmitVerdict): Promise<void> {
    try {
      // A handle must not be redacted.
      const redactedVerdict = {
        ...redactTexts(verdict, this.#deps.redact),
        ...('handle' in verdict && { handle: verdict.handle }),
      };
      await this.#deps.ledger.append(this.job.id, eventOf(redactedVerdict, this.#attempt));
      await this.#reload();
      if (verdict.kind === 'accepted' && this.job.handle === undefined)
        throw new Error('the record cannot be read');
    } catch (error) {
      if (verdict.kind === 'accepted') throw unrecordedHandleError(verdict.handle, this.job, error);
      // Report a rejection or doubt even if it cannot be recorded. A retry requires the record.
      if (verdict.kind === 'unavailable') throw error;
      this.#deps.note(`Could not record the outcome of the submission: ${messageOf(error)}`);
    }
  }

  accepted(handle: string, warning: string | undefined): Job {
    const { note, redact } = this.#deps;
    if (warning) note(redact(warning));
    const { id, handle: firstHandle } = this.job;
    if (firstHandle !== handle)
      note(`Job ${id} continues as ${firstHandle ?? '?'}; the gateway also accepted ${handle}.`);
    return this.job;
  }

  async #reload(): Promise<void> {
    this.job = await currentJob(this.job, this.#deps);
  }

  #recordable(reply: Reply): RecordedReply {
    const { redact } = this.#deps;
    const headers = Object.entries(reply.headers).map(([name, value]) => [name, redact(value)]);
    const text = redact(reply.text);
    return {
      status: reply.status,
      headers: Object.fromEntries(headers) as Record<string, string>,
      text: text.slice(0, maxRecordedReply),
      complete: reply.complete && text.length <= maxRecordedReply,
    };
  }
}
