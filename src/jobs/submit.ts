import { randomUUID } from 'node:crypto';
import { messageOf, MgwError } from '../errors.ts';
import type { Reply } from '../exchange.ts';
import { TransportError } from '../http/transport-error.ts';
import type { Job, JobEvent, Owner, RecordedReply } from '../job.ts';
import { backoffMs } from '../http/backoff.ts';
import { findByKey, findEarlier, keyClaim } from './earlier.ts';
import { interruptedError, pendingError, rejectedError, unknownError } from './errors.ts';
import { submitTimeoutMs, type JobDeps } from './gateway.ts';
import { newJobId } from './job-id.ts';
import { fingerprintOf, recordedBody, type Order } from './order.ts';
import { isAlive } from './owner.ts';
import { eventOf, settle, type ReplyVerdict } from './settle.ts';

/** A job that was accepted, and the run that this process has on it. */
export interface Submitted {
  job: Job;
  run: string;
  /** True where an earlier run's submission is carried on and nothing was sent. */
  resumed: boolean;
}

/**
 * Submits a body once, or carries on with the earlier submission of the same command: connect, claim and record
 * `sending`, first byte, record the answer raw, read it, record the handle (design 5). Only what the gateway
 * certainly did not handle is tried again.
 * @throws MgwError: exit 3 or 4 refused, 6 never sent, 7 unknown, 10 not recordable, 130/143 interrupted. The
 * job behind it is in `jobOf(error)`.
 */
export async function submit(order: Order, deps: JobDeps): Promise<Submitted> {
  const run = randomUUID().slice(0, 8);
  const { job, resumed } = await takeOn(order, deps, run);
  try {
    return { job: await new Submission(order, deps, job).drive(), run, resumed };
  } catch (error) {
    throw withJob(error, job);
  }
}

const jobs = new WeakMap<object, Job>();

/** The job that an error of {@link submit} is about, as far as it was known; read it again for its last state. */
export function jobOf(error: unknown): Job | undefined {
  return typeof error === 'object' && error !== null ? jobs.get(error) : undefined;
}

/** Makes a job known as the one that an error is about; gives the error. */
export function withJob(error: unknown, job: Job): unknown {
  if (error instanceof Error) jobs.set(error, job);
  return error;
}

async function takeOn(order: Order, deps: JobDeps, run: string): Promise<{ job: Job; resumed: boolean }> {
  const { ledger, owner } = deps;
  const fingerprint = fingerprintOf(order, deps.gateway, deps.account);
  const earlier = await findJob(order, deps, fingerprint);
  if (earlier?.handle === undefined) await order.beforeSending?.();
  const job = earlier ?? (await create(order, deps, fingerprint, run));
  if (earlier !== undefined && order.key !== undefined) await claimKey(order.key, earlier, fingerprint, deps);
  if (earlier !== undefined) await ledger.append(job.id, { type: 'began', run, owner, ask: order.ask });
  return { job: (await ledger.read(job.id)) ?? job, resumed: earlier?.handle !== undefined };
}

async function findJob(order: Order, deps: JobDeps, fingerprint: string): Promise<Job | undefined> {
  if (order.key === undefined) return order.fresh ? undefined : findEarlier(deps.ledger, fingerprint);
  const named = await findByKey(deps.ledger, order.key, fingerprint, order);
  if (named !== undefined) return named;
  const earlier = await findEarlier(deps.ledger, fingerprint);
  return earlier?.key === order.key ? earlier : undefined;
}

async function create(order: Order, deps: JobDeps, fingerprint: string, run: string): Promise<Job> {
  const { ledger, owner } = deps;
  const id = newJobId(deps.clock.now());
  const prepared: JobEvent = {
    type: 'prepared',
    protocol: order.protocol,
    base_url: deps.gateway,
    fingerprint,
    account: deps.account,
    model: order.model,
    key: order.key,
    ...recordedBody(order.body),
  };
  await ledger.create(id, [prepared, { type: 'began', run, owner, ask: order.ask }]);
  await ledger.index('fingerprint', fingerprint, id);
  const job = await ledger.read(id);
  if (job === undefined)
    throw new MgwError('local_io', `The record of job ${id} vanished.`, { retry: 'safe' });
  if (order.key === undefined) return job;
  return claimKey(order.key, job, fingerprint, deps);
}

