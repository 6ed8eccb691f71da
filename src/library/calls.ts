import { resolve } from 'node:path';
import { abortWith, deadlineIn, systemClock, type Deadline, parseDuration } from '../clock.ts';
import type { Budget } from '../budget/budget.ts';
import type { BudgetKind } from '../budget/file-budget.ts';
import type { Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import { MgwError, toMgwError, usageError, messageOf } from '../errors.ts';
import type { FlowDeps } from '../flows/settings.ts';
import { jobView } from '../jobs/view.ts';
import type { Job } from '../job.ts';
import { interruptionError } from '../payment/errors.ts';
import type { Signals } from '../payment/pay-once.ts';
import { withGlobals, withOutput } from '../flows/next.ts';
import { openSession, type Session, withinDeadline } from '../flows/session.ts';
import type { CallOptions, ClientOptions, Duration } from './options.ts';
import type { Target } from '../jobs/output.ts';
import { isObject, parseBodyJson, type Json, type JsonObject } from '../json.ts';
import { nearestName } from '../nearest.ts';
import { isObjectUrl, parseObjectUrl } from '../store-url.ts';

/** The dependencies of one call. */
export interface Call {
  session: Session;
  settings: Settings;
  signals: Signals;
  /** Aborted when the client is closed. */
  closing: AbortSignal;
  deadline: Deadline;
}

/** The options of a call that its errors need for `next`. */
export interface CallInput extends CallOptions {
  output?: string | undefined;
  force?: boolean | undefined;
}

const optionNames: Record<keyof ClientOptions, true> = {
  baseUrl: true,
  apiKey: true,
  stateDir: true,
  configDir: true,
  profile: true,
  sandbox: true,
  allowHttp: true,
  trustedOrigins: true,
  timeout: true,
  pollInterval: true,
  requestTimeout: true,
  retries: true,
  budgetName: true,
  env: true,
  onNote: true,
};

/** The calls of one client: each has its own signals, and all share a session. */
export class Calls {
  readonly #flags: SettingFlags;
  readonly #session: Session;
  readonly #underWay = new Map<AbortController, Promise<unknown>>();
  readonly #closing = new AbortController();

  constructor(options: ClientOptions) {
    checkNames(options, optionNames, 'createClient');
    const { onNote } = options;
    this.#flags = flagsOf(options);
    const never = new AbortController().signal;
    this.#session = openSession({
      clock: systemClock,
      settings: async () =>
        (await import('../flows/settings.ts')).loadSettings(this.#flags, environmentOf(options)),
      // The program's callback must not run between a payment and its record.
      note: (text) => onNote && queueMicrotask(() => onNote(text)),
      signals: () => ({ soft: never, hard: never }),
    });
  }

  /**
   * Makes one call.
   * @throws MgwError, whatever `work` throws, with the job as users see it and the key removed.
   */
  async run<T>(input: CallInput, work: (call: Call) => Promise<T>): Promise<T> {
    if (this.#closing.signal.aborted) throw usageError('The client is closed.');
    if (typeof input !== 'object' || input === null)
      throw usageError('The argument must be an object of options.');
    const soft = new AbortController();
    const hard = new AbortController();
    const unlink = [
      abortWith(input.signal, soft),
      abortWith(input.giveUp, soft),
      abortWith(input.giveUp, hard),
    ];
    const signals = { soft: soft.signal, hard: hard.signal };
    const working = this.#work(input, signals, work);
    this.#underWay.set(soft, working);
    try {
      return await working;
    } catch (error) {
      throw this.#told(error, input, signals);
    } finally {
      this.#underWay.delete(soft);
      for (const each of unlink) each();
    }
  }

  /** Ends the calls in progress and closes the session. Closing twice does nothing. */
  async close(): Promise<void> {
    const reason = new Error('the client was closed');
    this.#closing.abort(reason);
    for (const soft of this.#underWay.keys()) soft.abort(reason);
    await Promise.allSettled(this.#underWay.values());
    await this.#session.close();
    await this.#session.closeLedger();
  }

  async #work<T>(input: CallInput, signals: Signals, work: (call: Call) => Promise<T>): Promise<T> {
    const timeoutMs = input.timeout === undefined ? undefined : durationMs(input.timeout, 'timeout');
    signals.soft.throwIfAborted();
    const budgets: Budget[] = [];
    const settings = await this.#session.settings();
    const deadline = deadlineIn(timeoutMs ?? settings.timeoutMs.value, this.#session.clock);
    const session: Session = {
      ...withinDeadline(this.#session, deadline),
      budget: async (kind: BudgetKind, name: string) => {
        const budget = await this.#session.budget(kind, name);
        budgets.push(budget);
        return budget;
      },
    };
    try {
      return await work({ session, settings, signals, closing: this.#closing.signal, deadline });
    } finally {
      for (const budget of budgets) await budget.close();
    }
  }

  #told(thrown: unknown, input: CallInput, { soft }: Signals): MgwError {
    const isAbort = !(thrown instanceof MgwError) && soft.aborted;
    const error = isAbort ? interruptionError(soft, 'no') : toMgwError(thrown);
    const cause = error.cause ?? (soft.aborted ? (soft.reason as unknown) : undefined);
    const shown = error.with(
      { job: error.job && shownJob(error.job), cause },
      this.#session.redact(error.message),
    );
    return withGlobals(withOutput(shown, input), this.#flags);
  }
}

/** Returns a job without the ledger's own members, as the published types show it. */
export function shownJob(job: Job): Job {
  return jobView(job) as Job;
}

/** Returns the deps of a call: with its own signals, and its own budgets, which are closed when it ends. */
export async function depsOf({ session, signals }: Call): Promise<FlowDeps> {
  const [deps, client] = await Promise.all([session.jobDeps(), session.client()]);
  return { ...deps, client, signals, openBudget: (kind, name) => session.budget(kind, name) };
}

function flagsOf(options: ClientOptions): SettingFlags {
  const { baseUrl, apiKey, profile, sandbox, allowHttp, trustedOrigins, retries, budgetName } = options;
  const duration = (name: 'timeout' | 'pollInterval' | 'requestTimeout'): number | undefined => {
    const given = options[name];
    return given === undefined ? undefined : durationMs(given, name);
  };
  const flags = {
    ...{ baseUrl, apiKey, profile, sandbox, allowHttp, trustOrigin: trustedOrigins, retries, budgetName },
    timeout: duration('timeout'),
    pollInterval: duration('pollInterval'),
    requestTimeout: duration('requestTimeout'),
  };
  return Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined));
}

// The folders have no flag: the command line takes them from the environment too.
function environmentOf({ env = process.env, stateDir, configDir }: ClientOptions): NodeJS.ProcessEnv {
  return {
    ...env,
    ...(stateDir !== undefined && { MGW_STATE_DIR: resolve(stateDir) }),
    ...(configDir !== undefined && { MGW_CONFIG_DIR: resolve(configDir) }),
  };
}

/**
 * Refuses an unknown option: a misspelt `key` or `budget` could cost money.
 * @throws MgwError('usage') with the nearest name.
 */
export function checkNames(given: object, names: Record<string, true>, what: string): void {
  if (typeof given !== 'object' || given === null) throw usageError(`${what}: give an object of options.`);
  const stray = Object.keys(given).find((name) => !Object.hasOwn(names, name));
  if (stray === undefined) return;
  const near = nearestName(stray, Object.keys(names));
  const hint = near === undefined ? `Available: ${Object.keys(names).join(', ')}.` : `Did you mean ${near}?`;
  throw usageError(`${what}: there is no option ${stray}. ${hint}`);
}

/** Parses a duration into ms. @throws MgwError('usage') saying what is allowed. */
function durationMs(given: Duration, name: string): number {
  const text = typeof given === 'number' ? `${given}ms` : given;
  try {
    return parseDuration(text);
  } catch (error) {
    throw usageError(`${name} ${text}: must be ${messageOf(error)}, or whole milliseconds.`);
  }
}

/**
 * Returns the target of an `output`.
 * @param isNew whether the job does not exist yet: an object's name then accepts only `{id}` and `{n}`
 * @throws MgwError('usage') if it cannot name a file.
 */
export function targetOf(output: string | undefined, isNew = false): (Target & { kind: 'file' }) | undefined {
  if (output === undefined) return undefined;
  if (typeof output !== 'string' || output === '' || output === '-' || output.includes('\0'))
    throw usageError('output: give the path of a file.');
  if (isObjectUrl(output)) checkObject(output, isNew);
  return { kind: 'file', path: output };
}

function checkObject(url: string, isNew: boolean): void {
  const [name] = (isNew && /\{(?!n\}|id\})\w+\}/.exec(url)) || [];
  if (name !== undefined) throw usageError(`output: ${name} is not known before the job exists.`);
  try {
    parseObjectUrl(isNew ? url : url.replace(/\/$/, '/{id}'));
  } catch (error) {
    throw usageError(`output: give ${messageOf(error)}.`);
  }
}

/** Returns an amount as exact decimal text. */
export function amountText(budget: string | number | undefined): string | undefined {
  return budget === undefined ? undefined : String(budget);
}

/** Returns an object as the JSON that is sent. @throws MgwError('usage') if it would not be sent unchanged. */
export function jsonObject(given: object, name: string): JsonObject {
  let json: Json | undefined;
  try {
    json = parseBodyJson(JSON.stringify(given) ?? 'null');
  } catch (error) {
    throw usageError(`${name}: ${messageOf(error)}.`);
  }
  if (!isObject(json)) throw usageError(`${name}: it must be an object.`);
  return json;
}
