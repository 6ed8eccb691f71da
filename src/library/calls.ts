import { resolve } from 'node:path';
import { abortWith, deadlineIn, systemClock, type Deadline, parseDuration } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import { MgwError, toMgwError, usageError, messageOf } from '../errors.ts';
import type { FlowDeps } from '../flows/settings.ts';
import { withPaymentMark } from '../jobs/order.ts';
import { jobView } from '../jobs/view.ts';
import type { Job } from '../job.ts';
import { interruptionError } from '../payment/errors.ts';
import type { Signals } from '../payment/pay-once.ts';
import { commandForPerson, withOutput } from '../flows/next.ts';
import { openSession, type Session, sessionOfCall } from '../flows/session.ts';
import type { CallOptions, ClientOptions, Duration } from './options.ts';
import type { Target } from '../jobs/output.ts';
import { nearestName } from '../nearest.ts';
import { parseAmount } from '../decimal.ts';
import { printableLine } from '../printable.ts';
import { isObjectUrl, outputProblem, parseObjectUrl } from '../store-url.ts';

/** The dependencies of a call. */
export interface Call {
  session: Session;
  settings: Settings;
  signals: Signals;
  /** Aborted when the client is closed. */
  closing: AbortSignal;
  deadline: Deadline;
  /** Records that this call is about to pay, so that its error reports the charge. */
  markPaying: () => void;
}

/** The options of a call that affect the suggested command (`next`) in its errors. */
export interface CallInput extends CallOptions {
  output?: string | undefined;
  force?: boolean | undefined;
  budget?: string | number | undefined;
}

// The kinds of options. Each has the description of its values.
const optionKinds = {
  boolean: { text: 'true or false', matches: (value: unknown) => typeof value === 'boolean' },
  string: { text: 'a string', matches: (value: unknown) => typeof value === 'string' },
  path: { text: 'a path', matches: (value: unknown) => typeof value === 'string' && value !== '' },
  number: { text: 'a number', matches: (value: unknown) => typeof value === 'number' },
  quantity: {
    text: 'a string or a number',
    matches: (value: unknown) => typeof value === 'string' || typeof value === 'number',
  },
  strings: {
    text: 'an array of strings',
    matches: (value: unknown) => Array.isArray(value) && value.every((each) => typeof each === 'string'),
  },
  object: { text: 'an object', matches: (value: unknown) => typeof value === 'object' && value !== null },
  function: { text: 'a function', matches: (value: unknown) => typeof value === 'function' },
  signal: { text: 'an AbortSignal', matches: (value: unknown) => value instanceof AbortSignal },
};

/** The name and kind of each option of a call. */
export type OptionKinds<Options = object> = Record<keyof Options, keyof typeof optionKinds>;

const clientKinds: OptionKinds<ClientOptions> = {
  baseUrl: 'string',
  apiKey: 'string',
  stateDir: 'path',
  configDir: 'path',
  profile: 'string',
  sandbox: 'boolean',
  allowHttp: 'boolean',
  trustedOrigins: 'strings',
  timeout: 'quantity',
  pollInterval: 'quantity',
  requestTimeout: 'quantity',
  retries: 'number',
  budgetName: 'string',
  env: 'object',
  onNote: 'function',
};

/** A client's calls. Each call has its own signals, and all calls share a session. */
export class Calls {
  readonly #flags: SettingFlags;
  readonly #session: Session;
  readonly #inProgress = new Map<AbortController, Promise<unknown>>();
  readonly #environment: NodeJS.ProcessEnv;
  readonly #closing = new AbortController();

