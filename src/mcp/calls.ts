import type { CallToolResult, ServerContext } from '@modelcontextprotocol/server';
import { abortWith } from '../abort-with.ts';
import { deadlineIn, type Deadline } from '../clock.ts';
import { MgwError, toMgwError } from '../errors.ts';
import type { FlowDeps } from '../flows/flow-deps.ts';
import type { Session } from '../flows/session.ts';
import { interrupted } from '../payment/errors.ts';
import type { Signals } from '../payment/pay-once.ts';
import { type Answer, errorAnswer, toolResult } from './result.ts';

/** How long a call waits before it answers that the work goes on, ms. Clients give up after a minute (design 16). */
export const longestCallMs = 50_000;

/** How often a client that asked for it is told that a call is in progress, ms. */
const progressEveryMs = 5_000;

/** One call of a tool. */
export interface Call {
  /** The flows' deps, with the signals of this call. */
  deps(): Promise<FlowDeps>;
  signals: Signals;
  deadline: Deadline;
  /** Says what is happening; the client is told if it asked for progress. */
  tell(text: string): void;
  /** Notes of the flows, for the answer. */
  notes: string[];
  /** Records that this call is about to pay, so that an error tells what it has cost. */
  paying(): void;
}

/** The calls of one server. Whatever a client gives up goes on until its outcome is recorded. */
export class Calls {
  readonly #session: Session;
  readonly #interrupted: Signals;
  readonly #closing = new AbortController();
  readonly #inProgress = new Set<Promise<unknown>>();

  /** @param interrupted the signals of the process */
  constructor(session: Session, interrupted: Signals) {
    this.#session = session;
    this.#interrupted = interrupted;
  }

  /**
   * Runs the work of a tool, and answers within {@link longestCallMs} or soon after. Never throws.
   * @param lateAnswer what is answered if the work takes longer; without it, the work ends by its deadline
   */
  async run(
    context: ServerContext,
    work: (call: Call) => Promise<Answer>,
    lateAnswer?: () => Answer,
  ): Promise<CallToolResult> {
    const redact = (text: string): string => this.#session.redact(text);
    const soft = new AbortController();
    const hard = new AbortController();
    const unlink = [
      abortWith(context.mcpReq.signal, soft),
      abortWith(this.#closing.signal, soft),
      abortWith(this.#interrupted.soft, soft),
      abortWith(this.#interrupted.hard, hard),
    ];
    const deadline = deadlineIn(longestCallMs, this.#session.clock);
    const answered = new AbortController();
    const told = { text: '' };
    const working = this.#work(
      { soft: soft.signal, hard: hard.signal },
      deadline,
      (text) => (told.text = text),
      work,
    ).finally(() => {
      this.#inProgress.delete(working);
      for (const each of unlink) each();
    });
    this.#inProgress.add(working);
    void this.#tellProgress(context, told, answered.signal);
    try {
      const late = lateAnswer && this.#late(lateAnswer, answered.signal);
      return toolResult(await (late === undefined ? working : Promise.race([working, late])), redact);
    } finally {
      answered.abort();
    }
  }

  /** Starts work that outlives the call that asked for it. {@link end} awaits it. @param work never rejects */
  background(work: (signals: Signals) => Promise<void>): void {
    const soft = new AbortController();
    const unlink = [abortWith(this.#closing.signal, soft), abortWith(this.#interrupted.soft, soft)];
    const working = work({ soft: soft.signal, hard: this.#interrupted.hard }).finally(() => {
      this.#inProgress.delete(working);
      for (const each of unlink) each();
    });
    this.#inProgress.add(working);
  }

  /** Begins nothing new, and resolves when everything in progress has ended and is recorded. */
  async end(): Promise<void> {
    this.#closing.abort(new Error('the client is gone'));
    await Promise.allSettled(this.#inProgress);
  }

  async #work(
    signals: Signals,
    deadline: Deadline,
    tell: (text: string) => void,
    work: (call: Call) => Promise<Answer>,
  ): Promise<Answer> {
    const notes: string[] = [];
    let isPaying = false;
    const call: Call = {
      signals,
      notes,
      tell,
      deadline,
      paying: () => void (isPaying = true),
      deps: async () => ({
        ...(await this.#session.jobDeps()),
        signals,
        note: (text) => notes.push(this.#session.redact(text)),
      }),
    };
    try {
      const answer = await work(call);
      return notes.length === 0 ? answer : { ...answer, notes };
    } catch (error) {
      const isAbort = !(error instanceof MgwError) && signals.soft.aborted;
      const shown = isAbort ? interrupted(signals.soft, 'no') : toMgwError(error);
      return { ...errorAnswer(shown, isPaying ? shown.charged : 'no'), ...(notes.length > 0 && { notes }) };
    }
  }

  async #late(answer: () => Answer, signal: AbortSignal): Promise<Answer> {
    await this.#session.clock.sleep(longestCallMs, signal).catch(() => undefined);
    return answer();
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
      // The call was answered, or its client is gone: there is no one to respond to.
    }
  }
}
