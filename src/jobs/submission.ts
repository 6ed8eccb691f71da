import { messageOf, type MgwError, type ErrorCode } from '../errors.ts';
import type { Reply, SubmitVerdict } from '../exchange.ts';
import { backoffMs } from '../http/backoff.ts';
import { TransportError } from '../http/transport-error.ts';
import type { Job, JobEvent, Owner, RecordedReply } from '../job.ts';
import { interruptedError, pendingError, rejectedError, unknownError, UnrecordedHandle } from './errors.ts';
import { refusalOf, refusedForNow, tooLong, unsentError } from './submission-errors.ts';
import { submitTimeoutMs, type JobDeps } from './gateway.ts';
import type { Order } from './order.ts';
import { isAlive } from '../ledger/owner.ts';
import { eventOf, settle, withoutKey } from './settle.ts';

const longestRecordedReply = 64 * 1024;

/** Another process has claimed the attempt: nothing was sent. */
class ClaimLost extends Error {}

/** The sending of one job: state that lives for one run. */
export class Submission {
  /** True where this run's own attempt was accepted. */
  accepted = false;
  private tries = 0;
  /** True once a byte of the attempt under way may have left. */
  private begun = false;

  constructor(
    private readonly order: Order,
    private readonly deps: JobDeps,
    private job: Job,
  ) {}

  /**
   * Sends until the gateway accepts or refuses, or waits for another process that does.
   * @throws MgwError as `submit` tells.
   */
  async drive(): Promise<Job> {
    const { ledger } = this.deps;
    this.job = await settle(ledger, this.job, this.order.read);
    // A refusal of an earlier run does not bind this one; one that is seen from here on does.
    const forgiven = this.job.state === 'rejected' ? this.job.record.attempts : undefined;
    while (this.job.handle === undefined) {
      const { state, record, error } = this.job;
      if (state === 'unknown') throw unknownError(this.job, error?.message ?? 'The record is damaged');
      if (state === 'rejected' && record.attempts !== forgiven) throw rejectedError(refusalOf(this.job));
      await this.step();
      this.job = await settle(ledger, this.job, this.order.read);
    }
    return this.job;
  }

  private async step(): Promise<void> {
    if (this.job.state === 'sending') return this.waitForOther();
    const holder = await this.deps.ledger.claimed(this.claimName);
    if (holder === undefined) return this.attempt();
    return isAlive(ownerIn(holder)) ? this.waitForOther() : this.loseUnbegun();
  }

  private get nextAttempt(): number {
    return this.job.record.attempts + 1;
  }

  private get claimName(): string {
    return `send.${this.job.id}.${this.nextAttempt}`;
  }

  // A claim whose process died before its `sending` event, or whose event was lost: it may have sent.
  private async loseUnbegun(): Promise<void> {
    const attempt = this.nextAttempt;
    // Behind the sign of death: what the process wrote last must not be overlooked.
    await this.reload();
    if (this.nextAttempt !== attempt || this.job.handle !== undefined) return;
    const message = 'The process ended while it was sending';
    await this.record({ type: 'lost', attempt, error: { code: 'submit_unknown', message } });
  }

  private async waitForOther(): Promise<void> {
    const { clock, signals } = this.deps;
    if (this.order.deadline.leftMs() <= 0) throw pendingError(this.job, { charged: 'maybe' });
    await clock.sleep(100, signals.soft).catch(() => {
      throw interruptedError(signals.soft, this.job, 'maybe');
    });
    await this.reload();
  }

  private async attempt(): Promise<void> {
    const attempt = this.nextAttempt;
    this.begun = false;
    let reply: Reply;
    try {
      reply = await this.exchange(attempt);
    } catch (error) {
      return this.onNoReply(error, attempt);
    }
    return this.onReply(reply, attempt);
  }

  private async exchange(attempt: number): Promise<Reply> {
    const { client, requestTimeoutMs = submitTimeoutMs, signals } = this.deps;
    const send: NonNullable<Order['send']> =
      this.order.send ?? ((to, request, options) => to.exchange(request, options));
    const interrupted = (): void => this.tellOfWaiting();
    signals.soft.addEventListener('abort', interrupted, { once: true });
    try {
      return await send(client, this.order.exchange, {
        auth: this.order.auth,
        timeoutMs: requestTimeoutMs,
        maxBytes: 1024 * 1024,
        signal: signals.hard,
        connectSignal: signals.soft,
        onConnected: () => this.begin(attempt),
      });
    } finally {
      signals.soft.removeEventListener('abort', interrupted);
    }
  }

  private tellOfWaiting(): void {
    if (!this.begun) return;
    const { note } = this.deps;
    note('Interrupted; the answer to what was sent is awaited, since it may be charged. Again gives it up.');
  }

  private async begin(attempt: number): Promise<void> {
    const { ledger, owner, signals } = this.deps;
    signals.soft.throwIfAborted();
    const claim = this.claimName;
    if ((await ledger.claim(claim, JSON.stringify(owner))) !== undefined) throw new ClaimLost();
    try {
      await ledger.append(this.job.id, { type: 'sending', attempt, owner });
    } catch (error) {
      // Nothing is sent without its record; a claim that stayed would look like a submission that was lost.
      await ledger.release(claim).catch(() => undefined);
      throw error;
    }
    this.begun = true;
  }