  constructor(options: ClientOptions) {
    checkOptions(options, clientKinds, 'createClient');
    const { onNote } = options;
    this.#flags = flagsOf(options);
    this.#environment = environmentOf(options);
    const never = new AbortController().signal;
    this.#session = openSession({
      clock: systemClock,
      settings: async () =>
        (await import('../flows/settings.ts')).loadSettings(this.#flags, this.#environment),
      // Defers the program's callback, which must not run between a payment and its record.
      note: (text) => onNote && queueMicrotask(() => onNote(text)),
      signals: () => ({ soft: never, hard: never }),
    });
  }

  /**
   * Makes a call with options of the given kinds.
   * @throws MgwError for any error of `work`, with the job's public view and without the key.
   */
  async run<T>(
    caller: string,
    kinds: OptionKinds,
    input: CallInput,
    work: (call: Call) => Promise<T>,
  ): Promise<T> {
    if (this.#closing.signal.aborted) throw usageError('The client is closed.');
    const soft = new AbortController();
    const hard = new AbortController();
    const unlink: (() => void)[] = [];
    let checked: CallInput = {};
    const signals = { soft: soft.signal, hard: hard.signal };
    let isPaying = false;
    const markPaying = (): void => void (isPaying = true);
    try {
      checkOptions(input, kinds, caller);
      checked = input;
      const { signal, giveUp } = input;
      unlink.push(abortWith(signal, soft), abortWith(giveUp, soft), abortWith(giveUp, hard));
      const working = this.#work(input, signals, (call) => work({ ...call, markPaying }));
      this.#inProgress.set(soft, working);
      return await working;
    } catch (error) {
      throw await this.#callError(error, checked, signals, isPaying);
    } finally {
      this.#inProgress.delete(soft);
      for (const each of unlink) each();
    }
  }

  /** Ends the calls in progress and closes the session. Closing it again has no effect. */
  async close(): Promise<void> {
    const reason = new Error('the client was closed');
    this.#closing.abort(reason);
    for (const soft of this.#inProgress.keys()) soft.abort(reason);
    await Promise.allSettled(this.#inProgress.values());
    await this.#session.close();
    await this.#session.closeLedger();
  }

  async #work<T>(
    input: CallInput,
    signals: Signals,
    work: (call: Omit<Call, 'markPaying'>) => Promise<T>,
  ): Promise<T> {
    const timeoutMs = input.timeout === undefined ? undefined : durationMs(input.timeout, 'timeout');
    signals.soft.throwIfAborted();
    const settings = await this.#session.settings();
    const deadline = deadlineIn(timeoutMs ?? settings.timeoutMs.value, this.#session.clock);
    const session = sessionOfCall(this.#session, deadline, signals);
    try {
      return await work({ session, settings, signals, closing: this.#closing.signal, deadline });
    } finally {
      await session.close();
    }
  }

  async #callError(
    thrown: unknown,
    input: CallInput,
    { soft }: Signals,
    isPaying: boolean,
  ): Promise<MgwError> {
    const isAbort = !(thrown instanceof MgwError) && soft.aborted;
    const error = isAbort ? interruptionError(soft, 'no') : toMgwError(thrown);
    const cause = error.cause ?? (soft.aborted ? (soft.reason as unknown) : undefined);
    const publicError = error.with(
      { job: error.job && publicJob(error.job), cause, charged: isPaying ? error.charged : 'no' },
      this.#session.redact(error.message),
    );
    const budget = input.budget === undefined ? undefined : String(input.budget);
    const reported = withOutput(publicError, { ...input, budget, budgetName: this.#flags.budgetName });
    if (reported.next === undefined) return reported;
    const settings = await this.#session.settings().catch(() => undefined);
    const next = commandForPerson(reported.next, this.#flags, settings, this.#environment);
    return reported.with({ next: next.map((word) => this.#session.redact(word)) });
  }
}

/** Returns a job as in the published types: without the ledger's internal members and without undefined members. */
export function publicJob(job: Job): Job {
  const members = Object.entries(jobView(job)).filter(([, value]) => value !== undefined);
  return Object.fromEntries(members) as unknown as Job;
}

/**
 * Returns a call's dependencies, including the call's own signals and budgets. The budgets are closed when the call
 * ends.
 */
export async function depsOf({ session, signals, markPaying }: Call): Promise<FlowDeps> {
  const [deps, client] = await Promise.all([session.jobDeps(), session.client()]);
  const openBudget: FlowDeps['openBudget'] = (kind, name) => session.budget(kind, name);
  const objects: FlowDeps['objects'] = () => session.objects();
  return withPaymentMark({ ...deps, client, signals, openBudget, objects }, markPaying);
}

function flagsOf(options: ClientOptions): SettingFlags {
  const { baseUrl, apiKey, profile, sandbox, allowHttp, trustedOrigins, retries, budgetName } = options;
  const duration = (name: 'timeout' | 'pollInterval' | 'requestTimeout'): number | undefined => {
    const value = options[name];
    return value === undefined ? undefined : durationMs(value, name);
  };
  const flags = {
    ...{ baseUrl, apiKey, profile, sandbox, allowHttp, retries, budgetName },
    trustOrigin: trustedOrigins && [...trustedOrigins],
    timeout: duration('timeout'),
    pollInterval: duration('pollInterval'),
    requestTimeout: duration('requestTimeout'),
  };
  return Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined));
}

// Returns a copy of the environment, with the client's folders as variables. Folders are set only by variables, not by
// flags. The program may later change the options, the environment or the current folder.
function environmentOf({ env = process.env, stateDir, configDir }: ClientOptions): NodeJS.ProcessEnv {
  return {
    ...env,
    ...(stateDir !== undefined && { MGW_STATE_DIR: resolve(stateDir) }),
    ...(configDir !== undefined && { MGW_CONFIG_DIR: resolve(configDir) }),
  };
}

/**
 * Refuses unknown options and values of the wrong type: a misspelt `budget` or `newTake: 'false'` could cost money.
 * @throws MgwError('usage') that suggests the nearest name, or describes the option's values.
 */
export function checkOptions(options: object, kinds: OptionKinds, caller: string): void {
  if (typeof options !== 'object' || options === null)
    throw usageError(`${caller} must be an options object.`);
  const stray = Object.keys(options).find((name) => !Object.hasOwn(kinds, name));
  if (stray !== undefined) {
    const near = nearestName(stray, Object.keys(kinds));
    const hint =
      near === undefined ? `Available: ${Object.keys(kinds).join(', ')}.` : `Did you mean ${near}?`;
    throw usageError(`${caller}: unknown option ${stray}. ${hint}`);
  }
  for (const [name, kind] of Object.entries<keyof typeof optionKinds>(kinds)) {
    const value: unknown = Reflect.get(options, name);
    const { text, matches } = optionKinds[kind];
    if (value !== undefined && !matches(value)) throw usageError(`${caller}: ${name} must be ${text}.`);
  }
}

/** Parses a duration to ms. @throws MgwError('usage') that describes the allowed form. */
function durationMs(duration: Duration, name: string): number {
  const text = typeof duration === 'number' ? `${duration}ms` : duration;
  try {
    return parseDuration(text);
  } catch (error) {
    throw usageError(`${name} ${text}: must be ${messageOf(error)}, or a whole number of milliseconds.`);
  }
}

/**
 * Returns the target that an `output` option specifies.
 * @throws MgwError('usage') if the output is neither a file path nor an object's URL.
 */
export function targetOf(output: string | undefined): (Target & { kind: 'file' }) | undefined {
  if (output === undefined) return undefined;
  if (typeof output !== 'string' || output === '' || output === '-' || output.includes('\0'))
    throw usageError('output must be a file path.');
  const problem = outputProblem(output);
  if (problem !== undefined) throw usageError(`output must be ${problem}.`);
  if (isObjectUrl(output)) checkObject(output);
  return { kind: 'file', path: output };
}

function checkObject(url: string): void {
  try {
    parseObjectUrl(url.replace(/\/$/, '/{id}'));
  } catch (error) {
    throw usageError(`output must be ${messageOf(error)}.`);
  }
}

/** Returns an amount as exact decimal text. @throws MgwError('usage') that describes the allowed values. */
export function amountText(budget: string | number | undefined): string | undefined {
  if (budget === undefined) return undefined;
  const text = String(budget);
  try {
    parseAmount(text);
  } catch (error) {
    throw usageError(`budget ${printableLine(text, 100)}: must be ${messageOf(error)}.`);
  }
  return text;
}
