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

/** The maximum time that a call waits for jobs and results, ms. */
const maxWaitMs = 50_000;

/** The time after which a call with unfinished work is answered, ms: clients give up after a minute (design 16). */
export const maxCallMs = 53_000;

/**
 * After this time, ms, the client is assumed to have read the answer to a call, unless it has cancelled the call or
 * disconnected.
 */
const readWithinMs = 1_000;

/** The interval of progress notifications, ms. */
const progressEveryMs = 5_000;

/** One call of a tool. */
export interface Call {
  /** The flows' deps, with the signals of this call. */
  deps(): Promise<FlowDeps>;
  signals: Signals;
  deadline: Deadline;
  /** Reports progress to the client, if the client requested it. */
  tell(text: string): void;
  /** Notes of the flows, to include in the answer. */
  notes: string[];
  /** Records that this call is about to pay, so that an error can report the charge. */
  paying(): void;
  /**
   * Calls `record` once it is known whether the client got the answer that is about to be returned. A client that
   * cancels the call or disconnects, at any time until shortly after the answer was written, did not get it.
   */
  whenTold(record: (isTold: boolean) => Promise<void>): void;
  context: ServerContext;
}

/** The calls of one server. A call that the client has given up continues until its outcome is recorded. */
export class Calls {
  readonly #session: Session;
  readonly #interrupted: Signals;
  readonly #flags: ServerFlags;
  readonly #closing = new AbortController();
  readonly #inProgress = new Set<Promise<unknown>>();
  readonly #unread = new Set<{ id: unknown; cancelled: AbortController }>();

  /**
   * @param interrupted the signals of the process
   * @param flags the server's flags, which the commands for a person need
   */
  constructor(session: Session, interrupted: Signals, flags: ServerFlags = {}) {
    this.#session = session;
    this.#flags = flags;
    this.#interrupted = interrupted;
  }

  /**
   * Runs the work of a tool, and answers within {@link maxCallMs}. Never throws.
   * @param late the answer if the work takes longer; the work goes on
   */
  async run(
    context: ServerContext,
    late: Answer,
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
    const told = { text: '' };
    const call = {
      context,
      signals: { soft: soft.signal, hard: hard.signal },
      deadline: deadlineIn(maxWaitMs, this.#session.clock),
      tell: (text: string) => void (told.text = text),
      whenTold: (record: (isTold: boolean) => Promise<void>) =>
        this.background(async (signals) => {
          const isAwaited = !answered.signal.aborted && !soft.signal.aborted;
          const isTold = isAwaited && (await this.#isRead(context.mcpReq, signals.soft));
          // Without this record the client counts as not told, which costs nothing.
          await record(isTold).catch(() => undefined);
        }),
    };
    const working = this.#work(call, work).finally(() => {
      this.#inProgress.delete(working);
      for (const each of unlink) each();
    });
    this.#inProgress.add(working);
    void this.#tellProgress(context, told, answered.signal);
    try {
      const outcome = await Promise.race([working, this.#late(late, answered.signal)]);
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
    const working = work({ soft: soft.signal, hard: this.#interrupted.hard }).finally(() => {
      this.#inProgress.delete(working);
      for (const each of unlink) each();
    });
    this.#inProgress.add(working);
  }

  /**
   * Records that the client has cancelled a call, even one that was answered: the answer may have come too late.
   * @param id the id of the request
   */
  cancelled(id: unknown): void {
    for (const each of this.#unread) if (each.id === id) each.cancelled.abort();
  }

  /** Accepts nothing new, and resolves when everything in progress has ended and is recorded. */
  async end(): Promise<void> {
    this.#closing.abort(new Error('the client is gone'));
    while (this.#inProgress.size > 0) await Promise.allSettled(this.#inProgress);
  }

  // The person's command must use the gateway and the ledger of this server.
  async #withFlags(answer: Answer): Promise<Answer> {
    if (answer.command === undefined) return answer;
    const settings = await this.#session.settings().catch(() => undefined);
    return { ...answer, command: commandForPerson(answer.command, this.#flags, settings) };
  }

  async #isRead({ id, signal }: ServerContext['mcpReq'], ending: AbortSignal): Promise<boolean> {
    const cancelled = new AbortController();
    const call = { id, cancelled };
    const unlink = [abortWith(signal, cancelled), abortWith(ending, cancelled)];
    this.#unread.add(call);
    try {
      await this.#session.clock.sleep(readWithinMs, cancelled.signal);
      return true;
    } catch {
      return false;
    } finally {
      this.#unread.delete(call);
      for (const each of unlink) each();
    }
  }

  async #work(
    given: Omit<Call, 'deps' | 'notes' | 'paying'>,
    work: (call: Call) => Promise<ToolOutcome>,
  ): Promise<ToolOutcome> {
    const { signals } = given;
    const notes: string[] = [];
    let isPaying = false;
    const call: Call = {
      ...given,
      notes,
      paying: () => void (isPaying = true),
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
      const shown = isAbort ? interruptionError(signals.soft, 'no') : toMgwError(error);
      return { ...errorAnswer(shown, isPaying ? shown.charged : 'no'), ...(notes.length > 0 && { notes }) };
    }
  }

  async #late(answer: Answer, signal: AbortSignal): Promise<Answer> {
    await this.#session.clock.sleep(maxCallMs, signal).catch(() => undefined);
    return answer;
  }

  async #tellProgress({ mcpReq }: ServerContext, told: { text: string }, signal: AbortSignal): Promise<void> {
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    const { clock } = this.#session;
    const began = clock.monotonic();
    try {
      for (;;) {
        await clock.sleep(progressEveryMs, signal);
        const progress = Math.round((clock.monotonic() - began) / 1000);
        const message = told.text === '' ? 'in progress' : told.text;
        await mcpReq.notify({
          method: 'notifications/progress',
          params: { progressToken, progress, message },
        });
      }
    } catch {
      // The call was answered, or the client has disconnected, so no further progress is reported.
    }
  }
}