// Exactly one of any number of processes names the key's job; the others drop theirs, which nobody has sent.
async function claimKey(key: string, job: Job, fingerprint: string, deps: JobDeps): Promise<Job> {
  const holder = await deps.ledger.claim(keyClaim(key), `${job.id} ${fingerprint}`);
  if (holder === undefined || holder.startsWith(`${job.id} `)) return job;
  const named = await deps.ledger.read(holder.split(' ')[0] ?? '');
  if (named === undefined || job.record.attempts > 0)
    throw unknownError(job, `--key ${key} names a lost record`);
  await deps.ledger.remove(job.id);
  return named;
}

class ClaimLost extends Error {}

/** The sending of one job: state that lives for one run. */
class Submission {
  private tries = 0;
  /** A refusal from an earlier run does not bind this one; a refusal seen while waiting does. */
  private first = true;

  constructor(
    private readonly order: Order,
    private readonly deps: JobDeps,
    private job: Job,
  ) {}

  async drive(): Promise<Job> {
    for (;;) {
      this.job = await settle(this.deps.ledger, this.job, this.order.read);
      if (this.job.handle !== undefined) return this.job;
      if (this.job.state === 'unknown')
        throw unknownError(this.job, this.job.error?.message ?? 'The record is damaged');
      if (this.job.state === 'rejected' && !this.first) throw rejectedError(refusalOf(this.job));
      if (this.job.state === 'sending' || (await this.isClaimed())) await this.waitForOther();
      else await this.attempt();
      this.first = false;
    }
  }

  private get claimName(): string {
    return `send.${this.job.id}.${this.job.record.attempts + 1}`;
  }

  // A claim without a `sending` event: its process is about to write it, or died in between.
  private async isClaimed(): Promise<boolean> {
    const holder = await this.deps.ledger.claimed(this.claimName);
    if (holder === undefined) return false;
    await this.reload();
    if (this.job.state !== 'prepared' || isAlive(ownerIn(holder))) return true;
    await this.record({
      type: 'lost',
      error: { code: 'submit_unknown', message: 'The process ended while it was sending' },
    });
    return true;
  }

  private async waitForOther(): Promise<void> {
    const { clock, signals } = this.deps;
    if (clock.now() > this.order.deadline) throw pendingError(this.job, { charged: 'maybe' });
    await clock.sleep(100, signals.soft).catch(() => {
      throw interruptedError(signals.soft, this.job, 'maybe');
    });
    await this.reload();
  }

  private async attempt(): Promise<void> {
    const attempt = this.job.record.attempts + 1;
    const { client } = this.deps;
    const { send = (to, request, options) => to.exchange(request, options) } = this.order;
    let reply: Reply;
    try {
      reply = await send(client, this.order.exchange, {
        auth: this.order.auth,
        timeoutMs: this.deps.requestTimeoutMs ?? submitTimeoutMs,
        maxBytes: 1024 * 1024,
        signal: this.deps.signals.hard,
        connectSignal: this.deps.signals.soft,
        onConnected: () => this.begin(attempt),
      });
    } catch (error) {
      await this.onNoReply(error, attempt);
      return;
    }
    await this.onReply(reply, attempt);
  }

  private async begin(attempt: number): Promise<void> {
    const { ledger, owner, signals } = this.deps;
    signals.soft.throwIfAborted();
    const holder = await ledger.claim(this.claimName, JSON.stringify(owner));
    if (holder !== undefined) throw new ClaimLost();
    await ledger.append(this.job.id, { type: 'sending', attempt, owner });
  }

  private async onNoReply(error: unknown, attempt: number): Promise<void> {
    if (error instanceof ClaimLost) return this.waitForOther();
    const { signals } = this.deps;
    const sent = error instanceof TransportError && error.phase === 'sent';
    if (!sent && signals.soft.aborted) throw interruptedError(signals.soft, undefined, 'no');
    if (!(error instanceof TransportError)) throw error;
    if (error.phase === 'unsent') return this.retryUnsent(error);
    const event: JobEvent = { type: 'lost', error: { code: 'submit_unknown', message: error.message } };
    await this.record(event).catch(() => this.deps.note(`Attempt ${attempt} could not be recorded as lost.`));
    throw unknownError(this.job, error.message);
  }

