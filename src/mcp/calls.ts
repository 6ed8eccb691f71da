import {
  type CallToolResult,
  type InputRequiredResult,
  isInputRequiredResult,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { abortWith, deadlineIn, type Deadline } from '../clock.ts';
import { MgwError, toMgwError } from '../errors.ts';
import { commandForPerson, type ServerFlags } from '../flows/next.ts';
import type { FlowDeps } from '../flows/settings.ts';
import type { Session } from '../flows/session.ts';
import { interruptionError } from '../payment/errors.ts';
import type { Signals } from '../payment/pay-once.ts';
import { agentText, type Answer, errorAnswer, type ToolOutcome, toolResult } from './result.ts';

/** The maximum time that a call waits for jobs and results, in ms. */
const maxWaitMs = 50_000;

/** The time after which a call with unfinished work is answered, in ms. Clients time out after a minute (design 16). */
export const maxCallMs = 53_000;

/** The time in ms after which the client is assumed to have read an answer, unless it cancelled or disconnected. */
const assumedReadAfterMs = 1_000;

/** The interval between progress notifications, in ms. */
const progressIntervalMs = 5_000;

/** One call to a tool. */
export interface Call {
  /** Returns the flows' dependencies, with this call's signals. */
  deps(): Promise<FlowDeps>;
  signals: Signals;
  deadline: Deadline;
  /** Reports progress to the client, if it requested progress. */
  reportProgress(text: string): void;
  /** Notes from the flows, to include in the answer. */
  notes: string[];
  /** Records that this call is about to pay, so that an error can report the charge. */
  markPaying: () => void;
  /**
   * Calls `record` when it is known whether the client received the answer to this call. A client that cancels the call
   * or disconnects before the answer is written, or shortly after, did not receive it.
   */
  onAnswered(record: (wasReceived: boolean) => Promise<void>): void;
  context: ServerContext;
}

/** A server's calls. A call that the client has abandoned continues until its outcome is recorded. */
export class Calls {
  readonly #session: Session;
  readonly #interrupted: Signals;
  readonly #flags: ServerFlags;
  readonly #env: NodeJS.ProcessEnv;
  readonly #closing = new AbortController();
  readonly #inProgress = new Set<Promise<unknown>>();
  readonly #unread = new Set<{ id: unknown; cancelled: AbortController }>();

  /**
   * @param interrupted the process's signals
   * @param flags the server's flags, which are added to commands for the user, as are settings from `env`
   */
  constructor(session: Session, interrupted: Signals, flags: ServerFlags = {}, env: NodeJS.ProcessEnv = {}) {
    this.#session = session;
    this.#flags = flags;
    this.#env = env;
    this.#interrupted = interrupted;
  }

  /**
   * Runs a tool's work, and answers within {@link maxCallMs}. Never throws.
   * @param lateAnswer the answer if the work takes longer; the work continues
   */
  async run(
    context: ServerContext,
    lateAnswer: Answer,
    work: (call: Call) => Promise<ToolOutcome>,
  ): Promise<CallToolResult | InputRequiredResult> {
    const soft = new AbortController();
    const hard = new AbortController();
    const unlink = [
      abortWith(context.mcpReq.signal, soft),
      abortWith(this.#closing.signal, soft),
      abortWith(this.#interrupted.soft, soft),
      abortWith(this.#interrupted.hard, hard),
    ];
    const answered = new AbortController();
    const progress = { text: '' };
    const call = {
      context,
      signals: { soft: soft.signal, hard: hard.signal },
      deadline: deadlineIn(maxWaitMs, this.#session.clock),
      reportProgress: (text: string) => void (progress.text = text),
      onAnswered: (record: (wasReceived: boolean) => Promise<void>) =>
        this.background(async (signals) => {
          const isAwaited = !answered.signal.aborted && !soft.signal.aborted;
          const wasReceived = isAwaited && (await this.#wasRead(context.mcpReq, signals.soft));
          // If this fails, mgw assumes that the client did not receive the answer. That assumption costs nothing.
          await record(wasReceived).catch(() => undefined);
        }),
    };
    const working = this.#track(this.#work(call, work), unlink);
    void this.#sendProgress(context, progress, answered.signal);
    try {
      const outcome = await Promise.race([working, this.#lateAnswer(lateAnswer, answered.signal)]);
      return isInputRequiredResult(outcome)
        ? outcome
        : toolResult(await this.#withFlags(outcome), (text) => this.#session.redact(text));
    } finally {
      answered.abort();
    }
  }

  /**
   * Starts work that outlives its call. {@link end} awaits it.
   * @param work never rejects
   */
  background(work: (signals: Signals) => Promise<void>): void {
    const soft = new AbortController();
    const unlink = [abortWith(this.#closing.signal, soft), abortWith(this.#interrupted.soft, soft)];
    void this.#track(work({ soft: soft.signal, hard: this.#interrupted.hard }), unlink);
  }

  // Makes {@link end} wait for work. Calls `unlink` when the work has ended.
  #track<T>(work: Promise<T>, unlink: readonly (() => void)[]): Promise<T> {
    const working = work.finally(() => {
      this.#inProgress.delete(working);
      for (const each of unlink) each();
    });
    this.#inProgress.add(working);
    return working;
  }

  /**
   * Records that the client has cancelled a call, even an answered one, because the answer may have arrived too late.
   * @param id the request's id
   */
  cancelled(id: unknown): void {
    for (const each of this.#unread) if (each.id === id) each.cancelled.abort();
  }

  /** Stops accepting calls. Resolves when all calls in progress have ended and are recorded. */
  async end(): Promise<void> {
    this.#closing.abort(new Error('the client has disconnected'));
    while (this.#inProgress.size > 0) await Promise.allSettled(this.#inProgress);
  }

  // A command for the user must use this server's gateway and ledger.
  async #withFlags(answer: Answer): Promise<Answer> {
    if (answer.command === undefined) return answer;
    const settings = await this.#session.settings().catch(() => undefined);
    return { ...answer, command: commandForPerson(answer.command, this.#flags, settings, this.#env) };
  }

  async #wasRead({ id, signal }: ServerContext['mcpReq'], ending: AbortSignal): Promise<boolean> {
    const cancelled = new AbortController();
    const call = { id, cancelled };
    const unlink = [abortWith(signal, cancelled), abortWith(ending, cancelled)];
    this.#unread.add(call);
    try {
      await this.#session.clock.sleep(assumedReadAfterMs, cancelled.signal);
      return true;
    } catch {
      return false;
    } finally {
      this.#unread.delete(call);
      for (const each of unlink) each();
    }
  }

  async #work(
    base: Omit<Call, 'deps' | 'notes' | 'markPaying'>,
    work: (call: Call) => Promise<ToolOutcome>,
  ): Promise<ToolOutcome> {
    const { signals } = base;
    const notes: string[] = [];
    let isPaying = false;
    const call: Call = {
      ...base,
      notes,
      markPaying: () => void (isPaying = true),
      deps: async () => ({
        ...(await this.#session.jobDeps()),
        signals,
        note: (text) => notes.push(agentText(this.#session.redact(text))),
      }),
    };
    try {
      const outcome = await work(call);
      return notes.length === 0 || isInputRequiredResult(outcome) ? outcome : { ...outcome, notes };
    } catch (error) {
      const isAbort = !(error instanceof MgwError) && signals.soft.aborted;
      const mgwError = isAbort ? interruptionError(signals.soft, 'no') : toMgwError(error);
      return {
        ...errorAnswer(mgwError, isPaying ? mgwError.charged : 'no'),
        ...(notes.length > 0 && { notes }),
      };
    }
  }

  async #lateAnswer(answer: Answer, signal: AbortSignal): Promise<Answer> {
    await this.#session.clock.sleep(maxCallMs, signal).catch(() => undefined);
    return answer;
  }

  async #sendProgress(
    { mcpReq }: ServerContext,
    latest: { text: string },
    signal: AbortSignal,
  ): Promise<void> {
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    const { clock } = this.#session;
    const startedAt = clock.monotonic();
    try {
      for (;;) {
        await clock.sleep(progressIntervalMs, signal);
        const progress = Math.round((clock.monotonic() - startedAt) / 1000);
        const message = latest.text === '' ? 'in progress' : latest.text;
        await mcpReq.notify({
          method: 'notifications/progress',
          params: { progressToken, progress, message },
        });
      }
    } catch {
      // The call was answered or the client has disconnected, so no further progress is reported.
    }
  }
}