  private async onNoReply(error: unknown, attempt: number): Promise<void> {
    const isTransport = error instanceof TransportError;
    if (this.begun || (isTransport && error.phase === 'sent'))
      throw await this.lost(messageOf(error), attempt);
    if (error instanceof ClaimLost) return this.waitForOther();
    const { soft } = this.deps.signals;
    if (soft.aborted) throw interruptedError(soft, undefined, 'no');
    if (!isTransport) throw error;
    const isHopeless = error.reason === 'certificate' || error.reason === 'private_address';
    if (isHopeless || this.tries >= this.deps.retries)
      throw unsentError(`Nothing was sent: ${error.message}.`, error);
    return this.pause(`${error.message}; nothing was sent`, 'unreachable');
  }

  private async lost(why: string, attempt: number): Promise<MgwError> {
    const event: JobEvent = { type: 'lost', attempt, error: { code: 'submit_unknown', message: why } };
    await this.record(event).catch(() => this.deps.note(`Attempt ${attempt} could not be recorded as lost.`));
    return unknownError(this.job, why);
  }

  private async pause(why: string, code: ErrorCode, floorMs = 0): Promise<void> {
    const { clock, note, signals } = this.deps;
    const ms = backoffMs(this.tries, { floorMs });
    if (ms > this.order.deadline.leftMs()) throw tooLong(why, code, clock.now() + ms);
    this.tries += 1;
    note(`${why}; trying again in ${(ms / 1000).toFixed(1)} s.`);
    await clock.sleep(ms, signals.soft).catch(() => {
      throw interruptedError(signals.soft, undefined, 'no');
    });
    await this.reload();
  }

  // The raw answer goes to disk before it is read; a handle that cannot be recorded is shown instead.
  private async onReply(reply: Reply, attempt: number): Promise<void> {
    await this.tryRecording('The answer as it came', () =>
      this.deps.ledger.append(this.job.id, { type: 'reply', attempt, reply: this.recordable(reply) }),
    );
    const verdict = withoutKey(this.order.read(reply, this.order.body), this.deps.redact);
    if (verdict.kind === 'accepted') {
      await this.tryRecording('The handle for look-ups', () =>
        this.deps.ledger.index('handle', verdict.handle, this.job.id),
      );
    }
    try {
      await this.record(eventOf(verdict, attempt));
      if (verdict.kind === 'accepted' && this.job.handle === undefined)
        throw new Error('what was recorded cannot be read');
    } catch (error) {
      throw this.unrecorded(verdict, error);
    }
    await this.act(verdict);
  }

  // What the event of the verdict can do without: where the disk is full, that may still fit.
  private async tryRecording(what: string, action: () => Promise<void>): Promise<void> {
    await action().catch((error: unknown) => {
      this.deps.note(`${what} could not be recorded: ${messageOf(error)}`);
    });
  }

  private unrecorded(verdict: SubmitVerdict, error: unknown): unknown {
    if (verdict.kind === 'accepted') return new UnrecordedHandle(verdict.handle, this.order.protocol, error);
    this.deps.note(`The gateway's answer could not be recorded: ${messageOf(error)}`);
    const { failure } = verdict;
    if (verdict.kind === 'rejected') return rejectedError(failure);
    return verdict.kind === 'unknown' ? unknownError(this.job, failure.message, failure.requestId) : error;
  }

  private recordable(reply: Reply): RecordedReply {
    const { redact } = this.deps;
    const headers = Object.fromEntries(
      Object.entries(reply.headers).map(([name, value]) => [name, redact(value)]),
    );
    const text = redact(reply.text);
    return {
      status: reply.status,
      headers,
      text: text.slice(0, longestRecordedReply),
      complete: reply.complete && text.length <= longestRecordedReply,
    };
  }

  private async act(verdict: SubmitVerdict): Promise<void> {
    if (verdict.kind === 'accepted') {
      this.onAccepted(verdict.handle, verdict.warning);
      return;
    }
    const { failure } = verdict;
    if (verdict.kind === 'rejected') throw rejectedError(failure);
    if (verdict.kind === 'unknown') throw unknownError(this.job, failure.message, failure.requestId);
    if (this.tries >= this.deps.retries) throw refusedForNow(failure, this.tries + 1);
    return this.pause(`The gateway refused for now (${failure.message})`, failure.code, failure.retryAfterMs);
  }

  private onAccepted(handle: string, warning: string | undefined): void {
    this.accepted = true;
    if (warning) this.deps.note(warning);
    const { id, handle: first = handle } = this.job;
    if (first !== handle)
      this.deps.note(`Job ${id} goes on as ${first}; the gateway has accepted ${handle} beside it.`);
  }

  private async record(event: JobEvent): Promise<void> {
    await this.deps.ledger.append(this.job.id, event);
    await this.reload();
  }

  private async reload(): Promise<void> {
    this.job = (await this.deps.ledger.read(this.job.id)) ?? this.job;
  }
}

// A claim whose content is damaged was made by somebody; nobody can be asked.
function ownerIn(holder: string): Owner {
  try {
    return JSON.parse(holder) as Owner;
  } catch {
    return { pid: 0, start: '', host: '' };
  }
}