  private async retryUnsent(error: TransportError): Promise<void> {
    const hopeless = error.reason === 'certificate' || error.reason === 'private_address';
    if (hopeless || this.tries >= this.deps.retries) {
      throw new MgwError('unreachable', `Nothing was sent: ${error.message}.`, {
        retry: 'safe',
        cause: error,
      });
    }
    await this.pause(`${error.message}; nothing was sent`);
  }

  private async pause(why: string, floorMs = 0): Promise<void> {
    const { clock, note, signals } = this.deps;
    const ms = backoffMs(this.tries, { floorMs });
    if (clock.now() + ms > this.order.deadline) throw tooLong(why, clock.now() + ms);
    this.tries += 1;
    note(`${why}; trying again in ${(ms / 1000).toFixed(1)} s.`);
    await clock.sleep(ms, signals.soft).catch(() => {
      throw interruptedError(signals.soft, undefined, 'no');
    });
    await this.reload();
  }

  // The raw answer goes to disk before it is read; a handle that cannot be recorded is shown instead.
  private async onReply(reply: Reply, attempt: number): Promise<void> {
    let unrecorded: unknown;
    try {
      await this.deps.ledger.append(this.job.id, { type: 'reply', attempt, reply: this.recordable(reply) });
    } catch (error) {
      unrecorded = error;
    }
    const verdict = this.order.read(reply, this.order.body);
    try {
      if (unrecorded) throw unrecorded;
      await this.record(eventOf(verdict, attempt));
      if (this.job.handle !== undefined) await this.deps.ledger.index('handle', this.job.handle, this.job.id);
    } catch (error) {
      if (verdict.kind !== 'accepted') throw error;
      throw new UnrecordedHandle(verdict.handle, this.order.protocol, error);
    }
    await this.act(verdict);
  }

  private recordable(reply: Reply): RecordedReply {
    const { redact } = this.deps;
    const headers = Object.fromEntries(
      Object.entries(reply.headers).map(([name, value]) => [name, redact(value)]),
    );
    return {
      status: reply.status,
      headers,
      text: redact(reply.text).slice(0, 64 * 1024),
      complete: reply.complete,
    };
  }

  private async act(verdict: ReplyVerdict): Promise<void> {
    if (verdict.kind === 'accepted') {
      if (verdict.warning) this.deps.note(verdict.warning);
      return;
    }
    const { failure } = verdict;
    if (verdict.kind === 'rejected') throw rejectedError(failure);
    if (verdict.kind === 'unknown') throw unknownError(this.job, failure.message, failure.requestId);
    if (this.tries < this.deps.retries) {
      return this.pause(`The gateway refused for now (${failure.message})`, failure.retryAfterMs);
    }
    throw new MgwError(failure.code, `Not accepted after ${this.tries + 1} tries: ${failure.message}`, {
      exit: 'unavailable',
      retry: 'safe',
      requestId: failure.requestId,
    });
  }

  private async record(event: JobEvent): Promise<void> {
    await this.deps.ledger.append(this.job.id, event);
    await this.reload();
  }

  private async reload(): Promise<void> {
    this.job = (await this.deps.ledger.read(this.job.id)) ?? this.job;
  }
}

/** Accepted and charged, but the record could not be written: the handle must reach the person (design 5). */
export class UnrecordedHandle extends MgwError {
  readonly handle: string;

  constructor(handle: string, protocol: string, cause: unknown) {
    super(
      'local_io',
      `The gateway accepted the task as ${handle}, but that could not be recorded: ${messageOf(cause)}`,
      {
        charged: 'yes',
        retry: 'never',
        next: ['mgw', 'video', protocol, 'fetch', handle],
        cause,
      },
    );
    this.handle = handle;
  }
}

function ownerIn(holder: string): Owner {
  try {
    return JSON.parse(holder) as Owner;
  } catch {
    return { pid: 0, start: '', host: '' };
  }
}

function refusalOf(job: Job): { code: MgwError['code']; message: string } {
  const { code = 'invalid_request', message = 'The gateway refused the submission.' } = job.error ?? {};
  return { code: code as MgwError['code'], message };
}

function tooLong(why: string, at: number): MgwError {
  const when = new Date(Math.min(at, 8.64e15)).toISOString();
  return new MgwError('rate_limited', `${why}; the next try would be at ${when}, after the wait ends.`, {
    retry: 'safe',
  });
}
